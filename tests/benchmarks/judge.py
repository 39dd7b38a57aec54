"""Whether the judge of speed finds what is planted: chains of 100 and more equal convolutions.

Pairs of chains are compared as `deploykit benchmark a.pb b.pb` does it, on the machine as it is,
and beside two processes that do nothing but compute. The second chain is longer by what is planted,
or the first is, in turn.
"""

import contextlib
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import deploykit as api
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.speed_verdict import SpeedVerdict
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.benchmarks.figures import Figure

LENGTH, SIZE, CHANNELS = 100, 14, 32
PLANTED = (0.0, 0.03, 0.05, 0.10)
PAIRS, ALIKE = 10, 30
SECONDS = 25  # of each of the two, and with the loading of sessions about a minute in all
HOGS = 2
BARS = {("quiet", 0.03): 70, ("beside hogs", 0.05): 80, ("beside hogs", 0.10): 100}
_FLOAT = DType("float32")


def figures(pairs: int = PAIRS, alike: int = ALIKE) -> list[Figure]:
    """Compare pairs of chains, and count the right verdicts."""
    found = []
    for where, planted in itertools.product(("quiet", "beside hogs"), PLANTED):
        with beside(HOGS if where == "beside hogs" else 0), tempfile.TemporaryDirectory() as folder:
            right, seconds = [], []
            for number in range(pairs if planted else alike):
                began = time.monotonic()
                verdict = judged(Path(folder), planted, swapped=bool(number % 2))
                seconds.append(time.monotonic() - began)
                right.append(is_right(verdict, planted, swapped=bool(number % 2)))
                print(f"{where}, {100 * planted:g} %: {verdict.verdict}", file=sys.stderr)
        share = 100 * float(np.mean(right))
        name = f"{len(right)} pairs, {100 * planted:g} % planted, {where}"
        bar = BARS.get((where, planted)) if planted else 100
        found.append(Figure(f"{name}: right", "%", [share], at_least=bar))
        found.append(Figure("... a comparison took", "s", seconds))
    return found


def is_right(found: SpeedVerdict, planted: float, swapped: bool) -> bool:
    """Say whether a verdict is true, and says what can be known.

    Of what is less work, a busy machine may leave the wall clock undecided.
    """
    if not planted:
        return not found.significant
    return found.kind == ("faster" if swapped else "slower")


def judged(folder: Path, planted: float, swapped: bool) -> SpeedVerdict:
    """Compare a chain with one that is longer by what is planted; or that one with it."""
    paths = []
    for number, length in enumerate((LENGTH, round(LENGTH * (1 + planted)))):
        path = folder / f"{number}.pb"
        api.save_graph(chain(length), path, force=True)
        paths.append(path)
    found = api.benchmark(paths[::-1] if swapped else paths, seconds=SECONDS)
    assert isinstance(found, BenchmarkResult)
    judgement = found.judgements()[1]
    assert judgement is not None
    return judgement


def chain(length: int) -> Graph:
    """Return a graph of so many equal convolutions, each with its own weights."""
    rng = np.random.default_rng(0)
    shape = (1, SIZE, SIZE, CHANNELS)
    nodes, last = [Node("x", "Placeholder").with_attrs(dtype=_FLOAT, shape=shape)], "x"
    for number in range(length):
        values = rng.normal(0, 0.06, (3, 3, CHANNELS, CHANNELS)).astype(np.float32)
        weights = Node.constant(f"w{number}", values)
        layer = Node(f"c{number}", "Conv2D", (last, weights.name)).with_attrs(
            T=_FLOAT, strides=[1, 1, 1, 1], padding="SAME"
        )
        nodes += [weights, layer, Node(f"y{number}", "Relu", (layer.name,)).with_attrs(T=_FLOAT)]
        last = nodes[-1].name
    return Graph(nodes, ("x",), (last,))


@contextlib.contextmanager
def beside(hogs: int) -> Iterator[None]:
    """Keep so many cores busy."""
    line = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(line) for _ in range(hogs)]
    try:
        yield
    finally:
        for each in processes:
            each.kill()
            each.wait()
