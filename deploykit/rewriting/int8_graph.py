"""The steps from a float graph to its 8-bit form."""

from collections.abc import Callable, Iterable

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.isa import sums_exactly
from deploykit.transforms.core.int8.plan import Plan, plan
from deploykit.transforms.core.int8.private_ops import probe
from deploykit.transforms.core.int8.ranges import load_ranges
from deploykit.transforms.core.int8.rounded_layers import Rounded
from deploykit.transforms.core.pipeline import Step, run
from deploykit.transforms.correct_biases import correct_planned
from deploykit.transforms.fuse_layer_norms import OP as LAYER_NORM
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
    """Return the 8-bit form of a float graph whose ranges lie in a file.

    Other layers are kept in float32, on oneDNN's kernels where this TensorFlow has them, as are
    layer norms. The weights of layers in `rounded` are those that were chosen, of others the
    nearest int8 values. GraphError: as in `quantize_static`.
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
    """Return the same decisions in plain ops, which OpenVINO makes 8-bit kernels of.

    They are in what `write` makes of layers. GraphError: as in `quantize_codes`.
    """
    known, kept, exact_sums = load_ranges(ranges), tuple(sorted(keep_float)), sums_exactly(isa)
    chosen: Rounded = rounded or {}
    work = graph.copy()
    work.prune()
    correct_planned(work, plan(work, known, kept), known, chosen, exact_sums)
    write(work, plan(work, known, kept), chosen, exact_sums)
    work.prune()
    work.check()
    return work


def onednn_graph(codes: Graph, isa: str = "auto") -> Graph:
    """Return the 8-bit form of a graph in codes: what `int8_graph` gives of its float graph.

    GraphError: as in `quantize_static` without ranges.
    """
    return _after(codes, [Step("quantize_static", {"isa": isa}), *_kernels()])


def kernels_after(graph: Graph) -> Graph:
    """Return an int8 graph with the best kernels for what is still float32."""
    return _after(graph, _kernels())


def _kernels() -> list[Step]:
    """Return what is done with a graph in 8 bits and the floats that it still computes with."""
    steps = [Step("merge_duplicate_nodes")]
    if probe([LAYER_NORM]):
        steps.append(Step("fuse_layer_norms"))
    private = {kernel.op for kernel in KERNELS.values()}
    if private <= probe(private):
        steps.append(Step("use_onednn_kernels"))
    return steps


def _after(graph: Graph, steps: list[Step]) -> Graph:
    for done in run(graph, steps):
        graph = done.graph
    return graph
