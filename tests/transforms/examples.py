"""What each transform's test module exports as `GRAPHS`: graphs that the transform changes."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.ir.tensors import Array, numpy_type
from tests.support import random, run
from tests.transforms.int8_nets import ranges_of


@dataclass(frozen=True)
class Example:
    """A graph that a transform changes, and how exactly it has to keep the numbers."""

    text: str
    """The transform with its parameters; {ranges} and {log} stand for files made for the graph."""
    make: Callable[[], Graph]
    bar: float = 0.0
    """The largest difference, relative to the largest value, and the same of the RMS."""
    low: float = -1.0
    """What floats are fed from; up to 1."""
    feeds: Mapping[str, Array] = field(default_factory=dict)
    """Values of inputs that must not be any."""
    lost: str = ""
    """Why effects that nodes wait for may be lost; empty where they must not."""
    runnable: Callable[[Graph], Graph] = lambda graph: graph
    """What makes a graph that runs here of the transform's result."""
    refused: tuple[str, ...] = ()
    """The surroundings in which the transform refuses to work, with a sentence that says why."""
    measured: tuple[str, ...] = ("range", "range:1")
    golden: str = ""
    """The case in whose golden text the graph is shown before and after."""
    fed_inside: bool = False
    """Whether an inner node is fed, which nobody can do in a loop or a branch."""

    @property
    def name(self) -> str:
        """The transform."""
        return self.text.partition("(")[0]

    def fed(self, graph: Graph) -> dict[str, Array]:
        """Return values for the inputs: of inner nodes, other values than those they compute."""
        is_free = {name: graph.producer(name).op in FEEDABLE_OPS for name in graph.inputs}
        feeds = {name: self._value(graph[name]) for name, free in is_free.items() if free}
        inner = [name for name, free in is_free.items() if not free]
        if inner:
            given = {n.name: self._value(n) for n in graph if n.op == "Placeholder"}
            whole = Graph(graph, given, inner, graph.versions, graph.library)
            values = map(np.asarray, run(whole, given))
            feeds |= {n: _other(value) for n, value in zip(inner, values, strict=True)}
        return feeds

    def _value(self, node: Node) -> Array:
        if node.name in self.feeds:
            return self.feeds[node.name]
        if node.op == "PlaceholderWithDefault":
            return random(*node.attr("shape"), seed=7)
        shape = [2 if size < 0 else size for size in node.attr("shape") or ()]
        dtype = numpy_type(node.attr("dtype"))
        if dtype.kind != "f":
            return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        return random(*shape, seed=7, low=self.low).astype(dtype)

    def prepared(self, graph: Graph, folder: Path) -> str:
        """Write the files that the transform needs for a graph, and return its text."""
        text = self.text
        if "{ranges}" in text:
            path = folder / "ranges.json"
            known = ranges_of(graph, [self.fed(graph)])
            inside = {f"inside/{name}": known.tensors[name] for name in graph.inputs}
            path.write_text(replace(known, tensors={**known.tensors, **inside}).text())
            text = text.format(ranges=path)
        if "{log}" in text:
            path = folder / "log.txt"
            low, high = run(Graph(graph, graph.inputs, self.measured), self.fed(graph))
            path.write_text(f";range__print__;__requant_min_max:[{low}][{high}]\n")
            text = text.format(log=path)
        return text


def _other(value: Array) -> Array:
    """Return other values of the same kind, where any serve as well."""
    if value.dtype.kind != "f":
        return value
    factors = np.linspace(0.5, 1.5, max(value.size, 1)).reshape(value.shape)
    return (value * factors).astype(value.dtype)


def examples() -> list[Example]:
    """Return the examples of all transforms, each from the test module of its transform."""
    found = []
    for name in pipeline.names():
        module = importlib.import_module(f"tests.transforms.test_{name}")
        assert module.GRAPHS, name
        assert {example.name for example in module.GRAPHS} == {name}
        found += module.GRAPHS
    return found
