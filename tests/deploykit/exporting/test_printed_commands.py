"""The commands that export and ship print run as they stand, for all kinds of inputs."""

import re
import shlex

import numpy as np
import pytest

import deploykit as api
from tests.serving.served import Served
from tests.support import shows

KINDS = [
    "names",
    "two inputs",
    "text",
    "dict of outputs",
    "photos",
    "fixed batch",
    "scalars",
    "half",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return the paths of SavedModels by kind, in a folder with a space in its name."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("my models")

    def spec(*shape, dtype=tf.float32, name="x"):
        return tf.TensorSpec(shape, dtype, name)

    def saved(kind, function, *specs):
        module = tf.Module()
        module.call = tf.function(function, input_signature=specs)
        path = folder / kind.replace(" ", "_")
        tf.saved_model.save(module, str(path), module.call)
        return path

    def named(file, allow_pickle):
        return {"y": file + allow_pickle}

    words = tf.constant([["good", "bad"]])
    return {
        "names": saved("names", named, spec(None, name="file"), spec(None, name="allow_pickle")),
        "two inputs": saved(
            "rating", lambda user, item: {"y": tf.cast(user, tf.float32)[:, None] * item},
            spec(None, dtype=tf.int64, name="user"), spec(None, 3, name="item")),
        "text": saved(
            "text", lambda review: {"y": tf.cast(review == words, tf.float32)},
            spec(None, 1, dtype=tf.string, name="review")),
        "dict of outputs": saved(
            "several", lambda x: {"a": x + 1, "b": tf.as_string(x), "c": tf.cast(x, tf.int32)},
            spec(None, 2)),
        "photos": saved(
            "photo", lambda image: {"y": tf.reduce_mean(image, [1, 2])},
            spec(None, 8, 8, 3, name="image")),
        "fixed batch": saved("fixed", lambda x: {"y": x * 2}, spec(2, 3)),
        "scalars": saved("scalar", lambda x: {"y": x / 2}, spec()),
        "half": saved("half", lambda x: {"y": x + 1}, spec(None, 2, dtype=tf.bfloat16)),
    }  # fmt: skip


def printed_commands(text):
    """Return the commands in the last table of an output, by what they do."""
    return dict(re.findall(r"^(serve the model|send a request) +(deploykit .+?) *$", text, re.M))


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    """Return a server of all models, as the printed command starts it, and their commands."""
    base, commands = tmp_path_factory.mktemp("served models"), {}
    for kind, path in models.items():
        steps = "0..1" if kind == "photos" else None
        exported = api.export(path, base, preprocess=steps)
        commands[kind] = {row["what"]: shlex.split(row["command"]) for row in exported.commands}
        assert commands[kind]["serve the model"] == ["deploykit", "serve", str(base)]
    server = Served(*commands["text"]["serve the model"][2:])
    yield server.address, commands
    server.kill()


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_the_request_runs_as_it_stands(served, kind, deploykit):
    address, commands = served
    ask = commands[kind]["send a request"]
    assert ask[:3] == ["deploykit", "predict", "localhost:8500"]
    found = deploykit("predict", address, *ask[3:], "--json")
    assert found.status == 0, found.stderr
    assert found.document["values"]


@pytest.mark.sampled
def test_export_prints_the_commands(models, tmp_path, deploykit):
    exported = deploykit("export", models["two inputs"], tmp_path / "a base")
    assert printed_commands(exported.stdout) == {
        "serve the model": f"deploykit serve '{tmp_path}/a base'",
        "send a request": "deploykit predict localhost:8500 rating "
        f"'{tmp_path}/a base/rating/1/assets.extra/sample.npz'",
    }


@pytest.mark.sampled
def test_the_sample_is_synthetic_unless_warm_up_samples_are_named(models, tmp_path):
    given = np.full((3, 2), 7, np.float32)
    for number, (warmup, named) in enumerate([(None, False), ({"x": given}, True)], 1):
        found = api.export(models["dict of outputs"], tmp_path, warmup=warmup)
        with np.load(found.sample) as stored:
            assert stored["x"].shape == (1, 2)
            assert bool((stored["x"] == 7).all()) == named
        assert found.version == number
    found = api.export(
        models["dict of outputs"], tmp_path, warmup={"x": given}, sample_warmup=False
    )
    with np.load(found.sample) as stored:
        assert not (stored["x"] == 7).any()


@pytest.mark.slow
def test_a_model_without_a_sample_is_asked_for_its_status(models, tmp_path, deploykit):
    exported = deploykit("export", models["dict of outputs"], tmp_path, "--method", "classify",
                         "--input-alias", "f=x", "--output-alias", "scores=a")  # fmt: skip
    assert exported.status == 0, exported.stderr
    ask = shlex.split(printed_commands(exported.stdout)["send a request"])
    server = Served(tmp_path)
    try:
        found = deploykit(ask[1], server.address, *ask[3:])
        assert found.status == 0, found.stderr
    finally:
        server.kill()


@pytest.mark.slow
def test_another_signature_is_named(models, tmp_path, deploykit):
    exported = deploykit("export", models["photos"], tmp_path, "--preprocess", "0..1",
                         "--signature-name", "first")  # fmt: skip
    assert exported.status == 0, exported.stderr
    ask = shlex.split(printed_commands(exported.stdout)["send a request"])
    assert "--signature" in ask
    server = Served(tmp_path)
    try:
        found = deploykit(ask[1], server.address, *ask[3:])
        assert found.status == 0, found.stderr
    finally:
        server.kill()


@pytest.fixture
def text_server(served):
    return served[0]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--input", "review=good"], [[1, 0]]),
        (["--input", "review=good great"], [[0, 0]]),
        (["bad"], [[0, 1]]),
        (["review=12"], [[0, 0]]),
        (["a=b"], [[0, 0]]),
        (['["good"]'], [[1, 0]]),
        (['review=[["good"], ["bad"]]'], [[1, 0], [0, 1]]),
    ],
)
def test_text_is_written_as_it_is(text_server, deploykit, given, expected):
    found = deploykit("predict", text_server, "text", *given, "--json")
    assert found.status == 0, found.stderr
    assert found.document["values"]["y"]["values"] == expected
    is_plain = "[" not in given[-1]
    assert shows(found.stderr, "text-sent", input="review") == is_plain


def test_lists_that_do_not_fit_are_refused_with_nested_ones(text_server, deploykit):
    found = deploykit("predict", text_server, "text", '["good", "bad"]')
    assert found.status == 2
    written = re.search(r"two samples are written as (\[.+\]\])", found.stderr)[1]
    assert deploykit("predict", text_server, "text", f"review={written}").status == 0


@pytest.mark.parametrize("given", ["reveiw=good", "no/such/sample.npz", "review=no.npy"])
def test_what_looks_like_a_mistake_is_not_sent_as_text(text_server, deploykit, given):
    assert deploykit("predict", text_server, "text", given).status in (2, 4)


def test_a_text_that_is_given_twice_is_refused_with_a_list_that_works(text_server, deploykit):
    found = deploykit("predict", text_server, "text", "good", "bad")
    assert (found.status, '\'["a", "b"]\'' in found.stderr) == (2, True)


def test_an_archive_names_its_inputs_itself(text_server, deploykit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("a=b.npz", review=np.array([["good"]]))
    assert deploykit("predict", text_server, "text", "a=b.npz").status == 0
    np.savez("x.npz", reviews=np.array([["good"]]))
    found = deploykit("predict", text_server, "text", "x.npz")
    assert (found.status, "review" in found.stderr) == (2, True)
