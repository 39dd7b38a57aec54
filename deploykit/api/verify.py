"""Proof that two models compute the same."""

import logging
from dataclasses import replace
from typing import Any

from deploykit.api.comparison import DEFAULT, Comparison
from deploykit.freezing.open_model import open_model
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.verification.verify import Verification

logger = logging.getLogger("deploykit")


def verify(
    reference: Any,
    result: Any,
    how: Comparison = DEFAULT,
    *,
    min_sqnr: float | None = None,
    **options: Any,
) -> Verification:
    """Run two models on the same inputs, TensorFlow's own graph optimizer off, and compare.

    Where an output is a Softmax, what it reads is compared too. Inputs and outputs are paired by
    name, or by place where the names differ.

    Args:
        reference: the model that is right; whatever `open_model` takes.
        result: the model to judge.
        how: on which inputs, and against which bar.
        min_sqnr: bar in dB instead of `tolerance`; default for a quantized result: 15. It holds for
            what a Softmax reads in place of the Softmax.
        options: fields of `Comparison`: `data`, `preprocess`, `shapes`, `input_range`,
            `allowed_ops`, `tolerance`.

    A reference that does not run on made-up inputs gives `verified=False` with the reason.
    GraphError: TensorFlow cannot load the reference, or the data do not fit its inputs.

    Example:
        >>> graph = deploykit.freeze("fashion.keras")
        >>> deploykit.verify(graph, deploykit.optimize(graph)).passed
        True
    """
    (how,) = with_options("verify", options, how)
    with working("verify"):
        first, second = open_model(reference), open_model(result)
        for each in (first, second):
            each.refuse_effects(how.allowed_ops)
        found = how.ready(first.graph, min_sqnr)(first.graph, second.graph)
    if found.doubt:
        logger.warning("%s: %s", first.source, found.doubt)
    return replace(found, models=(first, second))
