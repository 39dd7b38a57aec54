"""A batching server joins requests on the first axis, so it runs time-major requests alone."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import deploykit as public
from deploykit.data.preprocessing import with_batch_axes
from deploykit.serving.execution.request_inputs import may_share
from deploykit.serving.protocol.signatures import (
    PROVENANCE,
    read_meta_graph,
    signatures_with_axes,
)
from deploykit.transforms.common.errors import GraphError
from tests.serving.served import Served
from tests.support import built, random, shows, tf

STEPS, WIDTH, AXES = 3, 4, {"format": 1, "inputs": {"x": {"batch_axis": 1}}}
CLIENTS = 4


def unbatched(lines, name):
    """Return the lines that name the signature and this input."""
    return [
        line for line in lines if shows(line, "unbatched", signature="serving_default", input=name)
    ]


@built(["x"], ["out"])
def totals(steps=None):
    """Build a time-major model whose output is the running total over time."""
    x = tf.compat.v1.placeholder(tf.float32, [steps, None, WIDTH], name="x")
    tf.cumsum(x, 0, name="out")


def major(steps=None):
    return with_batch_axes(totals(steps), AXES)[0]


def ask(server, model="m", name="x"):
    """Send requests at the same time; return whether each has its own outputs."""
    requests = [random(STEPS, 2, WIDTH, seed=seed) for seed in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        found = list(pool.map(lambda x: public.predict(server, model, {name: x}), requests))
    return [np.allclose(answer.outputs["out"], x.cumsum(0), atol=1e-5)
            for answer, x in zip(found, requests, strict=True)]  # fmt: skip


@pytest.mark.slow  # starts a server
def test_concurrent_time_major_requests_get_their_own_outputs(tmp_path):
    parameters = tmp_path / "batching.txt"
    parameters.write_text("max_batch_size { value: 64 } batch_timeout_micros { value: 500000 }")
    public.export(major(), tmp_path / "models", name="m")
    folder = tmp_path / "models" / "m"
    server = Served(folder, "--enable_batching", f"--batching_parameters_file={parameters}")
    try:
        assert all(ask(server.address))
    finally:
        server.kill()
    assert len(unbatched(server.said.splitlines(), "x")) == 1


@pytest.mark.parametrize("steps", [None, STEPS])  # with 3, no batch could be joined either
def test_a_tuned_batch_is_not_used_for_it(steps, tmp_path, caplog):
    public.export(major(steps), tmp_path, name="m", input_aliases={"sequence": "x"})
    with public.serve(tmp_path, port=0, tuned=public.RunConfig(batch=8)) as server:
        assert server.settings.batching.largest == 8
        assert all(ask(server.address, name="sequence"))
    assert len(unbatched(caplog.messages, "sequence")) == 1


def stored(folder):
    return json.loads((folder / PROVENANCE).read_text()).get("batch_axes")


def test_the_axis_is_stored_for_each_signature(tmp_path):
    data = {"x": random(STEPS, 2, WIDTH)}
    expected = {"a": {"x": 1}, "b": {"x": 1}}
    np.savez(tmp_path / "x.npz", **data)
    for number, (graph, how) in enumerate((
        (major(), {}),
        (totals(), {"warmup": tmp_path / "x.npz", "warmup_preprocess": AXES}),
    )):  # fmt: skip
        found = public.export(graph, tmp_path, name=f"m{number}", signature_name=["a", "b"], **how)
        assert stored(found.folder) == expected
        signatures = signatures_with_axes(found.folder, read_meta_graph(found.folder))
        assert [item.batch_axes for item in signatures.values()] == [{"x": 1}, {"x": 1}]
        assert not any(map(may_share, signatures.values()))
    plain = public.export(totals(), tmp_path, name="plain")
    assert stored(plain.folder) is None
    (signature,) = signatures_with_axes(plain.folder, read_meta_graph(plain.folder)).values()
    assert may_share(signature)


@pytest.mark.parametrize(
    ("content", "is_logged"),
    [("{", True), ("[]", False), ('{"batch_axes": 1}', False),
     ('{"batch_axes": {"serving_default": [1]}}', False),
     ('{"batch_axes": {"other": {"x": 1}}}', False),
     ('{"batch_axes": {"serving_default": {"x": "1"}}}', False),
     ('{"batch_axes": {"serving_default": {"x": 0, "y": 1}}}', False)],
)  # fmt: skip
def test_a_damaged_description_states_no_axis(content, is_logged, tmp_path, caplog):
    folder = public.export(totals(), tmp_path, name="m").folder
    (folder / PROVENANCE).write_text(content)
    (signature,) = signatures_with_axes(folder, read_meta_graph(folder)).values()
    assert may_share(signature)
    assert bool(caplog.messages) == is_logged


@pytest.mark.parametrize("how", [{"method": "classify"}, {"method": "regress"}])
def test_tf_examples_put_their_samples_first(how, tmp_path):
    with pytest.raises(GraphError) as caught:
        public.export(major(), tmp_path, name="m", **how)
    assert caught.value.code == "batch-axis-not-first"
    assert not [*tmp_path.iterdir()]
