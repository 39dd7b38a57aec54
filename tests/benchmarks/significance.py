"""Whether `significant` means something: the same model twice, and a slowdown that was planted.

Pairs of one model are short; ten of them are any two of five processes that have their rounds in
turn; four pairs of a model and a slower one are any of two processes beside any of two. They share
processes, but each process has a memory layout and threads of its own, which is what tells two
processes of one model apart. The slowdown is looked for as `benchmark` does it.
"""

import itertools
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

import deploykit as api
from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.job import Job
from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.measuring import Contestant, measure, spill
from deploykit.benchmarking.settings import Settings
from deploykit.benchmarking.statistics import Ratio, ratio
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node
from tests.benchmarks.figures import Figure
from tests.benchmarks.nets import made_by

SETS, ALIKE, SHORT = 10, 5, 4.0  # seconds
SLOWED, LONG = 5, 10.0
SLOWDOWN = 0.10
MANY = 40  # planted convolutions
SIGNIFICANT, FOUND = 3, 90  # percent of the pairs alike at most, of the others at least


def figures() -> list[Figure]:
    """Compare fresh processes of one model with each other, and with those of a slower one."""
    alike: list[Ratio] = []
    slowed: list[Ratio] = []
    with tempfile.TemporaryDirectory() as folder:
        plain, planted = _contestants(Path(folder))
        for _ in range(SETS):
            same = measure([plain] * ALIKE, seconds=SHORT).measurements
            alike += [_ratio(pair) for pair in itertools.combinations(same, 2)]
        for _ in range(SLOWED):
            found = measure([plain, planted] * 2, seconds=LONG).measurements
            slowed += [_ratio(pair) for pair in itertools.product(found[::2], found[1::2])]
    significant = _percent(each.significant for each in alike)
    slowdowns = [100 / each.value - 100 for each in slowed]
    recognised = _percent(each.significant and each.value < 1 for each in slowed)
    return [
        Figure(f"{len(alike)} pairs of one model: significant", "%", [significant],
               at_most=SIGNIFICANT),
        Figure("... how far the ratio is from 1", "%", [_off(each.value) for each in alike]),
        Figure(f"{len(slowed)} pairs, one 10 % slower: found", "%", [recognised], at_least=FOUND),
        Figure("... how much slower, as measured", "%", slowdowns),
    ]  # fmt: skip


def slower(graph: Graph, count: int) -> Graph:
    """Return a graph with so many ops more: convolutions of its input that leave it as it is."""
    kernel = np.zeros((1, 3, 3, 3), np.float32)
    kernel[0, 1] = np.eye(3)
    result = graph.copy()
    (images,) = result.inputs
    layer = next(node for node in result if node.op == "Conv2D")
    weights = Node.constant("planted/kernel", kernel)
    names = [images, *(f"planted/{number}" for number in range(count))]
    result.redirect({images: names[-1]})
    result.add(weights)
    for source, name in itertools.pairwise(names):
        planted = Node(name, "Conv2D", (source, weights.name), layer.attrs)
        result.add(planted.with_attrs(strides=[1, 1, 1, 1], padding="SAME"))
    result.sort()
    return result


def _contestants(folder: Path) -> tuple[Contestant, Contestant]:
    """Return a model, and the same model with ops that make it slower.

    All ops are alike, so what many of them take tells how many it should be. Of few it could not be
    told: two processes of one model differ by a few percent.
    """
    graph = api.load_graph(made_by("efficientnet_lite0/build.py") / "frozen.pb")
    plain = _contestant(graph, folder / "plain.pb")
    many = _contestant(slower(graph, MANY), folder / "many.pb")
    found = measure([plain, many] * 2, seconds=LONG).measurements
    pairs = itertools.product(found[::2], found[1::2])
    slowdown = np.mean([1 / _ratio(pair).value - 1 for pair in pairs])
    count = max(1, round(float(MANY * SLOWDOWN / slowdown)))
    return plain, _contestant(slower(graph, count), folder / f"planted {count}.pb")


def _contestant(graph: Graph, path: Path) -> Contestant:
    """Return a graph with one thread, as two wait for each other on a busy machine."""
    digest = spill(graph, path)
    feeds = batches(graph, 1, {}, None, (-1, 1))
    job = Job(str(path), graph.inputs, graph.outputs, feeds, Settings(threads=(1, 1)))
    return Contestant(path.stem, path.name, digest, job)


def _ratio(pair: Sequence[Measurement]) -> Ratio:
    a, b = pair
    return ratio(a.rounds_ms, b.rounds_ms, paired=True)


def _percent(outcomes: Iterable[bool]) -> float:
    return 100 * float(np.mean(list(outcomes)))


def _off(value: float) -> float:
    return 100 * max(value, 1 / value) - 100
