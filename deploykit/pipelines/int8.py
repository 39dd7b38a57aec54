"""The transforms that turn a float32 or quantization-aware graph into its int8 graph."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from deploykit.pipelines.transform import PREPARE_LAYERS, run_steps
from deploykit.transforms.correct_biases import correct_planned
from deploykit.transforms.fuse_layer_norms import OP as LAYER_NORM
from deploykit.transforms.int8.fake_quant_planner import FakeQuantPlanner, place_fake_quants
from deploykit.transforms.int8.fake_quants import OPS, int8_codes, match_codes, take_weights
from deploykit.transforms.int8.int8_kernels import probe, sums_exactly
from deploykit.transforms.int8.plan import Plan, plan
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.int8.stored_codes import ROUNDS
from deploykit.transforms.int8.weights import Rounded, RoundedLayer, saturates
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.pipeline import Step, run
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.layers import LAYER_OPS, weights_of
from deploykit.transforms.quantize_codes import write_codes
from deploykit.transforms.quantize_static import write_kernels
from deploykit.transforms.use_onednn_kernels import KERNELS

Write = Callable[[Graph, Plan, Rounded, bool], None]
"""Writes the layers of a plan in int8."""


def int8_graph(
    graph: Graph,
    ranges: str,
    isa: str = "auto",
    keep_float: Iterable[str] = (),
    rounded: Rounded | None = None,
) -> Graph:
    """Return the int8 form of a float32 graph whose ranges are in a file.

    Other layers are kept in float32. They and layer norms use oneDNN kernels if this TensorFlow
    has them. `rounded` has the weights chosen by rounding; other weights become the nearest int8
    values. GraphError: as in `quantize_static`.
    """
    return kernels_after(codes_graph(graph, ranges, isa, keep_float, rounded, write_kernels))


def codes_graph(
    graph: Graph,
    ranges: str,
    isa: str = "auto",
    keep_float: Iterable[str] = (),
    rounded: Rounded | None = None,
    write: Write = write_codes,
) -> Graph:
    """Return the int8 form in plain ops, which OpenVINO compiles to int8 kernels.

    `write` writes the layers. GraphError: as in `quantize_codes`.
    """
    known, retained, exact_sums = load_ranges(ranges), tuple(sorted(keep_float)), sums_exactly(isa)
    chosen: Rounded = rounded or {}
    work = graph.copy()
    work.prune()
    correct_planned(work, plan(work, known, retained), known, chosen, exact_sums)
    write(work, plan(work, known, retained), chosen, exact_sums)
    work.prune()
    work.check()
    return work


def onednn_graph(codes: Graph, isa: str = "auto") -> Graph:
    """Return the int8 form of a graph in codes: what `int8_graph` returns for float32.

    GraphError: as in `quantize_static` without ranges.
    """
    return _after(codes, [Step("quantize_static", {"isa": isa}), *_kernels()])


def kernels_after(graph: Graph) -> Graph:
    """Return an int8 graph with the fastest kernels for its float32 ops."""
    return _after(graph, _kernels())


def _kernels() -> list[Step]:
    """Return the steps that optimize the float32 ops of an int8 graph."""
    steps = [Step("merge_duplicate_nodes")]
    if probe([LAYER_NORM]):
        steps.append(Step("fuse_layer_norms"))
    private = {op for op, _ in KERNELS.values()}
    if private <= probe(private):
        steps.append(Step("use_onednn_kernels"))
    return steps


def _after(graph: Graph, steps: list[Step]) -> Graph:
    for done in run(graph, steps):
        graph = done.graph
    return graph


@dataclass(frozen=True)
class FakeQuantGraph:
    """A graph whose weights are the outputs of fake-quants, and the scales that these state."""

    graph: Graph
    """The float32 graph, with batch norms folded and with the fake-quants of activations."""
    weights: Mapping[str, tuple[Array, Array]]
    """Weights by layer: int8 codes in the shape of the weights, float32 steps [output channels]."""
    clipped: Mapping[str, int]
    """Number of codes of 128 that became 127, by layer; without layers that have none."""
    refused: Mapping[str, str]
    """Reasons of `StatedWeights.refused`, and those of layers with too many codes of 128."""

    def plan(self, keep_float: Collection[str] = ()) -> Plan:
        """Return which layers run in int8. GraphError: `keep_float` names no node."""
        listed = {self.graph[name].name for name in keep_float}
        return FakeQuantPlanner(self.graph, self.weights, self.refused, listed).run()

    def missing(self) -> tuple[dict[str, list[str]], list[str]]:
        """Return the tensors without a range, as `FakeQuantPlanner.missing` does."""
        return FakeQuantPlanner(self.graph, self.weights, self.refused).missing()

    def rounded_again(self, planned: Plan, isa: str) -> list[str]:
        """Return the int8 layers to round again, as `isa` cannot sum their codes exactly."""
        if sums_exactly(isa):
            return []
        return [
            name for name in planned.chains if saturates(self.graph[name], self.weights[name][0])
        ]


def has_fake_quants(graph: Graph) -> bool:
    """Return whether a graph or a function of it has fake-quants that deploykit did not write."""
    return any(node.op in OPS and not node.attr(ROUNDS) for node in graph) or any(
        node.op in OPS for function in graph.library.function for node in function.node_def
    )


def states_weights(graph: Graph) -> bool:
    """Return whether fake-quants state the int8 weights of a layer."""
    return has_fake_quants(graph) and bool(read_fake_quants(graph).weights)


def read_fake_quants(graph: Graph) -> FakeQuantGraph:
    """Return a quantization-aware graph, optimized, with the scales that its fake-quants state."""
    work = run_steps(graph, PREPARE_LAYERS)[0].copy()
    stated = take_weights(work)
    work = run_steps(work, PREPARE_LAYERS)[0].copy()
    place_fake_quants(work)
    work.prune()
    work.sort()
    weights, counts, refused = dict[str, tuple[Array, Array]](), dict[str, int](), {}
    for layer in work:
        const = weights_of(work, layer) if layer.op in LAYER_OPS else None
        result = None if const is None else match_codes(layer, const.value, stated.codes)
        if result is None:
            continue
        codes, steps = result
        if isinstance(limited := int8_codes(layer, codes), str):
            refused[layer.name] = limited
            continue
        weights[layer.name] = limited[0], steps
        if limited[1]:
            counts[layer.name] = limited[1]
    return FakeQuantGraph(work, weights, counts, {**stated.refused, **refused})


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
    """Return the int8 form in plain ops, which OpenVINO compiles to int8 kernels.

    `write` writes the layers. GraphError: `keep_float` names no node.
    """
    work, planned = stated.graph.copy(), stated.plan(tuple(keep_float))
    write(work, planned, _chosen(stated, planned, isa), sums_exactly(isa))
    work.prune()
    work.check()
    return work


def _chosen(stated: FakeQuantGraph, planned: Plan, isa: str) -> Rounded:
    """Return the stated weights of int8 layers, except of those that are rounded again."""
    exact_sums, others = sums_exactly(isa), stated.rounded_again(planned, isa)
    chosen = {}
    for name, chain in planned.chains.items():
        codes, steps = stated.weights[name]
        if name not in others:
            zeros = np.zeros(len(steps))
            chosen[chain.biased] = RoundedLayer(codes, steps, zeros, zeros, exact_sums, False)
    return chosen
