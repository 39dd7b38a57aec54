"""A graph in 8 bits: with calibration data, or with its weights alone."""

import logging
from collections.abc import Iterable, Mapping

from deploykit.quantization.keep_float import MIN_SQNR_DB
from deploykit.quantization.search import Quantization, quantize_calibrated
from deploykit.rewriting.pipelines import quantize_string
from deploykit.rewriting.transform import optimize, transform
from deploykit.transforms.core.errors import VerificationError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.tensors import Array
from deploykit.verification.verify import QUANTIZED_BAR_DB, verify

logger = logging.getLogger("deploykit")


def quantize(
    graph: Graph,
    *,
    calibration: Mapping[str, Array] | None = None,
    keep_float: Iterable[str] = (),
    minimum_size: int = 1024,
    skip: Iterable[str] = (),
    data: Mapping[str, Array] | None = None,
    input_range: tuple[float, float] = (-1.0, 1.0),
    min_sqnr: float | None = None,
) -> Graph:
    """Return the optimized graph in 8 bits, checked against the graph it came from.

    With `calibration`, layers compute in 8 bits where that is right and, on this machine, faster;
    where nothing is, the optimized float graph is returned. This takes a minute or more. Without,
    weights alone are stored in 8 bits, which makes the graph smaller and no faster.

    Args:
        graph: a frozen graph.
        calibration: arrays by input name like those of real use, 64 samples or more; every fourth
            is held out to judge by.
        keep_float: with calibration: names of layers that stay float.
        minimum_size: without: weights with fewer elements stay float.
        skip: without: names of constants that stay float.
        data: without: arrays by input name for the check; default: made up within `input_range`.
        input_range: without: the range of made-up inputs.
        min_sqnr: the bar for the check, in dB; default: 24 with calibration, on the samples that
            are held out, and 15 without.

    VerificationError: the result is below the bar, with calibration below 15 dB. GraphError: the
    arrays do not fit, or lead to NaN or Inf.
    """
    if calibration is not None:
        bar = MIN_SQNR_DB if min_sqnr is None else min_sqnr
        requested = Quantization(keep_float=tuple(keep_float), min_sqnr=bar)
        found = quantize_calibrated(optimize(graph), calibration, requested)
        logger.info("%s", found.reason)
        return found.graph
    bar = QUANTIZED_BAR_DB if min_sqnr is None else min_sqnr
    quantized = transform(graph, quantize_string(minimum_size, skip))
    checked = verify(graph, quantized, data=data, input_range=input_range, min_sqnr=bar)
    if checked.verified and not checked.passed:
        raise VerificationError(checked.reason)
    return quantized
