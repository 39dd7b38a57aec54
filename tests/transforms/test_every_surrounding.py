"""Each transform keeps numbers and effects, whatever stands around what it rewrites."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import producer_name
from deploykit.transforms.ir.ops import FEEDABLE_OPS, op_defs
from deploykit.transforms.runtime.differences import compare
from tests import pairwise
from tests.support import assert_golden, call_here, run, transform
from tests.transforms import surroundings
from tests.transforms.examples import Example, examples

EXAMPLES = examples()
NAMES = [f"{number}-{example.text}" for number, example in enumerate(EXAMPLES)]
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
Around = Callable[[Graph], Graph]


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Ask TensorFlow in this process, in which it has been started."""
    from deploykit.transforms import sparsify_gather
    from deploykit.transforms.runtime import constants
    from deploykit.transforms.shapes import static_shapes

    for module in (constants, static_shapes, sparsify_gather):
        monkeypatch.setattr(module, "call", call_here)


def check(example: Example, graph: Graph, text: str, feeds=None, about="") -> Graph | None:
    """Return the graph after its transform, whose values must be the same; None: none had any."""
    try:
        feeds = {**example.fed(graph), **(feeds or {})}
        expected = run(graph, feeds)
    except GraphError:  # what is fetched or fed there ends the run
        return None
    after = transform(graph, text)
    renamed = set(graph.inputs) - set(after.inputs), set(after.inputs) - set(graph.inputs)
    names = dict(zip(*map(sorted, renamed), strict=False))
    kept = {names.get(n, n): v for n, v in feeds.items() if names.get(n, n) in after.inputs}
    assert "different frames" not in outcome(after, kept)  # even if no processor has its layout
    found = compare(expected, run(example.runnable(after), kept))
    worst = max(max(each.max_relative_error, each.rms_relative_error) for each in found)
    assert worst <= example.bar, (about, worst, [each.fault for each in found])
    return after


def outcome(graph: Graph, feeds: dict[str, np.ndarray]) -> str:
    """Return an empty string if the graph runs, or what ends the run."""
    try:
        run(graph, {name: value for name, value in feeds.items() if name in graph.inputs})
    except GraphError as error:
        return "the Assert" if "assertion failed" in str(error) else str(error)
    return ""


def lost_effects(example: Example, text: str, around: Around = lambda graph: graph, **more):
    """Return the control edges on which an Assert that fired no longer does."""
    lost = []
    graph = example.make()
    feeds = example.fed(graph) | more
    for about, inner in surroundings.with_asserts(graph):
        whole = around(inner)
        if outcome(whole, feeds) == "the Assert":  # or the edge cannot be, as from loop to loop
            after = example.runnable(transform(whole, text))
            ended_by = outcome(after, feeds)
            if ended_by != "the Assert":
                lost.append(f"{about}: {ended_by or 'nothing'}")
    return lost


@each_example
def test_changes_the_graph_and_keeps_the_numbers(example, tmp_path):
    graph = example.make()
    text = example.prepared(graph, tmp_path)
    after = check(example, graph, text)
    assert after is not None
    graph.prune()
    assert b"".join(after.serialized()) != b"".join(graph.serialized())


@pytest.mark.parametrize("name", pipeline.names())
def test_the_comparison_sees_a_wrong_constant(name, tmp_path):
    """Also one that the result stores as codes."""
    compared = False
    for example in (each for each in EXAMPLES if each.name == name):
        graph = example.make()
        after = example.runnable(transform(graph, example.prepared(graph, tmp_path)))
        feeds = {name: v for name, v in example.fed(graph).items() if name in after.inputs}
        expected = run(after, feeds)
        live = after.ancestors(producer_name(tensor) for tensor in after.outputs)
        constants = [node for node in after if node.name in live and node.op == "Const"]
        for node in (each for each in constants if is_number(each.value.dtype)):
            compared, wrong = True, after.copy()
            ramp = np.arange(node.value.size).reshape(node.value.shape) % 5 + 1.5
            wrong.replace(node, node.with_value((node.value + ramp).astype(node.value.dtype)))
            found = compare(expected, run(wrong, feeds))
            if max(each.max_relative_error for each in found) > max(example.bar, 1e-3):
                return
    if compared:
        raise AssertionError("no wrong constant was seen")
    pytest.skip("no result has such constants")


def test_the_comparison_sees_another_shape():
    (found,) = compare([np.zeros(2)], [np.zeros(3)])
    assert found.fault
    assert found.max_relative_error == np.inf


def is_number(dtype: np.dtype) -> bool:
    """Say whether constants of a type are numbers that a net computes with, or their codes."""
    return dtype.kind == "f" or dtype in (np.int8, np.uint8)


GOLDEN = {f"{each.name}/{each.golden}": each for each in EXAMPLES if each.golden}


@pytest.mark.golden("{name}")
@pytest.mark.parametrize(("name", "example"), GOLDEN.items(), ids=GOLDEN)
def test_golden(name, example, tmp_path):
    graph = example.make()
    assert_golden(graph, transform(graph, example.prepared(graph, tmp_path)))


@each_example
def test_derived_attributes_hold(example, tmp_path):
    """Frozen TF2 graphs carry `_output_shapes`, which TensorFlow's importer compares."""
    graph = surroundings.with_output_shapes(example.make())
    after = transform(graph, example.prepared(graph, tmp_path))
    surroundings.imported(example.runnable(after))
    for node in after:
        needed = {a.name for a in op_defs()[node.op].attr if not a.HasField("default_value")}
        assert needed <= node.attrs.keys(), node


AROUND = {
    each.__name__: each
    for each in (
        surroundings.with_feeds,
        surroundings.with_shared_constants,
        surroundings.with_fetches,
        surroundings.with_devices,
    )
}
WRAPS = {
    "in a loop": (surroundings.in_a_loop, {}),
    "in a branch": (surroundings.in_a_branch, {"branch/taken": np.array(True)}),
    "in a branch that is not taken": (
        surroundings.in_a_branch,
        {"branch/taken": np.array(False)},
    ),
}
NESTED = [number for number, each in enumerate(EXAMPLES) if not each.fed_inside]
EVERY = [
    *itertools.product(["effects"], [""], range(len(EXAMPLES))),
    *itertools.product(["used elsewhere"], AROUND, range(len(EXAMPLES))),
    *itertools.product(["nested"], WRAPS, NESTED),
    *itertools.product(["nested effects"], WRAPS, NESTED),
]
"""What is tested, the surrounding, and the number of the example."""
ALWAYS_SLOW = ("with_fetches", "with_devices")


def first_of_each(numbers) -> dict[str, int]:
    """Return the first example of each transform, by its name."""
    return {EXAMPLES[number].name: number for number in reversed(numbers)}


ONE_EACH = first_of_each(range(len(EXAMPLES)))


def quick() -> list[tuple[str, str, int]]:
    """Return an example of each transform in a loop or a branch, of some in other surroundings."""
    firsts = sorted(ONE_EACH.values())
    found = [("effects", "", number) for number in firsts[::8]]
    for tested, arounds, numbers in (
        ("used elsewhere", AROUND, firsts[::3]),
        ("nested", WRAPS, sorted(first_of_each(NESTED).values())),
    ):
        turns = itertools.cycle(around for around in arounds if around not in ALWAYS_SLOW)
        found += [(tested, around, number) for around, number in zip(turns, numbers, strict=False)]
    return found


def covers(combination: tuple[str, str, int]) -> set[object]:
    """Return the transform in a surrounding, and the example, which is in some surrounding."""
    tested, around, number = combination
    return {number, *pairwise.pairs((EXAMPLES[number].name, f"{tested} {around}"))}


QUICK = quick()
SLOW = pairwise.sample(EVERY, covers, pairwise.seed(), covered=QUICK)


def each_surrounding(tested: str):
    """Return the decorator that gives a test its surroundings, each with the examples."""
    found = []
    for each in EVERY:
        if each[0] == tested:
            name = "-".join(filter(None, (each[1], NAMES[each[2]])))
            marks = pairwise.marks(each, set(SLOW), set(QUICK))
            found.append(pytest.param(*each[1:], id=name, marks=marks))
    return pytest.mark.parametrize(("around", "number"), found)


@each_surrounding("effects")
def test_effects_stay(around, number, tmp_path):
    example = EXAMPLES[number]
    lost = lost_effects(example, example.prepared(example.make(), tmp_path))
    assert bool(lost) == bool(example.lost), lost


@each_surrounding("used elsewhere")
def test_what_is_used_elsewhere_keeps_its_values(around, number, tmp_path):
    example = EXAMPLES[number]
    text = example.prepared(example.make(), tmp_path)
    graphs = list(AROUND[around](example.make()))
    compared = 0
    for about, graph in graphs:
        try:
            compared += check(example, graph, text, about=about) is not None
        except Error as error:
            if around not in example.refused:
                raise AssertionError(f"{about}: {error}") from error
    assert compared or not graphs


@each_surrounding("nested")
def test_in_loops_and_branches(around, number, tmp_path):
    example, (wrap, feeds) = EXAMPLES[number], WRAPS[around]
    graph = example.make()
    text = example.prepared(graph, tmp_path)
    if around in example.refused:
        with pytest.raises(Error):
            transform(wrap(graph), text)
        return
    assert check(example, wrap(graph), text, feeds) is not None


@each_surrounding("nested effects")
def test_effects_stay_in_all_loops_and_branches(around, number, tmp_path):
    example, (wrap, feeds) = EXAMPLES[number], WRAPS[around]
    if around not in example.refused:
        text = example.prepared(example.make(), tmp_path)
        lost = lost_effects(example, text, wrap, **feeds)
        assert bool(lost) == bool(example.lost and feeds.get("branch/taken", True)), lost


def test_no_example_is_left_out_of_loops_without_need():
    for example in EXAMPLES:
        if example.fed_inside:
            graph = example.make()
            assert any(graph[name].op not in FEEDABLE_OPS for name in graph.inputs)


def test_each_transform_is_tried_in_a_loop():
    assert {EXAMPLES[number].name for number in NESTED} == set(pipeline.names())
