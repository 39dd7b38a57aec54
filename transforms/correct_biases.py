"""Rounded weights shift each channel by E[x] (W - Wq) on average; the bias can compensate."""

import numpy as np

from deploykit.transforms.int8.int8_kernels import sums_exactly
from deploykit.transforms.int8.plan import Plan, plan
from deploykit.transforms.int8.ranges import Ranges, load_ranges
from deploykit.transforms.int8.weights import (
    Rounded,
    add_to_bias,
    restored,
    rounded_in,
    weight_codes,
)
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal
from deploykit.transforms.layers.affine import mean_output
from deploykit.transforms.layers.layers import weights_of
from deploykit.transforms.shapes.sizes import require


def correct_biases(
    graph: Graph, *, ranges: str, isa: str = "auto", keep_float: tuple[str, ...] = ()
) -> None:
    """Correct biases for the weight rounding that `quantize_static` does afterwards.

    Run it right before `quantize_static` with the same parameters: it changes only the layers that
    become int8. Source: M. Nagel et al., Data-Free Quantization Through Weight Equalization and
    Bias Correction, 2019, section 4.2; the means are those of the calibration.

    GraphError: the ranges belong to another graph, weights contain NaN or Inf, or `keep_float`
    names an unknown node.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph.
        isa: avx2, vnni or auto, as in `quantize_static`.
        keep_float: name of a layer to keep in float32; may be given several times.
    """
    known = load_ranges(ranges)
    correct_planned(graph, plan(graph, known, keep_float), known, {}, sums_exactly(isa))


def correct_planned(
    graph: Graph, planned: Plan, known: Ranges, rounded: Rounded, exact_sums: bool
) -> None:
    """Correct the biases of planned int8 layers; `rounded` gives codes that are already chosen."""
    for chain in planned.chains.values():
        layer = chain.nodes[0]
        tensor = known.tensors.get(normal(layer.data_inputs[0]))
        weights = require(weights_of(graph, layer))
        signed = planned.reads[layer.name].signed
        if (chosen := rounded_in(rounded, chain, exact_sums, signed)) is not None:
            add_to_bias(graph, chain, chosen.bias)
            continue
        codes, steps = weight_codes(layer, weights.value, exact_sums, signed)
        lost = weights.value.astype(np.float64) - restored(layer, codes, steps)
        values = None if tensor is None else mean_output(layer, lost, np.array(tensor.channel_mean))
        if values is None:
            graph.skip(layer, "the means of its input's channels are not known")
        else:
            add_to_bias(graph, chain, values)
