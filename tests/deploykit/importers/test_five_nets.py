"""Nets that want photos in different ranges answer as in Keras, or say what to state."""

import re
import shlex

import pytest

import deploykit as api
from deploykit.importers.image_range import expected_range
from deploykit.transforms.common.errors import GraphError
from tests import pairwise
from tests.deploykit.conftest import deploykit as deploykit
from tests.deploykit.importers import nets
from tests.support import Containing, because, raises

pytestmark = pytest.mark.slow

FORMS = ("keras", "saved_model", "frozen", "optimized")
SAYS = {
    "rescaling": because("divides-itself"),
    "normalization": because("normalises-itself"),
    "bytes": "uint8 input",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.write(tmp_path_factory.mktemp("photos"), *nets.photos(1))


@pytest.fixture(scope="module", params=pairwise.drawn(__name__, list(nets.PREPARED), 3))
def made(request, tmp_path_factory):
    """Write a net in each form; return its name, its paths, and what Keras says of its accuracy."""
    place, name = tmp_path_factory.mktemp(request.param), request.param
    model = nets.net(name)
    model.save(place / "net.keras")
    model.export(place / "saved_model", verbose=False)
    api.freeze(place / "net.keras", output=place / "frozen.pb")
    api.optimize(place / "frozen.pb", output=place / "optimized.pb")
    files = ("net.keras", "saved_model", "frozen.pb", "optimized.pb")
    paths = dict(zip(FORMS, (str(place / file) for file in files), strict=True))
    pixels, labels = nets.photos(1)
    return name, paths, nets.accuracy(model, nets.PREPARED[name](pixels), labels)


def accuracy(path, folder, **more):
    found = api.verify(path, path, data=folder, **more)
    return found.accuracy[0], found.fed["photo"]


@pytest.mark.parametrize("form", FORMS)
def test_photos_reach_a_net_as_keras_feeds_it_or_it_says_what_to_state(made, folder, form):
    name, paths, expected = made
    if name in SAYS:
        found, text = accuracy(paths[form], folder)
        assert (found, text) == (expected, f"photos 16x16 -> 16x16 bilinear, 0..255 ({SAYS[name]})")
        assert accuracy(paths[form], folder, preprocess="0..1")[0] != expected
        return
    with raises(GraphError, "photo-range-unknown", source=folder, name="photo") as error:
        accuracy(paths[form], folder)
    stated = [shlex.split(line)[0] for line in str(error.value).split("--preprocess ")[2:]]
    assert stated == ["0..1", "-1..1"]
    found = {each: accuracy(paths[form], folder, preprocess=each)[0] for each in stated}
    right, wrong = stated if name == "zero_to_one" else reversed(stated)
    assert found[right] == expected != found[wrong]


def test_a_folded_factor_is_remembered(made, folder, tmp_path):
    """What a graph said counts when it says it no longer."""
    name, paths, expected = made
    if name != "rescaling":
        pytest.skip("one is enough")
    steps = "fold_constants fold_scale fold_batch_norms"
    api.transform(paths["frozen"], steps, output=tmp_path / "folded.pb")
    folded = api.load_graph(tmp_path / "folded.pb")
    assert expected_range(folded, "photo") is None
    assert accuracy(str(tmp_path / "folded.pb"), folder)[0] == expected
    (tmp_path / "folded.pb.json").unlink()
    with raises(GraphError, "photo-range-unknown", advice=Containing("--preprocess")):
        accuracy(str(tmp_path / "folded.pb"), folder)


def test_the_range_may_be_kept_with_the_model(made, folder, deploykit, tmp_path):
    name, paths, expected = made
    if name != "minus_one_to_one":
        pytest.skip("one is enough")
    kept, quantized = tmp_path / "kept.pb", tmp_path / "quantized.pb"
    frozen = deploykit("freeze", paths["keras"], "--preprocess", "-1..1", "-o", kept)
    assert frozen.status == 0, frozen.stderr
    found = deploykit(
        "quantize", kept, "--calibration", folder, "--evaluation", folder, "--budget", "0.1",
        "--allow-float", "-o", quantized, "--json",  # it is too small to gain time in int8
    )  # fmt: skip
    assert found.status == 0, found.stderr
    text = "photos 16x16 -> 16x16 bilinear, -1..1 (from the model metadata file)"
    assert found.document["fed"] == {"photo": text}
    assert found.stderr.count("photo: photos") == 1
    assert found.document["evaluation"]["before"]["value"] == pytest.approx(expected)
    assert accuracy(str(kept), folder)[0] == expected
    refused = deploykit(
        "calibrate", paths["keras"], "--data", folder, "-o", tmp_path / "ranges.json"
    )
    assert refused.status == 2
    lines = re.findall(r"--preprocess (\S+)", refused.stderr.split("give ")[1])
    assert lines == ["0..1", "-1..1"]
    for spelled in (["--preprocess", lines[1]], [f"--preprocess={lines[1]}"]):
        done = deploykit(
            "calibrate",
            paths["keras"],
            "--data",
            folder,
            *spelled,
            "-o",
            tmp_path / "r.json",
            "--force",
        )
        assert done.status == 0, done.stderr
        assert "-1..1 (from --preprocess)" in done.stderr
