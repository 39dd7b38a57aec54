"""Settings with which a model runs faster on this machine."""

import json
import os
from dataclasses import replace
from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.benchmarking.feeding import MADE_UP, BenchmarkInputs
from deploykit.benchmarking.tuning.recommendation import Recommendation
from deploykit.benchmarking.tuning.tune_options import TuneOptions
from deploykit.benchmarking.tuning.tuning import tune_model
from deploykit.freezing.interface import source_of
from deploykit.freezing.open_model import open_model, path_of
from deploykit.input.samples import read_feeding
from deploykit.storage.files import check_output, write
from deploykit.text.progress import working
from deploykit.transforms.core.display.flag import FORCE, output_flag
from deploykit.transforms.core.errors import CrashError, LimitError
from deploykit.verification.public_types import ModelLike, PathLike

DEFAULT = TuneOptions()


@public(Command(heading="Search", writes_result=False))
def tune(
    model: ModelLike,
    how: TuneOptions = DEFAULT,
    *,
    feeding: BenchmarkInputs = MADE_UP,
    output: Annotated[PathLike | None, output_flag(".tuned.json", "text output")] = None,
    force: Annotated[bool, FORCE] = False,
) -> Recommendation:
    """Find faster settings for a model on this machine.

    Tries threads, oneDNN, work of the calling thread in oneDNN, keeping of freed memory in the C
    library, batch sizes and concurrency. It searches for the lowest median latency and for the
    highest throughput. Settings from environment variables are not changed. At the end, the best
    settings, and the same without one of their changes, are interleaved with TensorFlow's defaults.
    The results are from this comparison. Only significantly faster settings are recommended, with
    as few changes as possible.

    `deploykit benchmark --tuned` reads the written file. After Ctrl-C, the same command continues
    the search.

    In OpenVINO it tries threads, streams (one per concurrent call), memory and batch sizes.
    OpenVINO's outputs are compared with TensorFlow's first.

    Args:
        model: whatever `open_model` takes.
        how: what is sought, and how long that may take.
        feeding: data or made-up values.
        output: a JSON file to write too, which `load_tuned` reads. While this runs, the trials are
            kept beside it in `OUTPUT.state`, from which the next call goes on after Ctrl-C.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is not
    sound, an input has no known shape, or does not fit the data. RefusedError: an op acts on files
    or processes. LimitError: TensorFlow died or hung with its default settings, or in the end.

    Commands:
        deploykit tune model.pb
        deploykit tune model.pb --goal throughput --budget 10 -o tuned.json

    Example:
        >>> found = deploykit.tune("fashion.keras", budget=0.1, batch=8)
        >>> found.settings.batch
        8
    """
    source = source_of(model)
    how.check()
    if output is not None:
        check_output(output, force, *path_of(source))
    with working("tune") as advance:
        opened = open_model(source)
        opened.refuse_effects(feeding.allow_ops)
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
