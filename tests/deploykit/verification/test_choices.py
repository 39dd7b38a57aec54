"""What lies behind a choice, such as the highest scores, is judged in front of it."""

import numpy as np
import pytest

from deploykit.verification.tolerance import choices
from deploykit.verification.verify import verify
from tests.support import building, built, random, run, tf

pytestmark = pytest.mark.usefixtures("in_process")


def suppressed(tf, boxes, scores):
    chosen = tf.image.non_max_suppression(boxes, scores, 8, iou_threshold=0.5)
    return tf.gather(boxes, chosen), tf.gather(scores, chosen)


def highest(tf, boxes, scores):
    found = tf.math.top_k(scores, 8)
    return tf.gather(boxes, found.indices), found.values


def over_a_threshold(tf, boxes, scores):
    chosen = tf.where(scores > 0.5)[:, 0]
    return tf.gather(boxes, chosen), tf.gather(scores, chosen)


def looped(tf, boxes, scores):
    """As TensorFlow 1's detectors do it: photo by photo, in a loop."""
    one = tf.map_fn(
        lambda each: tf.image.non_max_suppression(boxes, each, 8), scores[None], tf.int32
    )[0]
    return tf.gather(boxes, one), tf.gather(scores, one)


KINDS = [suppressed, highest, over_a_threshold, looped]


@built(["x"], ["boxes", "scores"])
def detector(kind, noise: float = 0.0, wrong: bool = False, sign: float = 1.0):
    """Return a net that finds boxes, most of them twice: their scores are next to equal.

    `noise` is that of the weights; `wrong` takes what was chosen in another order.
    """
    tf.compat.v1.disable_control_flow_v2()
    x = tf.compat.v1.placeholder(tf.float32, [1, 16], name="x")
    weights = np.tile(sign * random(16, 20), 2) + 1e-4 * random(16, 40, seed=2)
    weights[:, ::5] *= 1e-3  # scores of next to 0.5
    weights += noise * random(16, 40, seed=1)
    scores = tf.nn.sigmoid(tf.matmul(x, weights))[0]
    corners = tf.reshape(tf.matmul(x, random(16, 160)), [40, 4])
    boxes, chosen = kind(tf, corners, scores)
    boxes = tf.reverse(boxes, [0]) if wrong else boxes
    tf.identity(boxes, name="boxes")
    tf.identity(chosen, name="scores")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_noise_that_turns_the_order_of_junk_is_no_fault(kind):
    data = {"x": random(1, 16)}
    reference, noisy = detector(kind), detector(kind, 1e-2)
    found = verify(reference, noisy, data=data, min_sqnr=24)
    assert found.passed, found
    assert found.sqnr_db < 100
    before, after = (run(graph, data)[0] for graph in (reference, noisy))
    assert before.shape != after.shape or not np.allclose(before, after)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_graph_is_seen_before_and_behind_the_choice(kind):
    data = {"x": random(1, 16)}
    for bar in ({"min_sqnr": 24}, {}):
        behind = verify(detector(kind), detector(kind, wrong=True), data=data, **bar)
        assert behind.differs
        assert "boxes" in behind.reason
        before = verify(detector(kind), detector(kind, sign=-1), data=data, **bar)
        assert before.differs
    assert not verify(detector(kind), detector(kind, 1e-2), data=data).passed
    assert verify(detector(kind), detector(kind), data=data).passed


@pytest.mark.parametrize("kind", KINDS)
def test_the_place_is_in_front_of_the_choice(kind):
    """Scores are compared there, and no output, index or handle."""
    graph = detector(kind)
    [stage] = choices(graph)
    assert stage.nodes.issuperset({"boxes", "scores"})
    scores = graph.ancestors(t.partition(":")[0] for t in stage.tensors)
    ops = {graph[name].op for name in scores}
    assert "Sigmoid" in ops
    assert not any("NonMax" in op or op in ("TopKV2", "Where", "TensorArrayV3") for op in ops)


def test_a_net_without_a_choice_is_judged_at_its_outputs():
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 16], name="x")
        y = tf.matmul(x, random(16, 8))
        y = y * tf.cast(y > 0, tf.float32)  # an activation made of a threshold
        tf.matmul(y, random(8, 4), name="out")
    assert choices(graph) == ()


def test_a_result_that_chooses_otherwise_is_judged_at_its_outputs():
    found = verify(detector(highest), detector(suppressed), min_sqnr=24)
    assert {d.output for d in found.differences} == {"boxes", "scores"}
