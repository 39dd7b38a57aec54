"""Short runs of one model with many settings, interleaved with the default settings.

So a drift of the machine affects both alike. TensorFlow starts once for all settings that differ
only in batch and concurrency.
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
TURN_SECONDS = 0.03  # many short rounds scatter less than few long ones under load
FEWEST = 6  # rounds before a clearly slower trial stops
WARM_UP_SECONDS = 0.25
ENOUGH_SECONDS = 5.0  # total of all rounds; a slow model gets fewer rounds


class Trials:
    """One process with the default settings, and another with the settings last tried.

    Outputs of another engine are compared with TensorFlow's before it is tried.
    """

    def __init__(
        self, job: Callable[[RunConfig], Job], default: RunConfig, model: OpenedModel
    ) -> None:
        """Start the process of the default settings; `job` returns the job for settings."""
        self._job, self._default, self._model = job, default, model
        self._compared: dict[object, Error | None] = {}
        self._check_answers(default)
        self.until = float("inf")
        """Deadline (time.monotonic) after which a hanging trial is stopped."""
        began = time.monotonic()
        self._reference = started(job(default))
        self._worker: Worker | None = None
        self._process: RunConfig | None = None
        try:
            self.onednn: bool = self._reference.ask("facts").get("onednn", False)
            """Whether TensorFlow uses oneDNN by default."""
            self._reference.ask("run", 0, 1)
            self._reference.ask("run", WARM_UP_SECONDS)
        except BaseException:
            self._reference.close()
            raise
        self.start_seconds = time.monotonic() - began

    def __call__(self, settings: RunConfig) -> Figures:
        """Run with these settings. Error: TensorFlow refuses them, dies or hangs."""
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
        """Compare the engine's outputs with TensorFlow's, once per batch size."""
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
        """Return a process with these settings; reuse the last one if only its inputs change."""
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
    """Return whether gains are below 1, beyond the scatter of their rounds."""
    middle, error = level(gains)
    return middle + NOISE * error < 0


def _p99(latencies: Sequence[int]) -> float:
    """Return the 99th percentile of latencies; of a few, the maximum."""
    return float(sorted(latencies)[-(-99 * len(latencies) // 100) - 1])
