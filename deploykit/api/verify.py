"""Proof that two models compute the same."""

import logging
from dataclasses import replace
from typing import Annotated

from deploykit.api.comparison import DEFAULT, VerifyOptions
from deploykit.api.public import INTERFACE, Command, public
from deploykit.freezing.open_model import open_model
from deploykit.text.progress import working
from deploykit.transforms.core.display.flag import Flag
from deploykit.verification.public_types import ModelLike
from deploykit.verification.verify import Verification

logger = logging.getLogger("deploykit")


@public(
    Command(
        heading="Check",
        runs_graph=True,
    ),
    models="reference result",
    interface=INTERFACE,
)
def verify(
    reference: ModelLike,
    result: ModelLike,
    how: VerifyOptions = DEFAULT,
    *,
    min_sqnr: Annotated[float | None, Flag(metavar="DB")] = None,
) -> Verification:
    """Compare what two models compute.

    Exits with 5 if the outputs of RESULT differ too much from those of REFERENCE, and if nothing
    was compared: REFERENCE cannot be run, or gives the same value whatever it is fed.

    Both run on the same inputs, with TensorFlow's own graph optimizer switched off. If an output is
    a Softmax, its input is compared too. In --json, an infinite figure (there is no difference
    at all) is null, and "verified" is false if nothing was compared.

    Args:
        reference: the model that is right; whatever `open_model` takes.
        result: the model to judge.
        how: on which inputs, and against which bar.
        min_sqnr: Instead, the smallest signal-to-noise ratio allowed [default for a quantized
            RESULT: 15].

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
