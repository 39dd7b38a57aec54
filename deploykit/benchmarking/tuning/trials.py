"""Short runs of one model with many settings, each in turns with the default settings.

A drift of the machine thus hits both. A process starts TensorFlow once for all settings that differ
in the batch and in the calls in flight alone.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from deploykit.benchmarking.engines.engine_choice import check_answers, started
from deploykit.benchmarking.inputs import samples_in
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tuning.search import NOISE, Figures, level
from deploykit.importers.open_model import OpenedModel
from deploykit.transforms.common.errors import Error
from deploykit.transforms.runtime.child_process import ResourceLimits, Worker, limits

TURNS = 16
TURN_SECONDS = 0.03  # many short turns scatter less than few long ones on a busy machine
FEWEST = 6  # turns, after which what is clearly slower than the defaults is left
WARM_UP_SECONDS = 0.25
ENOUGH_SECONDS = 5.0  # of turns; a slow model gets fewer


class Trials:
    """The default settings in one process, and the settings last tried in another.

    Before another engine is tried, its answers are compared with TensorFlow's.
    """

    def __init__(
        self, job: Callable[[RunConfig], Job], default: RunConfig, model: OpenedModel
    ) -> None:
        """Start with the default settings; `job` gives what is run for settings."""
        self._job, self._default, self._model = job, default, model
        self._compared: dict[object, Error | None] = {}
        self._check_answers(default)
        self.until = float("inf")
        """When (time.monotonic) a trial that hangs is given up."""
        began = time.monotonic()
        self._reference = started(job(default))
        self._worker: Worker | None = None
        self._process: RunConfig | None = None
        try:
            self.onednn: bool = self._reference.ask("facts").get("onednn", False)
            """Whether TensorFlow uses oneDNN unless it is told."""
            self._reference.ask("run", 0, 1)
            self._reference.ask("run", WARM_UP_SECONDS)
        except BaseException:
            self._reference.close()
            raise
        self.start_seconds = time.monotonic() - began

    def __call__(self, settings: RunConfig) -> Figures:
        """Run with these settings. Error: TensorFlow cannot, dies or hangs."""
        self._check_answers(settings)
        left = max(self.until - time.monotonic(), 1.0)
        try:
            with ResourceLimits(min(limits.seconds, left), limits.memory, limits.show_log):
                worker = self._reference
                if settings != self._default:
                    worker = self._ready(settings)
                    worker.ask("run", 0, 1)
                    worker.ask("run", WARM_UP_SECONDS)
                return self._figures(worker, settings)
        except Error:
            self._stop()  # it may be dead
            raise

    def _check_answers(self, settings: RunConfig) -> None:
        """Compare the engine's answers with TensorFlow's, once for each batch."""
        key = settings.engine, settings.precision, settings.batch
        if key not in self._compared:
            self._compared[key] = None
            try:
                check_answers([self._job(settings)], self._model.graph, self._model.source)
            except Error as error:
                self._compared[key] = error
        if (result := self._compared[key]) is not None:
            raise result

    def close(self) -> None:
        """End both processes."""
        self._reference.close()
        self._stop()

    def _ready(self, settings: RunConfig) -> Worker:
        """Return a process with these settings, the last one if it only has to be fed otherwise."""
        process = replace(settings, batch=None, concurrency=1)
        if self._worker is not None and process == self._process:
            self._worker.ask("go_on_with", self._job(settings))
            return self._worker
        self._stop()
        self._worker, self._process = started(self._job(settings)), process
        return self._worker

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = self._process = None

    def _figures(self, worker: Worker, settings: RunConfig) -> Figures:
        items, usual_items = (
            samples_in(self._job(item).batches[0]) for item in (settings, self._default)
        )
        latencies_ns: list[int] = []
        total, faster, more = 0, [], []
        end = time.monotonic() + ENOUGH_SECONDS
        for _ in range(TURNS):
            usual, usual_time = self._turn(self._reference)
            calls, used = self._turn(worker) if worker is not self._reference else (
                usual, usual_time)  # fmt: skip
            latencies_ns += calls
            total += used
            faster.append(statistics.median(usual) / statistics.median(calls))
            more.append(items * len(calls) / used / (usual_items * len(usual) / usual_time))
            is_slower = len(faster) >= FEWEST and _are_losses(faster) and _are_losses(more)
            if is_slower or time.monotonic() > end:
                break
        return Figures(
            p50_ms=statistics.median(latencies_ns) / 1e6,
            p99_ms=_p99(latencies_ns) / 1e6,
            items_per_second=items * len(latencies_ns) / (total / 1e9),
            faster=tuple(faster),
            more=tuple(more),
        )

    def _turn(self, worker: Worker) -> tuple[list[int], int]:
        calls, used = worker.ask("run", TURN_SECONDS)
        return calls, used


def _are_losses(gains: Sequence[float]) -> bool:
    """Say whether gains in turns are below 1 beyond what the turns scatter."""
    middle, error = level(gains)
    return middle + NOISE * error < 0


def _p99(latencies: Sequence[int]) -> float:
    """Return the latency that 99 % of the calls keep to; of a few, the slowest."""
    return float(sorted(latencies)[-(-99 * len(latencies) // 100) - 1])
