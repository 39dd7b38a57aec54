"""The steps from a quantization-aware graph to its int8 form."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from deploykit.rewriting.int8_graph import Write, kernels_after
from deploykit.rewriting.pipelines import PREPARE_LAYERS
from deploykit.rewriting.transform import run_steps
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.fake_quant.grids import OPS
from deploykit.transforms.core.int8.fake_quant.placement import place_fake_quants
from deploykit.transforms.core.int8.fake_quant.planner import FakeQuantPlanner, plan_fake_quants
from deploykit.transforms.core.int8.fake_quant.weights import match_codes, take_weights
from deploykit.transforms.core.int8.isa import sums_exactly
from deploykit.transforms.core.int8.plan import Plan
from deploykit.transforms.core.int8.rounded_layers import Rounded, RoundedLayer
from deploykit.transforms.core.int8.stored_codes import ROUNDS
from deploykit.transforms.core.int8.weights import saturates
from deploykit.transforms.core.layers.layers import LAYER_OPS, weights_of
from deploykit.transforms.core.tensors import Array
from deploykit.transforms.quantize_codes import write_codes
from deploykit.transforms.quantize_static import write_kernels


@dataclass(frozen=True)
class FakeQuantGraph:
    """A graph whose weights are those that fake-quants gave, and what these stated."""

    graph: Graph
    """float32, with batch norms folded and the fake-quants of activations in place."""
    weights: Mapping[str, tuple[Array, Array]]
    """By layer: int8 codes in the shape of its weights, float32 steps [output channels]."""
    refused: Mapping[str, str]
    """By fake-quant of weights that int8 kernels cannot take: why."""

    def plan(self, keep_float: Collection[str] = ()) -> Plan:
        """Return which layers run in int8. GraphError: `keep_float` names no node."""
        listed = {self.graph[name].name for name in keep_float}
        return plan_fake_quants(self.graph, self.weights, self.refused, listed)

    def missing(self) -> tuple[dict[str, list[str]], list[str]]:
        """Return the tensors without a range, as `FakeQuantPlanner.missing` does."""
        return FakeQuantPlanner(self.graph, self.weights, self.refused).missing()

    def rounded_again(self, planned: Plan, isa: str) -> list[str]:
        """Return the int8 layers whose codes `isa` cannot sum exactly, so which are rounded."""
        if sums_exactly(isa):
            return []
        return [
            name for name in planned.chains if saturates(self.graph[name], self.weights[name][0])
        ]


def has_fake_quants(graph: Graph) -> bool:
    """Say whether a graph, or a function of it, has fake-quants that deploykit did not write."""
    return any(node.op in OPS and not node.attr(ROUNDS) for node in graph) or any(
        node.op in OPS for function in graph.library.function for node in function.node_def
    )


def states_weights(graph: Graph) -> bool:
    """Say whether fake-quants state the int8 weights of a layer."""
    return has_fake_quants(graph) and bool(read_fake_quants(graph).weights)


def read_fake_quants(graph: Graph) -> FakeQuantGraph:
    """Return an optimized form of a quantization-aware graph, and what its fake-quants state."""
    work = run_steps(graph, PREPARE_LAYERS)[0].copy()
    stated = take_weights(work)
    work = run_steps(work, PREPARE_LAYERS)[0].copy()
    place_fake_quants(work)
    work.prune()
    work.sort()
    weights = {}
    for layer in work:
        const = weights_of(work, layer) if layer.op in LAYER_OPS else None
        found = None if const is None else match_codes(layer, const.value, stated.codes)
        if found is not None:
            weights[layer.name] = found
    return FakeQuantGraph(work, weights, stated.refused)


def stated_int8_graph(
    stated: FakeQuantGraph, isa: str = "auto", keep_float: Iterable[str] = ()
) -> Graph:
    """Return the int8 form on oneDNN's kernels. GraphError: `keep_float` names no node."""
    return kernels_after(stated_codes_graph(stated, isa, keep_float, write_kernels))


def stated_codes_graph(
    stated: FakeQuantGraph,
    isa: str = "auto",
    keep_float: Iterable[str] = (),
    write: Write = write_codes,
) -> Graph:
    """Return the int8 form in plain ops, which OpenVINO makes int8 kernels of.

    Or in what `write` makes of layers. GraphError: `keep_float` names no node.
    """
    work, planned = stated.graph.copy(), stated.plan(tuple(keep_float))
    write(work, planned, _chosen(stated, planned, isa), sums_exactly(isa))
    work.prune()
    work.check()
    return work


def _chosen(stated: FakeQuantGraph, planned: Plan, isa: str) -> Rounded:
    """Return the stated weights of int8 layers, but those that are rounded again."""
    exact_sums, others = sums_exactly(isa), stated.rounded_again(planned, isa)
    chosen = {}
    for name, chain in planned.chains.items():
        codes, steps = stated.weights[name]
        if name not in others:
            zeros = np.zeros(len(steps))
            chosen[chain.biased] = RoundedLayer(codes, steps, zeros, zeros, exact_sums, False)
    return chosen
