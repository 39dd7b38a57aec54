"""What `deploykit transform` says of a graph that still decodes, and of slow 8-bit ops."""

import pytest

from deploykit.importers.graph_files import load_graph
from tests import pairwise
from tests.support import because, built, random, shows, tf


def decode(op, contents):
    raw = tf.raw_ops
    if op in ("DecodeJpeg", "DecodePng", "DecodeBmp"):
        return getattr(raw, op)(contents=contents, channels=3, name="decoder")
    if op == "DecodeImage":
        decoded = raw.DecodeImage(contents=contents, channels=3, expand_animations=False,
                                  name="decoder")  # fmt: skip
        decoded.set_shape([None, None, 3])
        return decoded
    if op == "ParseSingleExample":
        (flat,) = raw.ParseSingleExample(
            serialized=contents, dense_defaults=[tf.zeros([0])], num_sparse=0, sparse_keys=[],
            dense_keys=["pixels"], sparse_types=[], dense_shapes=[[48]], name="decoder",
        ).dense_values  # fmt: skip
    else:
        flat = tf.cast(raw.DecodeRaw(bytes=contents, out_type=tf.uint8, name="decoder"),
                       tf.float32)  # fmt: skip
    return tf.reshape(flat, [4, 4, 3])


@built()
def behind(op):
    """Return a layer behind a decoder; DecodeJpeg stands behind a file that is read."""
    contents = tf.compat.v1.placeholder(tf.string, [], name="contents")
    if op is None:
        image = tf.compat.v1.placeholder(tf.float32, [None, None, 3], name="pixels")
    else:
        image = tf.cast(decode(op, contents), tf.float32)
    pixels = tf.image.resize(image[None] / 255.0, [4, 4])
    pixels = tf.identity(tf.reshape(pixels, [1, 4, 4, 3]), name="resized")
    layer = tf.nn.conv2d(pixels, random(3, 3, 3, 2), 1, "SAME")
    tf.nn.relu(layer, name="out")


@pytest.fixture
def transformed(deploykit, tmp_path):
    """Transform a graph, and return what was said of it, and what became of it."""

    def run(graph, transforms, *more):
        graph.outputs = ("out",)
        path, out = tmp_path / "graph.pb", tmp_path / "out.pb"
        path.write_bytes(b"".join(graph.serialized()))
        files = (f"--in_graph={path}", f"--out_graph={out}", "--force")
        found = deploykit("transform", *files, f"--transforms={transforms}", "--outputs=out", *more)
        assert found.status == 0, found.stderr
        said = [line for line in found.stderr.splitlines(True) if line.startswith("deploykit:")]
        return "".join(said), load_graph(out)  # TensorFlow's own lines, as it starts, are left out

    return run


@pytest.mark.parametrize(
    "op",
    pairwise.drawn(
        "a_decoder_that_stays_is_named_and_what_is_said_of_it_holds",
        ["DecodeJpeg", "DecodePng", "DecodeBmp", "DecodeImage", "DecodeRaw", "ParseSingleExample"],
        1,
        quick=2,
    ),
)
@pytest.mark.parametrize("transforms", ["strip_unused_nodes", "fold_constants"])
def test_a_decoder_that_stays_is_named_and_what_is_said_of_it_holds(transformed, op, transforms):
    said, graph = transformed(behind(op), transforms)
    assert shows(said, "decoder-kept", node="decoder", op=op, tensor="resized")
    assert "decoder" in graph
    assert transformed(behind(op), transforms, "--json")[0] == ""
    said, graph = transformed(behind(op), "strip_unused_nodes", "--inputs=resized")
    assert said == ""
    assert "decoder" not in graph


@pytest.mark.sampled
def test_nothing_is_said_where_nothing_decodes(transformed):
    assert transformed(behind(None), "strip_unused_nodes")[0] == ""
    # of a decoder that nothing needs, nothing is left
    graph = behind("DecodeJpeg")
    fed = behind(None)["pixels"].with_name("fed").with_attrs(shape=(-1, -1, -1, 3))
    graph.redirect({"resized": graph.add(fed).name})
    assert transformed(graph, "strip_unused_nodes")[0] == ""
    # nor where the user names what is decoded
    said, graph = transformed(behind("DecodeJpeg"), "strip_unused_nodes", "--inputs=contents")
    assert said == ""
    assert "decoder" in graph


@pytest.mark.sampled
def test_quantize_nodes_is_said_to_be_slow(transformed, deploykit, tmp_path):
    steps = "quantize_weights(minimum_size=8) quantize_nodes strip_unused_nodes"
    said, _ = transformed(behind(None), steps)
    assert said.count("\n") == 1
    assert because("quantize-nodes-slow") in said
    assert transformed(behind(None), steps, "--json")[0] == ""
    for mode, slow in (("nodes", True), ("weights", False)):
        found = deploykit("quantize", tmp_path / "graph.pb", f"--mode={mode}", "--force",
                          "--minimum-size=8", "--min-sqnr=-100")  # fmt: skip
        assert found.status == 0, found.stderr
        assert shows(found.stderr, "quantize-nodes-slow") == slow
