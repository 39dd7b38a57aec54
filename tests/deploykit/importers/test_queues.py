"""Graphs of TensorFlow 1 that queues or iterators feed: what is fed in their place, and told."""

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import GraphError, RefusedError
from deploykit.verification.synthetic.sample_inputs import made_up_feeds
from tests.deploykit.conftest import command_line
from tests.support import Containing, because, build, building, raises, random, run, shows

pytestmark = pytest.mark.usefixtures("in_process")

X = random(4, 8)


def queued(switch=False, beside=False):
    """Build labels and features of a queue -> a layer, and perhaps another placeholder."""
    import tensorflow.compat.v1 as tf

    queue = tf.FIFOQueue(9, [tf.string, tf.float32], [[], [8]], name="queue")
    _, x = queue.dequeue_many(4, name="taken")
    if switch:
        x = tf.placeholder_with_default(x, [None, 8], name="x")
    rate = tf.placeholder(tf.float32, [], name="rate") if beside else 1.0
    tf.nn.softmax(tf.matmul(x, random(8, 3)) * rate, name="scores")


def written(path, **how) -> str:
    graph = build(lambda: queued(**how))
    path.write_bytes(b"".join(graph.serialized()))
    return str(path)


def trained(folder, feed):
    """Write the checkpoint and the GraphDef of a net in training; return the prefix."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default() as graph:
        data = [tf.constant(random(40, 8)), tf.constant(np.arange(40) % 3)]
        if feed == "dataset":
            dataset = tf.data.Dataset.from_tensor_slices(tuple(data)).repeat().batch(4)
            x, labels = tf.data.make_one_shot_iterator(dataset).get_next()
        else:
            parts = tf.train.slice_input_producer(data)
            x, labels = tf.train.shuffle_batch(parts, 4, 32, 8, name="batch")
        x = tf.placeholder(tf.float32, [None, 8], name="x") if feed == "placeholder" else x
        weights = tf.get_variable("weights", [8, 3], use_resource=False)
        logits = tf.matmul(x, weights)
        tf.nn.softmax(logits, name="scores")
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        tf.train.AdamOptimizer().minimize(loss)
        tf.summary.scalar("loss", loss)
        saver = tf.train.Saver()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            saver.save(session, str(folder / "model.ckpt"), write_meta_graph=False)
    (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return str(folder / "model.ckpt")


def test_a_switch_that_takes_from_a_queue_is_an_input(tmp_path):
    path = written(tmp_path / "net.pb", switch=True)
    assert deploykit.load_graph(path).inputs == ("x",)
    frozen = deploykit.freeze(path)
    assert (frozen.inputs, frozen.outputs) == (("x",), ("scores",))
    assert run(frozen, {"x": X})[0].shape == (4, 3)


@pytest.mark.sampled
def test_what_to_feed_counts_only_what_the_outputs_need(tmp_path):
    path = written(tmp_path / "net.pb", beside=True)
    with raises(
        RefusedError,
        "acts-beyond",
        cut=Containing("--inputs rate,taken:1"),
        op="QueueDequeueManyV2",
        what=Containing(because("effect-waits")),
    ):
        deploykit.freeze(path, outputs=["scores"])
    with raises(GraphError, "state-not-frozen", name="queue", advice="--inputs rate,taken:1"):
        deploykit.freeze(path, outputs=["scores"], allow_ops=["QueueDequeueManyV2"])
    found = deploykit.freeze(path, inputs=["rate", "taken:1"], outputs=["scores"])
    assert found.inputs == ("rate", "taken:1")


def test_a_graph_that_waits_is_rewritten_and_not_run(tmp_path):
    path, out = written(tmp_path / "net.pb"), tmp_path / "out.pb"
    arguments = ("transform", f"--in_graph={path}", f"--out_graph={out}", "--outputs=scores",
                 "--transforms=strip_unused_nodes")  # fmt: skip
    refused = command_line(*arguments, "--verify")
    assert (refused.status, out.exists()) == (3, False)
    assert shows(refused.stderr, "acts-beyond")
    done = command_line(*arguments)
    assert done.status == 0, done.stderr
    assert done.stderr == Containing(
        f"{path}: ", "'taken': QueueDequeueManyV2", because("effect-waits")
    )
    assert "QueueDequeueManyV2" in {node.op for node in deploykit.load_graph(out)}


@pytest.mark.parametrize(
    ("taken", "shapes"),
    [("QueueDequeueManyV2", [(4,), (4, 8)]), ("QueueDequeueUpToV2", [(4,), (4, 8)]),
     ("QueueDequeueV2", [(), (8,)]), ("IteratorGetNext", [(4,), (4, 8)])],
)  # fmt: skip
def test_elements_have_the_shapes_that_a_queue_or_an_iterator_declares(taken, shapes):
    with building(["taken", "taken:1"], ["y"]) as graph:
        import tensorflow.compat.v1 as tf

        types, sizes = [tf.string, tf.float32], [[], [8]]
        how = {"component_types": types, "name": "taken"}
        if taken == "IteratorGetNext":
            dataset = tf.data.Dataset.from_tensors((["a"] * 4, X))
            texts, x = tf.data.make_one_shot_iterator(dataset).get_next("taken")
        else:
            queue = tf.raw_ops.FIFOQueueV2(component_types=types, shapes=sizes)
            count = {} if taken == "QueueDequeueV2" else {"n": 4}
            texts, x = getattr(tf.raw_ops, taken)(handle=queue, **count, **how)
        codes = tf.one_hot(tf.strings.to_hash_bucket_fast(texts, 5), 5)
        tf.reduce_sum(tf.concat([codes, x], -1), name="y")
    feeds, reason = made_up_feeds(graph, (-1.0, 1.0))
    assert not reason
    assert [feeds[0][tensor].shape for tensor in graph.inputs] == shapes
    run(graph, feeds[0])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("feed", "named"),
    [("queue", "batch"), ("dataset", "IteratorGetNext"), ("placeholder", "x")],
)
def test_a_net_in_training_is_frozen_with_its_checkpoint(feed, named, tmp_path):
    prefix, graph = trained(tmp_path, feed), str(tmp_path / "graph.pb")
    if feed == "queue":
        with raises(GraphError, "state-not-frozen", advice="--inputs batch"):
            deploykit.freeze(prefix, graph=graph)
    given = [] if feed == "placeholder" else [named]
    frozen = deploykit.freeze(prefix, graph=graph, inputs=given)
    assert (frozen.inputs, frozen.outputs) == ((named,), ("scores",))
    assert run(frozen, {named: X})[0].shape == (4, 3)


@pytest.mark.sampled
def test_a_graph_without_its_checkpoint_lacks_the_values_of_variables(tmp_path):
    trained(tmp_path, "placeholder")
    with raises(GraphError, "not-initialised", node="weights", what="variable"):
        deploykit.freeze(str(tmp_path / "graph.pb"), outputs=["scores"])


@pytest.mark.parametrize(("feed", "waits"), [("queue", ["batch"]), ("placeholder", [])])
def test_check_lists_the_queues_and_savers_that_outputs_need(feed, waits, tmp_path):
    trained(tmp_path, feed)
    found = deploykit.check(str(tmp_path / "graph.pb"))
    assert [node for use in found.graphs[0].effects for node in use.nodes] == waits
    if not waits:
        assert found.error is None
        return
    with raises(RefusedError, "acts-beyond-graph", node="batch"):
        raise found.error


def test_the_same_inputs_name_a_graph_before_and_after_the_cut(tmp_path):
    with building() as net:
        import tensorflow.compat.v1 as tf

        queue = tf.FIFOQueue(9, [tf.float32, tf.float32], [[8], [8]])
        x, gain = queue.dequeue_many(4, name="taken")
        tf.subtract(x, gain, name="y")
    graph, path, cut = net, tmp_path / "net.pb", tmp_path / "cut.pb"
    path.write_bytes(b"".join(graph.serialized()))
    named = {"inputs": ["taken:0", "taken:1"], "outputs": ["y"]}
    deploykit.optimize(deploykit.ModelSource(path, **named), output=cut)
    first, second = (deploykit.open_model(each, **named) for each in (path, cut))
    assert (first.graph.inputs, second.graph.inputs) == (
        ("taken", "taken:1"), ("taken", "taken_1"),
    )  # fmt: skip
    assert not deploykit.verify(first, second).differs
