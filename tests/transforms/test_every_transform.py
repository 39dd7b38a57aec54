"""What holds for every transform: the graph it is given stays, and what the pipeline promises."""

import pytest

from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import FunctionDef
from tests.support import building, ops, random, tf, transform
from tests.transforms.int8_nets import ranges_of

# Parameters for the transforms that need some, or would do nothing to the graph below.
PARAMETERS = {
    "convert_layout": "to=NCHW",
    "correct_biases": 'ranges="{ranges}"',
    "equalize_channels": "ranges={ranges}",
    "freeze_requantization_ranges": "min_max_log_file={log}",
    "insert_logging": "op=Relu",
    "pin_placeholder": "name=switch, value=true",
    "quantize_codes": 'ranges="{ranges}"',
    "quantize_static": 'ranges="{ranges}"',
    "quantize_weights": "minimum_size=4",
    "remove_attribute": "attribute_name=_mark",
    "remove_nodes": "op=Identity",
    "reuse_dead_channels": "ranges={ranges}",
    "rename_attribute": "old_attribute_name=_mark, new_attribute_name=_sign",
    "rename_node": "old_node_name=hidden, new_node_name=shown",
    "rename_op": "old_op_name=AddV2, new_op_name=Add",
    "round_weights": "num_steps=16",
    "set_device": 'device="/cpu:0"',
    "shift_activations": "ranges={ranges}",
    "balance_layer_norms": "ranges={ranges}",
    "split_large_neurons": "ranges={ranges}",
    "center_contexts": "ranges={ranges}",
    "split_tokens": "tensor=x",
}
# A second run goes on from the first one's result.
NOT_IDEMPOTENT = {
    "correct_biases": "it takes back once more what the weights lose when they are rounded",
    "pin_placeholder": "the placeholder is gone, which is an error",
    "rename_node": "the old name is gone, which is an error",
    "round_weights": "it rounds what is rounded already, in another range",
}


@pytest.fixture(scope="module")
def content() -> bytes:
    """Return a small net with a bit of everything, as bytes: no transform may share its nodes."""

    with building(["x", "switch"], ["out", "logits"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 8, 8, 3], name="x")
        switch = tf.compat.v1.placeholder_with_default(False, [], name="switch")
        y = tf.raw_ops.Conv2D(
            input=x, filter=random(3, 3, 3, 8), strides=[1, 1, 1, 1], padding="SAME"
        )
        y = tf.nn.relu(y * random(8, seed=1, low=0.5) + random(8, seed=2), name="hidden")
        y = tf.identity(tf.nn.max_pool2d(y, 2, 2, "VALID"), name="pooled")
        y = tf.concat([y, tf.stop_gradient(y)], -1)
        with tf.device("/cpu:0"), tf.control_dependencies([switch]):
            y = tf.matmul(tf.reduce_mean(y, [1, 2]), random(16, 10, seed=3)) + random(10, seed=4)
        tf.nn.softmax(y, name="out")
        tf.identity(y, name="logits")
    graph.replace(graph["hidden"], graph["hidden"].with_attrs(_mark=1))
    graph.versions.producer, graph.versions.min_consumer = 1987, 12
    function = FunctionDef()
    function.signature.name = "kept"
    graph.library.function.append(function)
    return b"".join(graph.serialized())


def read(content: bytes) -> Graph:
    from deploykit.transforms.ir.protos import GraphDef

    return Graph.from_graph_def(GraphDef.FromString(content), ["x", "switch"], ["out", "logits"])


@pytest.mark.parametrize("name", pipeline.names())
def test_promises(name, content, tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("")
    given = read(content)
    ranges = tmp_path / "ranges.json"
    ranges.write_text(ranges_of(given, [{"x": random(2, 8, 8, 3, low=0.0)}]).text())
    parameters = PARAMETERS.get(name, "").format(log=log, ranges=ranges)
    text = f"{name}({parameters})".replace("()", "")
    if name == "freeze_requantization_ranges":
        pytest.skip("it needs a log of the graph's own ranges, as its own tests have")
    after = transform(given, text)
    written = b"".join(after.serialized())
    assert b"".join(given.serialized()) == content, "it changed the graph that it was given"
    assert b"".join(transform(read(content), text).serialized()) == written, "not deterministic"
    assert set(after.outputs) == {"out", "logits"}
    assert set(after.inputs) >= {"x"}
    assert after.versions.min_consumer == 12
    assert 0 < after.versions.producer <= 1987
    kept = [f.signature.name for f in after.library.function]
    assert kept == ([] if name == "remove_unused_functions" else ["kept"])
    assert ops(after)
    if name not in NOT_IDEMPOTENT:
        again = transform(read_back(written, after), text)
        assert b"".join(again.serialized()) == written, "a second run changes something"


def read_back(content: bytes, like: Graph) -> Graph:
    from deploykit.transforms.ir.protos import GraphDef

    return Graph.from_graph_def(GraphDef.FromString(content), like.inputs, like.outputs)
