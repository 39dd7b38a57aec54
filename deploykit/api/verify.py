"""Proof that two models compute the same."""

import logging
from dataclasses import replace
from typing import Annotated

from deploykit.api.comparison import DEFAULT, VerifyOptions
from deploykit.api.public import Command, public
from deploykit.freezing.open_model import open_model
from deploykit.text.progress import working
from deploykit.transforms.core.display.flag import Flag
from deploykit.verification.public_types import ModelLike
from deploykit.verification.verify import Verification

logger = logging.getLogger("deploykit")


@public(Command(heading="Check", runs_graph=True))
def verify(
    reference: ModelLike,
    result: ModelLike,
    how: VerifyOptions = DEFAULT,
    *,
    min_sqnr: Annotated[float | None, Flag(metavar="DB")] = None,
) -> Verification:
    """Compare the outputs of two models.

    Exits with 5 if the outputs of RESULT differ too much from those of REFERENCE. Also exits with 5
    if nothing was compared, because REFERENCE cannot run or has the same output for every input.

    Both run on the same inputs, without TensorFlow's graph optimizer. If an output is a Softmax,
    its input is compared too. In --json, infinite values (no difference at all) are null, and
    "verified" is false if nothing was compared.

    Args:
        reference: the model that is right; whatever `open_model` takes.
        result: the model to judge.
        how: on which inputs, and against which bar.
        min_sqnr: Smallest signal-to-noise ratio allowed, instead of --tolerance [default for a
            quantized RESULT: 15].

    A reference that does not run on made-up inputs gives `verified=False` with the reason.
    GraphError: TensorFlow cannot load the reference, or the data do not fit its inputs.

    Commands:
        deploykit verify fashion.pb optimized.pb --data models/fashion/test_1000.npz
        deploykit verify fashion.pb weights.pb --min-sqnr 20

    Example:
        >>> graph = deploykit.freeze("fashion.keras")
        >>> deploykit.verify(graph, deploykit.optimize(graph)).passed
        True
    """
    with working("verify"):
        first, second = open_model(reference), open_model(result)
        for each in (first, second):
            each.refuse_effects(how.allow_ops)
        found = how.ready(first.graph, min_sqnr)(first.graph, second.graph)
    if found.doubt:
        logger.warning("%s: %s", first.source, found.doubt)
    return replace(found, models=(first, second))
