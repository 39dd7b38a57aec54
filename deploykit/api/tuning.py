"""tune, and its recommended settings as server flags."""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from deploykit.api.public import Command, public
from deploykit.benchmarking.inputs import SYNTHETIC, BenchmarkInputs
from deploykit.benchmarking.process_variables import THREADS
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tuning.recommendation import Recommendation, check_served, unlike
from deploykit.benchmarking.tuning.search_space import TuneOptions
from deploykit.benchmarking.tuning.tuning import tune_model
from deploykit.data.samples import read_feeding
from deploykit.importers.model_source import source_of
from deploykit.importers.open_model import ModelLike, open_model, path_of
from deploykit.rendering.progress import working
from deploykit.serving.execution.request_inputs import may_share
from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.lifecycle.version_folders import find_versions
from deploykit.serving.protocol.signatures import read_meta_graph, signatures_with_axes
from deploykit.serving.server.server_flags import ServerFlags
from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.files import check_output, write
from deploykit.transforms.common.errors import CrashError, Error, GraphError, LimitError
from deploykit.transforms.common.flag import COLUMNS, FORCE, HEADER, output_flag
from deploykit.transforms.engines.engines import ENGINES, TITLES
from deploykit.verification.samples import PathLike

logger = logging.getLogger("deploykit")

_INTRA, _INTER = "tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism"
_IN_CALL = -1  # TensorFlow: run the ops one by one in the caller's thread


def tuned_flags(flags: ServerFlags, tuned: RunConfig, name: str) -> tuple[ServerFlags, int | None]:
    """Return flags with the recommended settings that are not set yet, and the batch size or None.

    Logs each recommendation that a flag or variable overrides. `name` is the source of the
    settings. GraphError: a server cannot apply one of them.
    """
    check_served(tuned, name, engines=ENGINES)
    for words in unlike(tuned, os.environ):
        logger.info("%s recommends %s", name, words)
    changes: dict[str, Any] = {}
    threads = tuned.threads or ()

    def gives_way(words: str, given: str) -> None:
        logger.info("%s recommends %s; %s is set and overrides it", name, words, given)

    for flag, expected in zip((_INTRA, _INTER), threads, strict=False):
        given, value = _set_by(flags, flag)
        if not given.startswith("--"):
            changes[flag] = expected if value is None else value
        if value not in (None, expected):
            gives_way("threads {}x{}".format(*threads), given)
    if tuned.executor is not None:
        given, _ = _set_by(flags, _INTER)
        if not given:
            changes[_INTER] = _IN_CALL
        elif flags.tensorflow_inter_op_parallelism != _IN_CALL:
            gives_way(f"executor {tuned.executor}", given)
    if tuned.engine not in (None, flags.engine):
        if flags.engine == ServerFlags.engine:
            changes["engine"] = tuned.engine
        else:
            gives_way(TITLES[tuned.engine or ""], f"--engine={flags.engine}")
    if tuned.concurrency > 1:
        words, slots = f"{tuned.concurrency} in flight", -(-tuned.concurrency // flags.workers)
        for flag in ("max_in_flight", "grpc_max_threads"):
            if (value := getattr(flags, flag)) is not None and value < slots:
                gives_way(words, f"--{flag}={value}")
        if flags.slots is None:
            changes["slots"] = slots
        elif flags.slots != slots:
            gives_way(words, f"--slots={flags.slots}")
    batch = tuned.batch if tuned.batch is not None and tuned.batch > 1 else None
    if batch is not None and flags.enable_batching is not None:
        given = "--enable_batching" if flags.enable_batching else "--noenable_batching"
        if flags.batching_parameters_file:
            given = f"--batching_parameters_file={flags.batching_parameters_file}"
        gives_way(f"batch {batch}", given)
        batch = None
    return replace(flags, **changes), batch


def _set_by(flags: ServerFlags, flag: str) -> tuple[str, int | None]:
    """Return what sets a number of threads, as `--flag=2`, and the number; "" if nothing does."""
    for item in (flag, "tensorflow_session_parallelism"):
        if (value := getattr(flags, item)) is not None:
            return f"--{item}={value}", value
    variable = THREADS[flag == _INTER]
    if (text := os.environ.get(variable)) is not None:
        return f"{variable}={text}", int(text) if text.isdecimal() else 0  # TensorFlow's choice
    return "", None


def check_batch(models: Iterable[ModelSettings], batch: int, name: str) -> None:
    """Raise GraphError for a model whose requests cannot share a batch.

    Versions that cannot be read are skipped; loading them reports the error.
    """
    for model in models:
        try:
            folders = find_versions(model.base_path, model.policy).versions
            versions = [signatures_with_axes(f, read_meta_graph(f)) for f in folders.values()]
        except Error:
            continue
        for signatures in versions:
            first = [item for item in signatures.values() if not item.batch_axes]  # others: logged
            if first and not any(map(may_share, first)):
                raise GraphError("tuned-batch-fixed", name=name, batch=batch, model=model.name)


DEFAULT = TuneOptions()


@public(Command(heading="Search", writes_result=False))
def tune(
    model: ModelLike,
    how: TuneOptions = DEFAULT,
    *,
    feeding: BenchmarkInputs = SYNTHETIC,
    header: Annotated[HeaderRule, HEADER] = "auto",
    columns: Annotated[Mapping[str, str] | None, COLUMNS] = None,
    output: Annotated[PathLike | None, output_flag(".tuned.json", "text output")] = None,
    force: Annotated[bool, FORCE] = False,
) -> Recommendation:
    """Find faster settings for a model on this machine.

    Tries threads, oneDNN, use of the calling thread in oneDNN, reuse of freed memory by the C
    library, batch sizes, concurrency, and the values of `env`. It searches for the lowest median
    latency and for the highest throughput. Settings from environment variables are not changed.

    At the end, it compares the best settings with TensorFlow's defaults, and with variants that
    undo one change, in interleaved rounds. The results are from this comparison. Only significantly
    faster settings are recommended, with as few changes as possible.

    `deploykit benchmark --tuned` reads the written file. After Ctrl-C, the same command resumes the
    search.

    In OpenVINO it tries threads, streams (one per concurrent request), memory and batch sizes.
    OpenVINO's outputs are first compared with TensorFlow's.

    Args:
        model: any model that `open_model` accepts.
        how: the goal, the time budget and the search space.
        feeding: the model inputs: data or synthetic values.
        output: also write the settings to this JSON file, which `load_tuned` reads. The search
            stores its trials in `OUTPUT.state`, from which the same call resumes after Ctrl-C.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is invalid,
    an input has no known shape, or the data does not match. RefusedError: an op acts on files or
    processes. LimitError: TensorFlow crashed or hung with its default settings, or in the final
    comparison.

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
        feeding, fed = read_feeding(feeding, opened.graph, rule=header, columns=columns)
        state = None if output in (None, "-") else f"{os.fspath(output)}.state"
        try:
            with feeding.explained(opened.graph):
                result = tune_model(opened, how, feeding, state=state, advance=advance)
            result = replace(result, fed=fed)
        except CrashError as error:
            raise error.within(opened.source, LimitError) from None
    if output is not None:
        text = json.dumps(result.document(), indent=2, allow_nan=False)
        write(output, [f"{text}\n".encode()], force)
    return result
