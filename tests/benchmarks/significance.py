"""Whether `significant` means something: the same model twice, and a slowdown that was planted.

Every process of a set stands at once and has its short rounds in turn, so each two of them are a
pair: ten of five processes of one model. Such pairs share processes, but each process has a memory
layout and threads of its own, which is what tells two processes of one model apart.
"""

import contextlib
import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

import deploykit as api
from deploykit.benchmarking.runner import Job, started
from deploykit.benchmarking.settings import Settings
from deploykit.benchmarking.statistics import Ratio, ratio
from tests.benchmarks.figures import Figure
from tests.benchmarks.nets import frozen_keras_net, made_by
from transforms.core.graph import Graph
from transforms.core.node import Node

SETS, ALIKE, SLOWED = 10, 5, 2
ROUNDS, SECONDS, RESUME, WARM_UP = 24, 0.08, 0.02, 0.7
SLOWDOWN, CONFIDENCE = 0.10, 0.99
NARROW, WIDE = 1, 81  # planted convolutions between which the right width is sought
CLOSE, TRIES = 0.01, 7  # to the slowdown that is wanted
SIGNIFICANT, FOUND = 3, 90  # percent of the pairs alike at most, of the others at least

Rounds = list[list[int]]


def figures() -> list[Figure]:
    """Compare fresh processes of one model with each other, and with those of a slower one."""
    alike: list[Ratio] = []
    slowed: list[Ratio] = []
    with tempfile.TemporaryDirectory() as folder:
        plain, planted = _jobs(Path(folder))
        for found in sets([plain] * ALIKE + [planted] * SLOWED, SETS):
            alike += [_ratio(*pair) for pair in itertools.combinations(found[:ALIKE], 2)]
            slowed += [_ratio(*pair) for pair in zip(found, found[ALIKE:], strict=False)]
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


def sets(jobs: Sequence[Job], count: int) -> Iterator[list[Rounds]]:
    """Start a process for each job, so many times over, and yield the rounds of each.

    Caches are cold after the others' turns, so the first calls of a turn do not count.
    """
    for _ in range(count):
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(contextlib.closing(started(job))) for job in jobs]
            for worker in workers:
                worker.ask("run", WARM_UP, None)
            rounds: list[Rounds] = [[] for _ in jobs]
            for number in range(ROUNDS):
                order = list(zip(workers, rounds, strict=True))
                for worker, found in order[:: -1 if number % 2 else 1]:
                    worker.ask("run", RESUME, None)
                    found.append(worker.ask("run", SECONDS, None)[0])
        yield rounds


def slower(graph: Graph, width: int) -> Graph:
    """Return a graph with an op more: a convolution of its input that leaves it as it is."""
    kernel = np.zeros((1, width, 3, 3), np.float32)
    kernel[0, width // 2] = np.eye(3)
    result = graph.copy()
    (images,) = result.inputs
    layer = next(node for node in result if node.op == "Conv2D")
    weights = Node.constant("planted/kernel", kernel)
    planted = Node("planted", "Conv2D", (images, weights.name), layer.attrs)
    result.redirect({images: planted.name})
    result.add(weights)
    result.add(planted.with_attrs(strides=[1, 1, 1, 1], padding="SAME"))
    result.sort()
    return result


def _jobs(folder: Path) -> tuple[Job, Job]:
    """Return the job of a model, and that of the same model with an op that makes it slower."""
    graph = api.load_graph(_model())
    plain = _job(graph, folder / "plain.pb")
    widths, slowdowns = [NARROW, WIDE], []
    for number in range(TRIES):
        planted = _job(slower(graph, widths[number]), folder / f"{number}.pb")
        (rounds,) = sets([plain, planted], 1)
        slowdowns.append(1 / _ratio(*rounds).value - 1)
        if abs(slowdowns[-1] - SLOWDOWN) < CLOSE:
            break
        if number:  # between the nearest that is below and the nearest above
            known = sorted(zip(slowdowns, widths, strict=False))
            width = float(np.interp(SLOWDOWN, *zip(*known, strict=True)))
            widths.append(NARROW + 2 * round((width - NARROW) / 2))  # an odd kernel has a middle
    return plain, planted


def _job(graph: Graph, path: Path) -> Job:
    """Return the job of a graph; with one thread, as two wait for each other on a busy machine."""
    api.save_graph(graph, path, force=True)
    photo = np.random.default_rng(0).uniform(-1, 1, (1, 224, 224, 3)).astype(np.float32)
    return Job(str(path), graph.inputs, graph.outputs, ((photo,),), Settings(threads=(1, 1)))


def _model() -> Path:
    """Return EfficientNet-Lite0, or MobileNetV2 where its weights cannot be fetched."""
    with contextlib.suppress(SystemExit):
        return made_by("efficientnet_lite0/build.py") / "frozen.pb"
    return frozen_keras_net("MobileNetV2")


def _ratio(a: Rounds, b: Rounds) -> Ratio:
    return ratio(a, b, CONFIDENCE, paired=True)


def _percent(outcomes: Iterable[bool]) -> float:
    return 100 * float(np.mean(list(outcomes)))


def _off(value: float) -> float:
    return 100 * max(value, 1 / value) - 100
