"""The engine that a model was written for, which measures it where nobody names another."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from deploykit.benchmarking.settings import RunConfig
from deploykit.freezing.open_model import OpenedModel
from deploykit.transforms.core.engines.engines import TENSORFLOW, TITLES, lacking
from deploykit.transforms.core.errors import GraphError

logger = logging.getLogger("deploykit")


def in_own_engine(model: OpenedModel, settings: Sequence[RunConfig]) -> tuple[RunConfig, ...]:
    """Return settings with the engine that a model was written for, if this machine has it.

    It is said which one measures. GraphError: a setting is of TensorFlow alone.
    """
    use = model.about.engine
    if use is None or use.engine == TENSORFLOW:
        return tuple(settings)
    title = TITLES[use.engine]
    if why := lacking(use.engine):
        say_emulated(model, why)
        return tuple(settings)
    logger.info("%s was written for %s, which measures it; --engine tensorflow measures what "
                "TensorFlow makes of it", model.source, title)  # fmt: skip
    found = []
    for each in settings:
        precision = each.precision or ("bf16" if use.precision == "bf16" else None)
        own = replace(each, engine=use.engine, precision=precision)
        if own.left_out:
            raise GraphError(
                "settings-other-engine", file=model.source, title=title, reason=own.left_out
            )
        own.check_here()
        found.append(own)
    return tuple(found)


def say_emulated(model: OpenedModel, why: str) -> None:
    """Warn that TensorFlow measures a model that was written for another engine, if one was."""
    use = model.about.engine
    if use is not None and use.engine != TENSORFLOW:
        logger.warning("%s was written for %s, and TensorFlow only emulates it, which is slow: %s",
                       model.source, TITLES[use.engine], why)  # fmt: skip
