"""The steps from a float graph to its 8-bit form."""

from collections.abc import Iterable

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.private_ops import probe
from deploykit.transforms.core.pipeline import Step, run
from deploykit.transforms.fuse_layer_norms import OP as LAYER_NORM
from deploykit.transforms.use_onednn_kernels import KERNELS


def int8_graph(
    graph: Graph, ranges: str, isa: str = "auto", keep_float: Iterable[str] = ()
) -> Graph:
    """Return the 8-bit form of a float graph whose ranges lie in a file.

    Other layers stay float, on oneDNN's kernels where this TensorFlow has them, as do layer norms.
    GraphError: as in
    `quantize_static`.
    """
    arguments = {"ranges": ranges, "isa": isa, "keep_float": tuple(sorted(keep_float))}
    steps = [Step("correct_biases", arguments), Step("quantize_static", arguments)]
    return _after(graph, [*steps, *_kernels()])


def codes_graph(
    graph: Graph, ranges: str, isa: str = "auto", keep_float: Iterable[str] = ()
) -> Graph:
    """Return the same decisions in plain ops, which OpenVINO makes 8-bit kernels of.

    GraphError: as in `quantize_codes`.
    """
    arguments = {"ranges": ranges, "isa": isa, "keep_float": tuple(sorted(keep_float))}
    return _after(graph, [Step("correct_biases", arguments), Step("quantize_codes", arguments)])


def onednn_graph(codes: Graph, isa: str = "auto") -> Graph:
    """Return the 8-bit form of a graph in codes: what `int8_graph` gives of its float graph.

    GraphError: as in `quantize_static` without ranges.
    """
    return _after(codes, [Step("quantize_static", {"isa": isa}), *_kernels()])


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
