"""Detectors of TensorFlow 1 are verified without data, by what their choices read."""

import re

import numpy as np
import pytest

from deploykit.transforms.ir.graph import Graph
from deploykit.verification.tolerance import choices
from deploykit.verification.verify import verify
from tests import pairwise
from tests.deploykit.verification.detectors import DETECTORS, NAMES, detector, layers
from tests.support import building, random, shows, tf, transform

OPTIMIZED = (
    "inline_functions strip_unused_nodes remove_nodes(op=Identity) fold_constants "
    "fold_batch_norms merge_duplicate_nodes sort_by_execution_order"
)
ENDS = ("--inputs", "image_tensor", "--outputs", ",".join(NAMES))
TRANSFORM = ("transform", *ENDS, "--transforms", OPTIMIZED, "--verify")
COMMANDS = {
    "optimize": ("optimize", "{0}"),
    "transform": (*TRANSFORM, "--in_graph", "{0}", "--out_graph", "{0}.out.pb"),
    "quantize": ("quantize", "{0}", "--minimum-size", "16"),
}
WRONG = pairwise.drawn(
    __name__, [(kind, layer) for kind in DETECTORS for layer in layers(kind)], 12, quick=4
)


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    "kind", pairwise.drawn("a_detector_of_one_class_is_verified", list(DETECTORS), 2, quick=2)
)
def test_a_detector_of_one_class_is_verified(kind):
    """The class of its detections is constant, and what a choice reads is not."""
    graph = detector(kind, 1)
    found = verify(graph, transform(graph, OPTIMIZED))
    assert found.passed, found.reason
    assert len(choices(graph)) == 1 + kind.startswith("two stages")
    assert len(found.before_choices) >= 2 * len(choices(graph))
    values = {d.output: d.distinct for d in found.differences}
    assert min(map(values.__getitem__, found.before_choices)) >= 2 or kind == "centers"
    assert values["detection_classes"] <= 2  # that of the class, and of a padded detection


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("kind", "layer"), WRONG)
def test_a_wrong_weight_is_found(kind, layer):
    other = transform(detector(kind, 1, wrong=layer), OPTIMIZED)
    assert verify(detector(kind, 1), other).differs


def head_of(kind: str, weight: float, other: float = 1.0) -> Graph:
    """Return a head whose detections have one class; what is in front of the choice varies less.

    none: nothing is chosen; dead: the scores do not depend on the image.
    """
    with building(["x"], ["detection_classes"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [1, 16, 8], "x")
        y = tf.matmul(x[0], random(8, 5) * np.float32(weight))
        y = tf.nn.relu(y - 99) if kind == "dead" else y
        limit = 9.0 if kind == "none" else -9.0
        best = tf.image.non_max_suppression(y[:, :4], y[:, 4], 5, 0.5, limit)
        chosen = tf.zeros_like(tf.gather(y[:, 4], best))
        tf.add(chosen * np.float32(other), 1.0, name="detection_classes")
    return graph


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("kind", ["some", "none", "dead"])
def test_a_constant_class_is_covered_only_by_values_that_varied(kind):
    same = verify(head_of(kind, 1), head_of(kind, 1))
    assert same.verified == same.passed == (kind != "dead"), same.reason
    assert not verify(head_of(kind, 1), head_of(kind, 2)).passed
    behind = verify(head_of(kind, 1), head_of(kind, 1, other=2))  # a factor of zero
    assert not behind.verified


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
def test_a_constant_class_is_covered_by_outputs_of_the_same_loop():
    """Nothing inside the loop can be fetched, but its scores vary and depend on all weights."""

    def in_loop(weight: float, moved: float = 1.0) -> Graph:
        tf.compat.v1.disable_control_flow_v2()
        with building(["x"], NAMES[1:3]) as graph:
            x = tf.compat.v1.placeholder(tf.float32, [None, 16, 8], "x")

            def one(rows):
                y = tf.matmul(rows * moved, random(8, 5) * np.float32(weight / moved))
                best = tf.image.non_max_suppression(y[:, :4], y[:, 4], 5)
                scores = tf.gather(y[:, 4], best)
                return tf.reduce_max(scores), tf.reduce_max(tf.zeros_like(scores))

            found = tf.map_fn(one, 2 * x, (tf.float32, tf.float32))
            for name, value in zip(NAMES[1:3], found, strict=True):
                tf.identity(value, name=name)
        graph.prune()
        return graph

    assert verify(in_loop(1), in_loop(1, moved=2)).passed
    assert verify(in_loop(1), in_loop(2)).differs


def two_branches(scores: str, classes: str, moved: float = 1.0) -> Graph:
    """Return a loop with a varying score and a class of zero, each chosen by its own weights.

    `scores` and `classes` list these weights by number, such as "12" for the sum of two products.
    """
    tf.compat.v1.disable_control_flow_v2()
    with building(["x"], NAMES[1:3]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 16, 8], "x")

        def one(rows):
            products = {
                number: tf.matmul(rows * moved, random(8, 5, seed=int(number)) / moved)
                for number in sorted({*scores, *classes})
            }

            def best(numbers):
                y = sum(products[number] for number in numbers)
                return tf.gather(y[:, 4], tf.image.non_max_suppression(y[:, :4], y[:, 4], 5))

            return tf.reduce_max(best(scores)), tf.reduce_max(tf.zeros_like(best(classes)))

        found = tf.map_fn(one, 2 * x, (tf.float32, tf.float32))
        for name, value in zip(NAMES[1:3], found, strict=True):
            tf.identity(value, name=name)
    graph.prune()
    return graph


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("reference", "result"),
    [
        (("1", "1"), ("1", "2")),  # weights that the scores do not read
        (("12", "1"), ("12", "2")),  # weights that the scores read, in another place
        (("12", "2"), ("12", "1")),
        (("1", "2"), ("1", "3")),
    ],
)
def test_a_constant_class_is_not_covered_by_scores_of_other_weights(reference, result):
    """Both choose without noise, so that only the weights of the class branch differ."""
    found = verify(two_branches(*reference), two_branches(*result))
    assert not found.verified
    assert shows(found.reason, "constant-not-compared")
    same = verify(two_branches(*reference), two_branches(*reference, moved=2))
    assert same.passed == (set(reference[1]) <= set(reference[0])), same.reason


@pytest.mark.sampled
@pytest.mark.parametrize("kind", pairwise.drawn("commands", list(DETECTORS), 4))
@pytest.mark.parametrize(
    ("command", "classes"), [("optimize", 1), ("optimize", 3), ("transform", 1), ("quantize", 1)]
)
def test_commands_need_no_data_for_a_detector(deploykit, tmp_path, command, kind, classes):
    path = tmp_path / "detector.pb"
    path.write_bytes(b"".join(detector(kind, classes).serialized()))
    found = deploykit(*(part.format(path) for part in COMMANDS[command]))
    assert found.status == 0, found.stderr
    assert re.search("compared before non-maximum suppression.*: .*, ", found.stdout), found.stdout


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("kind", "layer"), WRONG)
def test_a_wrong_weight_is_more_than_noise(kind, layer):
    assert verify(detector(kind, 1), detector(kind, 1, wrong=layer), min_sqnr=30).differs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "layer"),
    pairwise.drawn("wrong", [("two stages", name) for name in layers("two stages")], 2),
)
def test_verify_ends_with_an_error_at_a_wrong_weight(deploykit, tmp_path, kind, layer):
    for name, graph in (("a", detector(kind, 1)), ("b", detector(kind, 1, wrong=layer))):
        (tmp_path / f"{name}.pb").write_bytes(b"".join(graph.serialized()))
    found = deploykit("verify", tmp_path / "a.pb", tmp_path / "b.pb")
    assert (found.status, found.error.code) == (5, "outputs-differ")
