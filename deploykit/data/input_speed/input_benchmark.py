"""Measures a model with each input style, in interleaved rounds, so that drift affects all equally.

In each round, a style runs the model on a batch in memory, reads batches without the model, and
then does both. Batches that were prefetched before a round do not count.
"""

import contextlib
import datetime
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploykit.benchmarking.devices import check_devices
from deploykit.benchmarking.rounds import spill
from deploykit.benchmarking.run_config import FEED, SECONDS, RunConfig
from deploykit.benchmarking.system_load import Sampler
from deploykit.data.data import open_data, vector_width
from deploykit.data.input_speed.input_result import InputResult, Round, StyleResult
from deploykit.data.input_speed.input_runner import BUFFERED, InputJob, Stretch, started
from deploykit.data.invalid_records import without_damaged
from deploykit.data.pipeline import (
    PIPELINE,
    PLAIN,
    STYLES,
    InputPipelineOptions,
    Pipeline,
    pipeline_for,
)
from deploykit.data.preprocessing import refuse_batch_axes
from deploykit.data.tfdata import check_cache
from deploykit.data.tfdata_service import reachable
from deploykit.data.user_pipeline import OWN, OwnPipeline, own_pipeline
from deploykit.importers.open_model import OpenedModel
from deploykit.system.cpu_usage import forget, not_in_memory, wait_for_idle
from deploykit.system.gpu_counters import open_devices
from deploykit.system.machine import machine, usable_cores
from deploykit.transforms.common.errors import CrashError, FileError, GraphError, LimitError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import producer_name
from deploykit.transforms.ir.node_index import reached
from deploykit.transforms.runtime.child_process import Worker, call
from deploykit.verification.synthetic.sample_inputs import names_of_inputs

logger = logging.getLogger("deploykit")

ROUNDS = 5
ON_ERROR = ("stop", "skip")
_WARM_UP_STEPS = 3
_SHARES = {"compute": 0.25, "input": 0.25, "both": 0.5}  # shares of the time of a round
_SETTLING = 0.2  # share of a phase in which prefetching may still fill its buffers
_DRAINING = 2  # maximum multiple of a phase for consuming prefetched batches
_LEAST = 4  # minimum steps of the model alone

Advance = Callable[[str, int], None]


def measure_input(
    model: OpenedModel,
    data: str | None,
    piping: InputPipelineOptions = PLAIN,
    settings: RunConfig = RunConfig(),  # noqa: B008  it is frozen
    *,
    styles: Iterable[str] = STYLES,
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
    advance: Advance = lambda name, count: None,
) -> InputResult:
    """Measure the speed of a model with each input style, and find the bottleneck.

    Args:
        model: a frozen model, or one with variables that the ops in `piping.init` set.
        data: the path of the data, as for `open_data`; None for a user pipeline without data.
        piping: the input options, and the ops to run.
        settings: the session's batch size, threads, device and oneDNN setting.
        styles: the input styles to measure: feed, queue, tfdata, pipeline.
        seconds: the measuring time of each style, over all rounds.
        rounds: the number of rounds.
        advance: called with the name of the next part and the number of parts.

    FileError, GraphError: the data is damaged or does not match. VerificationError: a tf.data
    service repeats or omits a record. LimitError: TensorFlow crashed or hung.
    KeyboardInterrupt: interrupted before the first measurement.
    """
    graph = model.graph
    check_cache(os.fspath(piping.cache or ""))
    pipeline, own, styles = _planned(graph, data, piping, settings.batch, tuple(styles))
    refuse_own_queues(graph, (*graph.outputs, *piping.init))
    check_devices([settings.device])
    start = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    seen = machine()
    sampler = Sampler(open_devices(), lambda line: advance(line, 0))
    address = piping.service_address
    service = "" if address is None else reachable(address)
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        pipeline, skipped = _sound(pipeline, piping.on_error, Path(folder), advance)
        if pipeline.data.kind != OWN:
            pipeline.log_inputs()
        pipeline, distinct = _served(pipeline, service, advance)
        path = Path(folder, "model.pb")
        spill(graph, path)
        init, wait_ms = tuple(piping.init), piping.simulated_compute_ms
        jobs = []
        for style in styles:
            owns = own if style == PIPELINE else None
            job = InputJob(style, pipeline, str(path), graph.outputs, init, wait_ms, settings)
            jobs.append(replace(job, own=owns))
        cold = not_in_memory(pipeline.data.files)
        course = _Turns(seconds / rounds, rounds, sampler, advance, cold)
        interrupted = course.run(jobs)
    computes = "simulated" if wait_ms is not None else settings.device.partition(":")[0]
    return InputResult(
        course.results(pipeline.data.kind, computes), model, pipeline, wait_ms=wait_ms,
        settings=replace(settings, input=FEED), skipped=skipped, machine=seen, started=start,
        interrupted=interrupted, distinct=distinct, cold_files=len(cold),
    )  # fmt: skip


def _planned(
    graph: Graph,
    data: str | None,
    piping: InputPipelineOptions,
    batch: int | None,
    styles: tuple[str, ...],
) -> tuple[Pipeline, OwnPipeline | None, tuple[str, ...]]:
    """Return deploykit's pipeline, the user's pipeline, and the styles that can be measured.

    If only the user's pipeline can read the data, it is measured alone.
    """
    if piping.columns:
        piping.declared(graph)  # an error names this option
    what = "reading files while the model runs"
    advice = "Give a .npz file of arrays with --data, and no other options of the input pipeline."
    refuse_batch_axes(graph, piping.preprocess, what, advice)
    own = None
    if piping.pipeline is not None:
        own = own_pipeline(piping.pipeline, data, batch, graph)
        if data is None:
            return own.alone(), own, (PIPELINE,)
    assert data is not None
    names = next(iter(names_of_inputs(graph).values()), ("",))
    try:
        declared = piping.declared(graph)
        opened = open_data(
            data, declared.columns, graph if declared.chosen else None, rule=declared.rule,
            width=vector_width(graph), chosen=declared.chosen, input_name=names[0],
        )  # fmt: skip
        return pipeline_for(opened, graph, batch=batch, piping=piping), own, styles
    except (FileError, GraphError) as error:
        if own is None or not set(styles) <= {"tfdata", PIPELINE}:
            raise
        if styles != (PIPELINE,):
            logger.info("%s is measured alone, because tfdata cannot read its data: %s", own.name,
                        error)  # fmt: skip
        return own.alone(), own, (PIPELINE,)


def _sound(
    pipeline: Pipeline, on_error: str, folder: Path, advance: Advance
) -> tuple[Pipeline, tuple[str, ...]]:
    """Return the pipeline over the valid records, and the locations of the others."""
    if on_error not in ON_ERROR:
        raise GraphError("not-one-of", what="on_error", known=ON_ERROR, got=on_error)
    if on_error == "stop" or pipeline.data.kind == OWN:
        return pipeline, ()
    advance("check records", 0)
    return without_damaged(pipeline, folder)


def _served(pipeline: Pipeline, service: str, advance: Advance) -> tuple[Pipeline, int | None]:
    """Return the pipeline with a tf.data service, and the records in an epoch; None: no service.

    Reads the record ids of one epoch from the service.
    """
    if not service:
        return pipeline, None
    advance("check an epoch", 0)
    distinct: int = call("deploykit.data.tfdata_service:check_epoch", pipeline.data, service)
    return replace(pipeline, service=service), distinct


@dataclass
class _Turns:
    """Interleaved measurement rounds of input styles."""

    seconds: float
    """The seconds of one round of one style."""
    rounds: int
    sampler: Sampler
    advance: Advance
    cold: Sequence[str]
    """Files that were not in the page cache, and are evicted from it before each round."""
    measured: dict[str, list[Round]] = field(default_factory=dict)
    decoding: dict[str, float | None] = field(default_factory=dict)

    def run(self, jobs: Sequence[InputJob]) -> bool:
        """Run all rounds; return whether Ctrl-C ended them early.

        KeyboardInterrupt: no round has finished yet.
        """
        self.measured = {job.style: [] for job in jobs}
        steps = len(jobs) * (1 + self.rounds)
        with contextlib.ExitStack() as stack:
            workers: list[tuple[str, Worker]] = []
            try:
                for job in jobs:  # one after another: parallel starts would compete for cores
                    self.advance(f"load {job.style}", steps)
                    worker = started(job)
                    stack.callback(worker.close)
                    workers.append((job.style, worker))
                    self.decoding[job.style] = _asked(job.style, worker, "decoding")
                    for phase in ("compute", "both"):
                        _ask(job.style, worker, phase, 1e9, _WARM_UP_STEPS)
                for number in range(self.rounds):
                    for style, worker in workers if number % 2 == 0 else reversed(workers):
                        self.advance(style, steps)
                        # Prefetching of another style would compete for the disk.
                        wait_for_idle([item.pid for _, item in workers], self.seconds)
                        self.measured[style].append(self._turn(style, worker))
            except KeyboardInterrupt:
                if not any(self.measured.values()):
                    raise
                return True
        return False

    def _turn(self, style: str, worker: Worker) -> Round:
        """Measure one round of a style."""
        stretches: dict[str, Stretch] = {}
        forget(self.cold)
        for phase, share in _SHARES.items():
            limit = share * self.seconds
            if phase == "compute":
                _ask(style, worker, phase, _SETTLING * limit)
            else:
                _ask(style, worker, phase, _DRAINING * limit, BUFFERED[style])
            watching = self.sampler.watching(style, worker.pid)
            with watching if phase == "both" else contextlib.nullcontext():
                least = _LEAST if phase == "compute" else BUFFERED[style]
                stretches[phase] = _ask(style, worker, phase, limit, None, least)
        return Round(**stretches)

    def results(self, kind: str, computes: str) -> tuple[StyleResult, ...]:
        """Return the result of each measured style, for data of a kind."""
        cores = float(usable_cores())
        return tuple(
            StyleResult(
                style, kind, tuple(turns), cores, self.sampler.facts(style)["devices"], computes,
                self.decoding.get(style),
            )
            for style, turns in self.measured.items()
            if turns
        )  # fmt: skip


def _ask(style: str, worker: Worker, *arguments: object) -> Stretch:
    """Run a phase in the process of a style. LimitError: TensorFlow crashed or hung."""
    answer: Stretch = _asked(style, worker, "run", *arguments)
    return answer


def _asked(style: str, worker: Worker, method: str, *arguments: object) -> Any:
    try:
        return worker.ask(method, *arguments)
    except (CrashError, LimitError) as error:
        raise error.within(style, LimitError) from None


def refuse_own_queues(graph: Graph, fetches: Sequence[str]) -> None:
    """Raise GraphError if a fetched tensor depends on a queue in the graph.

    A GraphDef has no queue runners, so nothing would fill the queue.
    """

    def needed(name: str) -> Iterable[str]:
        return () if graph.is_input(name) else map(producer_name, graph[name].inputs)

    for name in reached(map(producer_name, fetches), needed):
        if graph[name].op.startswith(("QueueDequeue", "ReaderRead")) and not graph.is_input(name):
            raise GraphError("queue-not-fed", node=name)
