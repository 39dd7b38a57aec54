"""Where nodes run, with two emulated devices: what was asked for, what it got, what is copied."""

import math
import subprocess
import sys

import numpy as np
import pytest

from deploykit.api.placement import placement
from deploykit.inspection import placement as module
from deploykit.inspection.step_stats import _in_order as in_order
from deploykit.inspection.step_stats import look, satisfies
from deploykit.rendering.formatters.models import lines
from deploykit.rendering.tables import drawn
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from tests.deploykit.conftest import refusals
from tests.support import (
    Containing,
    assert_golden,
    because,
    building,
    built,
    random,
    showing,
    shows,
    tf,
)

CPU0, CPU1 = (f"/job:localhost/replica:0/task:0/device:CPU:{n}" for n in (0, 1))


@pytest.fixture
def here(monkeypatch):
    """Run TensorFlow in this process: one start for all. Others run the child."""

    class Here:
        def __init__(self, function, *arguments, forced):
            assert function == "deploykit.inspection.step_stats:look"
            self.arguments = arguments

        def created(self):
            return look(*self.arguments)

        def close(self):
            pass

    monkeypatch.setattr(module, "Worker", Here)


@built(["x"], ["out"])
def two_devices(second: str = "/device:CPU:1", third: str = "/device:GPU:0"):
    """Return a layer on one device, an Exp on another, and what is left open."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
    with tf.device(second):
        y = tf.matmul(x, random(8, 4), name="mm")
        y = tf.nn.relu(tf.nn.bias_add(y, random(4), name="bias"), name="relu")
    with tf.device(third):
        y = tf.exp(y, name="exp")
    tf.identity(y * (tf.constant(2.0) * tf.constant(3.0)), name="out")
    tf.identity(y, name="unused")


def test_copies_with_their_bytes(here):
    found = placement(two_devices(), batch=5, cpu_devices=2)
    assert found.devices == (CPU0, CPU1)
    copies = {copy.tensor: copy for copy in found.copies}
    assert {name: (c.source, c.target, c.bytes, c.shape) for name, c in copies.items()} == {
        "x": (CPU0, CPU1, 5 * 8 * 4, (5, 8)),
        "bias": (CPU1, CPU0, 5 * 4 * 4, (5, 4)),  # it took in the Relu behind it
    }
    assert {copy.times for copy in found.copies} == {1}
    assert found.copied_bytes == 5 * 8 * 4 + 5 * 4 * 4


def test_another_placement_has_other_copies(here):
    """What would be missed if devices or bytes were read off the model instead of the run."""
    assert placement(two_devices("", ""), batch=5, cpu_devices=2).copies == ()
    found = placement(two_devices("", "/device:CPU:1"), batch=5, cpu_devices=2)
    assert [(c.tensor, c.source, c.target, c.bytes) for c in found.copies if c.source == CPU0] == [
        ("bias", CPU0, CPU1, 80)
    ]
    assert [(c.source, c.target, c.bytes) for c in found.copies if c.source == CPU1] == [
        (CPU1, CPU0, 80)
    ]
    assert placement(two_devices(), batch=5, cpu_devices=1).copies == ()  # there is no second one


def test_a_fallback_is_marked_also_where_the_node_was_fused(here):
    found = placement(two_devices(), cpu_devices=2)
    assert "exp" not in {node.name for node in found.executed}
    (node,) = found.fallbacks
    assert (node.name, node.op, node.asked, node.got) == ("exp", "Exp", "/device:GPU:0", CPU0)
    assert found.why(node) == because("device-missing")
    text = "\n".join(drawn(lines(found)))
    back = {"requested": "/device:GPU:0", "got": "CPU:0", "reason": because("device-missing")}
    assert because("fell-back", nodes="1 node", names="exp (Exp)", **back) in text
    assert placement(two_devices(third="/device:CPU:1"), cpu_devices=2).fallbacks == ()
    names = {node.name for node in placement(two_devices(), cpu_devices=1).fallbacks}
    assert {"mm", "bias", "relu", "exp"} <= names  # neither has its device now


def test_a_fallback_is_marked_in_the_table(here):
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 3], name="x")
        with tf.device("/gpu:0"):
            tf.cumsum(x, name="out")
    found = placement(graph)
    (row,) = (line for line in drawn(lines(found)) if line.startswith("out "))
    assert row.split() == ["out", "Cumsum", "/device:GPU:0", "CPU:0", "<-", "fell", "back"]


def test_what_is_fed_is_no_fallback(here):
    graph = two_devices()
    x = graph["x"]
    graph.replace(x, type(x)(x.name, x.op, x.inputs, x.attrs, "/device:GPU:0"))
    assert {node.name for node in placement(graph, cpu_devices=2).fallbacks} == {"exp"}


def test_nodes_that_do_not_run(here):
    found = placement(two_devices(), cpu_devices=2)
    executed = {node.name: node for node in found.executed}
    assert {"mm", "relu", "exp", "Const", "Const_1"} <= set(found.folded)
    assert "mul" in found.folded  # it runs as a constant
    assert executed["mul"].op == "Const"
    assert not {"x", "bias", "out", "unused"} & set(found.folded)
    assert found.model_nodes == len(two_devices()) - 1
    assert executed["bias"].asked == "/device:CPU:1"
    assert executed["bias"].op != "BiasAdd"
    made = [node for node in found.executed if node.asked is None]
    assert made
    assert not any(node.fell_back for node in made)


def test_nodes_come_in_execution_order(here):
    found = placement(two_devices(), cpu_devices=2)
    order = [node.name for node in found.placed]
    chain = ["x", "mm", "bias", "relu", "exp", "mul_1", "out"]  # over three borders of devices
    assert [name for name in order if name in chain] == chain
    assert sorted(order) == sorted(set(order))


@pytest.mark.sampled
def test_the_order_of_a_long_chain():
    graph = GraphDef()
    for n in reversed(range(50_000)):
        graph.node.add(name=f"n{n}", op="Relu", input=[f"n{n - 1}"] if n else [])
    order = in_order([graph])
    assert [node.name for node in order] == [f"n{n}" for n in range(50_000)]


def log_of_tensorflow(graph: Graph, path) -> set[str]:
    """Return what log_device_placement prints on stdout, from C code."""
    path.write_bytes(b"".join(graph.serialized()))
    code = """
import sys
import numpy as np, tensorflow as tf
v1 = tf.compat.v1
with tf.Graph().as_default() as graph:
    tf.import_graph_def(v1.GraphDef.FromString(open(sys.argv[1], "rb").read()), name="")
config = v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
config.log_device_placement = True
config.graph_options.rewrite_options.disable_meta_optimizer = True
v1.Session(graph=graph, config=config).run("out:0", {"x:0": np.ones((1, 8), np.float32)})
"""
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines())


@pytest.mark.slow
def test_the_log_is_tensorflows_own(deploykit, tmp_path):
    graph = two_devices()
    theirs = log_of_tensorflow(graph, tmp_path / "net.pb")
    ours = deploykit(
        "placement", tmp_path / "net.pb", "--outputs=out", "--cpu-devices=2", "--log"
    ).stdout.splitlines()
    assert len(ours) == len(set(ours)) == len(graph) - 1

    def without(lines):
        # what nobody needs is not run, and what is fed comes from the host
        return {line for line in lines if not line.startswith(("unused: ", "x: "))}

    assert without(ours) == without(theirs)
    assert len(without(ours)) == len(graph) - 2
    assert f"x: (Placeholder): {CPU0}" in ours
    assert f"exp: (Exp): {CPU0}" in ours
    assert f"mm: (MatMul): {CPU1}" in ours


def test_a_shape_that_only_the_run_tells(here):
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.int32, [None], name="x")
        y = tf.unique(x, name="unique")[0]
        with tf.device("/device:CPU:1"):
            tf.negative(y, name="out")
    data = {"x": np.array([7, 7, 1, 7, 3, 1], np.int32)}
    found = placement(graph, batch=6, data=data, cpu_devices=2)
    (sent, back) = sorted(found.copies, key=lambda copy: copy.source)
    assert (sent.tensor, sent.shape, sent.bytes, sent.type) == ("unique", (3,), 12, "int32")
    assert back.bytes == 12


def test_strings_have_no_known_size(here):
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.string, [None], name="x")
        with tf.device("/device:CPU:1"):
            tf.strings.lower(x, name="out")
    data = {"x": np.array(["Some", "words"])}
    found = placement(graph, batch=2, data=data, cpu_devices=2)
    assert [(copy.bytes, copy.shape) for copy in found.copies] == [(None, (2,))] * 2
    text = "\n".join(drawn(lines(found)))
    assert because("copies", count=2, bytes=0, unknown=2) in text
    assert "string [2]" in text
    made_up = placement(graph, batch=2, cpu_devices=2)
    assert [copy.shape for copy in made_up.copies] == [(2,)] * 2


def test_a_copy_in_a_loop_counts_each_time(here):
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 3], name="x")

        def step(i, y):
            with tf.device("/device:CPU:1"):
                y = tf.cumsum(y, name="far")
            return i + 1, tf.cumsum(y, name="near")

        tf.identity(tf.while_loop(lambda i, y: i < 5, step, [0, x])[1], name="out")
    found = placement(graph, cpu_devices=2)
    order = [node.op if node.name != "out" else "out" for node in found.executed]
    assert order.index("Enter") < order.index("Exit") < order.index("out")
    assert "NextIteration" in order
    there = [c for c in found.copies if c.source == CPU0 and c.type == "float32" and c.bytes]
    back = [c for c in found.copies if c.source == CPU1]
    assert [(c.times, c.bytes) for c in there] == [(5, 5 * 24)]
    assert [(c.times, c.bytes) for c in back] == [(5, 5 * 24)]
    assert any("(5 times)" in line for line in drawn(lines(found)))


@pytest.mark.parametrize(("taken", "bytes_"), [(True, 24), (False, 0)])
def test_a_branch_that_is_not_taken_copies_nothing(here, taken, bytes_):
    with building(["x", "flag"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 3], name="x")
        flag = tf.compat.v1.placeholder(tf.bool, [], name="flag")

        def far():
            with tf.device("/device:CPU:1"):
                return tf.cumsum(x, name="far")

        tf.identity(tf.cond(flag, far, lambda: x), name="out")
    data = {"x": random(2, 3), "flag": np.array(taken)}
    found = placement(graph, data=data, cpu_devices=2)
    (back,) = (copy for copy in found.copies if copy.source == CPU1)
    assert (back.bytes, back.times) == (bytes_, int(taken))
    text = "\n".join(drawn(lines(found)))
    assert shows(text, "copy-not-run") == (not taken)


def test_a_graph_without_inputs(here):
    with building([], ["out/RandomUniform"]) as graph, tf.device("/device:CPU:1"):
        tf.random.uniform([3], name="out")
    found = placement(graph, cpu_devices=2)
    assert [(copy.bytes, copy.target) for copy in found.copies] == [(12, CPU0)]


@pytest.mark.parametrize(
    ("device", "asked", "expected"),
    [
        (CPU1, "", True),
        (CPU1, "/device:CPU:1", True),
        (CPU1, "/cpu:1", True),
        (CPU1, "CPU:1", True),
        (CPU1, "/device:CPU:*", True),
        (CPU1, "/device:CPU", True),
        (CPU1, "/job:localhost", True),
        (CPU1, "/job:localhost/replica:0/task:0/device:CPU:1", True),
        (CPU1, "/device:CPU:0", False),
        (CPU1, "/device:CPU:11", False),
        (CPU1, "/gpu:1", False),
        (CPU1, "/device:GPU:1", False),
        (CPU1, "/job:worker/device:CPU:1", False),
        (CPU1, "/job:worker", False),
        (CPU1, "/task:1", False),
        (CPU1, "/device:GPU:*", False),
    ],
)
def test_what_satisfies(device, asked, expected):
    assert satisfies(device, asked) is expected


def written(graph: Graph, tmp_path):
    path = tmp_path / "net.pb"
    path.write_bytes(b"".join(graph.serialized()))
    return path


def test_the_document(deploykit, tmp_path):
    path = written(two_devices(), tmp_path)
    out = tmp_path / "out.json"
    found = deploykit("placement", path, "--outputs=out", "--cpu-devices=2", "--batch=3",
                      "--json", "-o", out)  # fmt: skip
    assert (found.status, found.stderr) == (0, "")
    document = found.document
    assert out.read_text() == found.stdout
    assert document["devices"] == [CPU0, CPU1]
    assert document["copied_bytes"] == 3 * 8 * 4 + 3 * 4 * 4
    assert document["copies_of_unknown_size"] == 0
    assert [fallback["node"] for fallback in document["fallbacks"]] == ["exp"]
    assert sum(document["ops_by_device"][CPU1].values()) == sum(
        node["got"] == CPU1 for node in document["nodes"]
    )
    assert document["nodes_in"] == len(two_devices())
    copy = next(copy for copy in document["copies"] if copy["tensor"] == "x")
    assert copy["bytes"] == math.prod(copy["shape"]) * 4


@built(["x"], ["out"])
def of_a_cluster():
    """A graph whose weights lie on a parameter server, as such training leaves it."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    with tf.device("/job:ps/task:0"):
        weights = tf.constant(np.ones((4, 2), np.float32), name="weights")
    with tf.device("/job:worker/replica:0/task:3/device:GPU:0"):
        tf.matmul(x, weights, name="out")


@pytest.mark.parametrize("options", [(), ("--no-soft-placement",)])
def test_a_graph_of_a_cluster_says_what_takes_its_processes_out(deploykit, tmp_path, options):
    path = written(of_a_cluster(), tmp_path)
    found = deploykit("placement", path, "--outputs=out", *options)
    assert (found.status, found.printed) == (2, "")
    assert "/job:" in found.stderr
    assert shows(
        found.stderr,
        "runtime-failed",
        action="run the graph",
        reason=showing("device-of-cluster"),
        runtime="TensorFlow",
    )
    assert "soft-placement" not in found.stderr
    free = tmp_path / "free.pb"
    arguments = (f"--in_graph={path}", f"--out_graph={free}", "--inputs=x", "--outputs=out")
    assert deploykit("transform", *arguments, "--transforms=remove_device").status == 0
    assert deploykit("placement", free, "--outputs=out").status == 0


def test_no_soft_placement(deploykit, tmp_path):
    path = written(two_devices(), tmp_path)
    arguments = ("placement", path, "--outputs=out", "--cpu-devices=2")
    found = deploykit(*arguments, "--no-soft-placement")
    assert (found.status, found.printed) == (2, "")
    assert found.stderr == Containing("/device:GPU:0 but available")
    assert found.stderr.count("\n") == 1
    path = written(two_devices(third="/device:CPU:0"), tmp_path)
    assert deploykit(*arguments, "--no-soft-placement").status == 0


def test_no_gpu(deploykit, tmp_path):
    if deploykit("doctor", "--json").document["gpu"]["seen"]:
        pytest.skip("there is a GPU")
    path = written(two_devices(), tmp_path)
    found = deploykit("placement", path, "--outputs=out", "--device=gpu")
    assert (found.status, found.printed) == (2, "")
    assert shows(found.stderr, "no-gpu-seen")
    assert found.stderr.count("\n") == 1


WRONG = (
    "--batch=0", "--batch=-1", "--cpu-devices=0", "--cpu-devices=65", "--timeout=0",
    "--memory-limit=0", "-o none/out.json", "--device=tpu", "--log --json", "--shape=x=1,9",
    "--shape=x=1,-8", "--shape=y=1", "--data=none.npz",
)  # fmt: skip


@pytest.mark.golden("usage/placement")
def test_wrong_usage(deploykit, tmp_path):
    command = ("placement", written(two_devices(), tmp_path), "--outputs=out")
    assert_golden(*refusals(deploykit, command, WRONG, tmp_path))


def test_a_model_that_writes_files_is_not_run(deploykit, tmp_path):
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.string, [], name="x")
        with tf.control_dependencies([tf.io.write_file(str(tmp_path / "written"), x)]):
            tf.identity(x, name="out")
    path = written(graph, tmp_path)
    assert deploykit("placement", path).status == 3
    assert not (tmp_path / "written").exists()
