"""Measure a model behind each style of input, in rounds in turn, so that a drift hits all alike.

In each round a style computes on a batch that lies ready, makes batches that nobody computes with,
and does both. Batches that lay ready before its turn do not count.
"""

import contextlib
import datetime
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from deploykit.benchmarking.devices import check_devices
from deploykit.benchmarking.measuring import spill
from deploykit.benchmarking.sampling import Sampler, open_devices
from deploykit.benchmarking.settings import Settings
from deploykit.hardware.machine import machine, usable_cores
from deploykit.input.damage import without_damaged
from deploykit.input.data import Data, open_data
from deploykit.input.input_result import InputResult, Round, StyleResult
from deploykit.input.input_runner import BUFFERED, InputJob, Stretch, started
from deploykit.input.pipeline import STYLES, Pipeline
from deploykit.input.preprocessing import Preprocessing, steps_for
from deploykit.input.tfdata import check_cache
from deploykit.transforms.core.errors import CrashError, GraphError, LimitError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import producer_name
from deploykit.transforms.core.running.child import Worker, call
from deploykit.verification.sample_inputs import demanded_batch

ROUNDS = 5
SECONDS = 10.0
BATCH = 32
ON_ERROR = ("stop", "skip")
_MOST_THREADS = 8
_WARM_UP_STEPS = 3
_SHARES = {"compute": 0.25, "input": 0.25, "both": 0.5}  # of the time of a round
_SETTLING = 0.2  # of a phase: what reads ahead may not have filled its buffers yet

Advance = Callable[[str, int], None]


def pipeline_for(
    data: Data,
    graph: Graph | None = None,
    *,
    preprocessing: Preprocessing | None = None,
    batch: int | None = None,
    epochs: int | None = None,
    threads: int | None = None,
    shuffle: int | None = None,
    cache: str = "",
    buckets: Sequence[int] = (),
    private_threads: int | None = None,
) -> Pipeline:
    """Return the pipeline from data to the inputs of a graph, or to all features without one.

    GraphError: what it would feed does not fit the inputs, or has no lengths to divide by.
    """
    demanded = None if graph is None else demanded_batch(graph)
    if demanded and batch and batch != demanded:
        raise GraphError(
            f"the model takes {demanded} samples at once, so a batch of {batch} cannot be run"
        )
    if threads is None:
        threads = max(2, min(_MOST_THREADS, usable_cores()))
    found = Pipeline(
        data,
        steps_for(data, graph, preprocessing or Preprocessing()),
        batch=demanded or batch or BATCH,
        whole=demanded is not None,
        epochs=epochs,
        threads=threads,
        shuffle=shuffle,
        cache=cache,
        buckets=tuple(buckets),
        private_threads=private_threads,
    )
    if buckets and not found.padded:
        raise GraphError(f"{data.path}: no input takes texts of different lengths, so there is "
                         "nothing to put in buckets")  # fmt: skip
    return found


def measure_input(
    graph: Graph | None,
    data: Data | str,
    styles: Iterable[str] = STYLES,
    *,
    preprocessing: Preprocessing | None = None,
    batch: int | None = None,
    fetches: Sequence[str] = (),
    init: Sequence[str] = (),
    wait_ms: float | None = None,
    settings: Settings = Settings(),  # noqa: B008  it is frozen
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
    on_error: str = "stop",
    cache: str = "",
    shuffle: int | None = None,
    buckets: Sequence[int] = (),
    private_threads: int | None = None,
    service: str = "",
    advance: Advance = lambda name, count: None,
) -> InputResult:
    """Measure how fast a graph runs behind each style of input, and what limits it.

    Args:
        graph: frozen, or with variables that `init` sets; None: nothing computes, steps only wait.
        data: what `open_data` found, or its path.
        styles: feed, queue, tfdata, which have their turns.
        preprocessing: what becomes of the features; default: what the inputs ask for.
        batch: records at once; default: what the inputs demand, or 32.
        fetches: tensors, or ops such as a training step; default: the graph's outputs.
        init: ops that are run once, before.
        wait_ms: wait so long in place of computing, as for an accelerator: it takes no CPU.
        settings: of the session: threads, device, oneDNN.
        seconds: how long each style is measured, in all rounds together.
        rounds: how often each has its turn.
        on_error: `stop`, or `skip`, which leaves out damaged images, also in TFRecords.
        cache: what tf.data keeps after parsing: nothing, or in `memory`, or in a new file.
        shuffle: a seed by which records change places.
        buckets: lengths at which tf.data divides texts, so that batches hold texts of like length.
        private_threads: of a pool of tf.data's own; default: it shares the session's.
        service: where a tf.data service listens whose workers read for the style tfdata. One epoch
            of ids is gone through before.
        advance: called with what comes next, and how many steps there are.

    FileError, GraphError: data are damaged or do not fit. VerificationError: the service gives a
    record twice, or not at all. LimitError: TensorFlow died or hung.
    KeyboardInterrupt: nothing was measured yet.
    """
    styles = tuple(styles)
    check_cache(cache)
    if isinstance(data, str):
        data = open_data(data, None if preprocessing is None else preprocessing.columns)
    if graph is None and wait_ms is None:
        raise GraphError("there is no model and no simulated accelerator, so nothing is measured")
    pipeline = pipeline_for(
        data,
        graph,
        preprocessing=preprocessing,
        batch=batch,
        cache=cache,
        shuffle=shuffle,
        buckets=buckets,
        private_threads=private_threads,
    )
    if graph is not None:
        refuse_own_queues(graph, (*(fetches or graph.outputs), *init))
    check_devices([settings.device])
    skipped: tuple[str, ...] = ()
    distinct = None
    start = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    seen = machine()
    sampler = Sampler(open_devices(), lambda line: advance(line, 0))
    outputs = tuple(fetches) or (() if graph is None else tuple(graph.outputs))
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        if on_error == "skip":
            advance("look for damage", 0)
            pipeline, skipped = without_damaged(pipeline, Path(folder))
        if service:
            pipeline = replace(pipeline, service=service)
            advance("check an epoch", 0)
            distinct = call("deploykit.input.service:check_epoch", pipeline.data, service)
        model = None
        if graph is not None:
            model = str(Path(folder) / "model.pb")
            spill(graph, Path(model))
        jobs = [
            InputJob(style, pipeline, model, outputs, tuple(init), wait_ms, settings)
            for style in styles
        ]
        found, interrupted = _in_turn(jobs, seconds, rounds, sampler, advance)
    computes = "simulated" if wait_ms is not None else settings.device.partition(":")[0]
    results = tuple(
        StyleResult(
            style,
            data.kind,
            tuple(turns),
            cores=float(usable_cores()),
            devices=sampler.facts(style)["devices"],
            computes=computes,
        )
        for style, turns in found.items()
        if turns
    )
    return InputResult(
        results,
        data.path,
        data.kind,
        pipeline.data.records,
        pipeline.batch,
        wait_ms,
        skipped,
        seen,
        start,
        interrupted,
        distinct,
        how={
            "shuffle": shuffle,
            "cache": cache,
            "buckets": list(buckets),
            "private_threads": private_threads,
        },
    )


def _in_turn(
    jobs: Sequence[InputJob], seconds: float, rounds: int, sampler: Sampler, advance: Advance
) -> tuple[dict[str, list[Round]], bool]:
    """Return the rounds of each style, and whether Ctrl-C ended them early.

    KeyboardInterrupt: there is none yet.
    """
    found: dict[str, list[Round]] = {job.style: [] for job in jobs}
    steps = len(jobs) * (1 + rounds)
    with contextlib.ExitStack() as stack:
        courses: list[tuple[str, Worker]] = []
        try:
            for job in jobs:  # one after another: a start beside another takes its cores
                advance(f"load {job.style}", steps)
                worker = started(job)
                stack.callback(worker.close)
                courses.append((job.style, worker))
                for phase in ("compute", "both"):
                    _ask(job.style, worker, phase, 1e9, _WARM_UP_STEPS)
            for number in range(rounds):
                for style, worker in courses if number % 2 == 0 else reversed(courses):
                    advance(style, steps)
                    found[style].append(_round(style, worker, seconds / rounds, sampler))
        except KeyboardInterrupt:
            if not any(found.values()):
                raise
            return found, True
    return found, False


def _round(style: str, worker: Worker, seconds: float, sampler: Sampler) -> Round:
    """Return what a style does in its turn."""
    found: dict[str, Stretch] = {}
    for phase, share in _SHARES.items():
        limit = share * seconds
        if phase == "compute":
            _ask(style, worker, phase, _SETTLING * limit)
        else:
            _ask(style, worker, phase, limit, BUFFERED[style])
        watching = sampler.watching(style, worker.pid)
        with watching if phase == "both" else contextlib.nullcontext():
            found[phase] = _ask(style, worker, phase, limit)
    return Round(**found)


def _ask(style: str, worker: Worker, *arguments: object) -> Stretch:
    """Run a phase in a style's process; LimitError: TensorFlow died or hung."""
    try:
        answer: Stretch = worker.ask("run", *arguments)
    except (CrashError, LimitError) as error:
        raise LimitError(f"{style}: {error}") from None
    return answer


def refuse_own_queues(graph: Graph, fetches: Sequence[str]) -> None:
    """Raise GraphError where what is fetched takes from a queue of the graph's own.

    A GraphDef has no queue runners, so nothing would ever fill it.
    """
    waiting = [producer_name(tensor) for tensor in fetches]
    seen = set(waiting)
    while waiting:
        node = graph[waiting.pop()]
        if graph.is_input(node.name):
            continue
        if node.op.startswith(("QueueDequeue", "ReaderRead")):
            raise GraphError(
                f"node '{node.name}' takes from a queue that nothing fills, because a GraphDef has "
                f"no queue runners; feed what it gives: --inputs {node.name}"
            )
        new = {producer_name(tensor) for tensor in node.inputs} - seen
        seen |= new
        waiting += new
