"""Settings with which a model runs faster on this machine."""

import json
import os
from dataclasses import replace
from typing import Any

from deploykit.benchmarking.feeding import MADE_UP, Feeding
from deploykit.benchmarking.tuning.recommendation import Recommendation
from deploykit.benchmarking.tuning.tune_options import TuneOptions
from deploykit.benchmarking.tuning.tuning import tune_model
from deploykit.freezing.interface import source_of
from deploykit.freezing.open_model import open_model, path_of
from deploykit.input.samples import read_feeding
from deploykit.storage.files import check_output, write
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.errors import CrashError, LimitError

DEFAULT = TuneOptions()


def tune(
    model: Any,
    how: TuneOptions = DEFAULT,
    *,
    feeding: Feeding = MADE_UP,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    **options: Any,
) -> Recommendation:
    """Search the settings with the lowest latency, and those with the most items a second.

    Short trials come first, each in turns with TensorFlow's defaults; the best are then measured
    beside them, and only what is faster for sure is recommended. What is set in the environment
    already is left as it is.

    Args:
        model: whatever `open_model` takes.
        how: what is sought, and how long that may take.
        feeding: data or made-up values.
        output: a JSON file to write too, which `load_tuned` reads. While this runs, the trials are
            kept beside it in `OUTPUT.state`, from which the next call goes on after Ctrl-C.
        force: whether to replace it where it exists.
        options: fields of `TuneOptions`, such as `goal` and `budget` (minutes), of `Feeding`, such
            as `data`, or of `Source`, such as `outputs`.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is not
    sound, an input has no known shape, or does not fit the data. RefusedError: an op acts on files
    or processes. LimitError: TensorFlow died or hung with its default settings, or in the end.

    Example:
        >>> found = deploykit.tune("fashion.keras", budget=0.1, batch=8)
        >>> found.settings.batch
        8
    """
    source, how, feeding = with_options("tune", options, source_of(model), how, feeding)
    how.check()
    if output is not None:
        check_output(output, force, *path_of(source))
    with working("tune") as advance:
        opened = open_model(source)
        opened.refuse_effects(feeding.allowed_ops)
        feeding, fed = read_feeding(feeding, opened.graph)
        state = None if output in (None, "-") else f"{os.fspath(output)}.state"
        try:
            found = tune_model(opened, how, feeding, state=state, advance=advance)
            found = replace(found, fed=fed)
        except CrashError as error:
            raise error.within(opened.source, LimitError) from None
    if output is not None:
        text = json.dumps(found.document(), indent=2, allow_nan=False)
        write(output, [f"{text}\n".encode()], force)
    return found
