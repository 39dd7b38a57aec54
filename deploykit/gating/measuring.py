"""Runs the gate: quality on all samples, then starts and interleaved rounds within the budget."""

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deploykit.benchmarking.engines.engine_choice import in_own_engine
from deploykit.benchmarking.inputs import BenchmarkInputs
from deploykit.benchmarking.results import load_tuned
from deploykit.benchmarking.rounds import candidates_of, measure
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.worker_sessions import BenchmarkCandidate
from deploykit.evaluation.examining import examine
from deploykit.evaluation.result import Accuracy
from deploykit.gating.compatibility import signature_check, size_check
from deploykit.gating.limits import GateLimits
from deploykit.gating.quality import quality_checks
from deploykit.gating.result import GateResult
from deploykit.gating.speed import Undecided, speed_checks
from deploykit.gating.starts import measured_starts, start_checks
from deploykit.gating.verdict import FAIL, Check
from deploykit.importers.open_model import OpenedModel
from deploykit.rendering.progress import Work, working
from deploykit.storage.ship_report import ship_report
from deploykit.system.machine import machine, usable_cores
from deploykit.transforms.common.errors import GraphError
from deploykit.verification.samples import Dataset
from deploykit.verification.synthetic.sample_inputs import demanded_batch

STEPS = ("read", "quality", "start-up and memory", "speed")
BASELINE, CANDIDATE = "baseline", "candidate"
STARTS_SHARE = 0.4
"""Largest share of the budget for start-up and memory."""
_SECONDS_EACH = 2.8
"""Seconds that a benchmark of two models takes for each second of measuring one: twice that second,
and the loading of sessions."""
_SHORTEST = 1.0  # seconds


@dataclass(frozen=True)
class GateRun:
    """What to measure: both models, their samples, limits and time."""

    models: Mapping[str, OpenedModel]
    samples: Dataset
    alike: Callable[[OpenedModel], Dataset]
    """Returns the samples in the form that the candidate takes."""
    metric: str
    limits: GateLimits
    batch: int | None
    budget: float

    def result(self, work: Work) -> GateResult:
        """Measure everything and return the checks.

        If the signatures are incompatible, nothing else runs. Errors are those of `examine` and
        `measure`.
        """
        began, now = time.monotonic(), datetime.datetime.now().astimezone()
        baseline, candidate = self.models[BASELINE], self.models[CANDIDATE]
        limits, notes, samples, batch, busy = self.limits, list[str](), 0, 0, ""
        checks = [
            signature_check(baseline, candidate, not limits.allow_signature_change),
            size_check(baseline, candidate, limits.max_size_increase),
        ]
        if checks[0].verdict == FAIL:
            notes.append("signatures are incompatible, so nothing else was compared")
        else:
            work.begin("quality")
            if (found := self._examined(notes)) is not None:
                samples = found.samples
                checks += quality_checks(found, limits)
            batch, busy, timed = self._speed(work)
            checks += timed
        return GateResult(
            baseline=baseline.source,
            candidate=candidate.source,
            checks=tuple(checks),
            samples=samples,
            batch=batch,
            quality_confidence=limits.quality_confidence,
            started=now.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - began, 1),
            budget=self.budget,
            machine=f"{machine().get('cpu') or 'unknown CPU'}, {usable_cores()} cores",
            busy=busy,
            notes=tuple(notes),
        )

    def _examined(self, notes: list[str]) -> Accuracy | None:
        """Compare the predictions, and add what to know about that to the notes.

        Return None if they cannot be compared and have no limit. GraphError: they have one.
        """
        drop, agreement = self.limits.max_accuracy_drop, self.limits.min_agreement
        try:
            with working("quality", "run", "compare") as work:
                found = examine(self.models, self.samples, self.alike, self.metric, 0, work,
                                self.limits.quality_z)  # fmt: skip
            if agreement is not None and found.agreement is None:
                raise GraphError("models-not-comparable", source=self.models[BASELINE].source)
        except GraphError as error:
            if error.code != "models-not-comparable" or drop is not None or agreement is not None:
                raise
            notes.append(f"predictions were not compared: {error}")
            return None
        notes += [weak.text for weak in found.weak_classes]
        outputs = self.models[BASELINE].frozen.outputs
        if len(outputs) > 1 and (found.change is not None or found.agreement is not None):
            notes.append(f"only the first of {len(outputs)} outputs was compared: {outputs[0]}")
        if found.change is None and None not in (drop, agreement):
            notes.append("without labels, the agreement is checked, not the drop of accuracy")
        return found

    def _speed(self, work: Work) -> tuple[int, str, Sequence[Check]]:
        """Return the batch, a note on a loaded machine, and the checks of speed and memory."""
        limits, began = self.limits, time.monotonic()
        with contextlib.ExitStack() as stack:
            pair = [stack.enter_context(self._candidate(name)) for name in self.models]
            work.begin("start-up and memory")
            jobs = [item.job for item in pair]
            pairs = measured_starts(jobs, limits, STARTS_SHARE * self.budget, work)
            work.begin("speed")
            left = self.budget - (time.monotonic() - began)
            undecided = Undecided(limits)
            result = measure(pair, seconds=max(_SHORTEST, left / _SECONDS_EACH), advance=work,
                             undecided=undecided)  # fmt: skip
        if result.interrupted:
            raise KeyboardInterrupt
        first, second = result.measurements
        return first.samples, result.busy, (
            *speed_checks(first, second, limits, undecided.confidence),
            *start_checks(pairs, limits, limits.confidence),
        )  # fmt: skip

    @contextlib.contextmanager
    def _candidate(self, name: str) -> Iterator[BenchmarkCandidate]:
        """Yield a model with its own samples and settings, for requests of the size of both."""
        model = self.models[name]
        feeding = BenchmarkInputs(data=self.samples if name == BASELINE else self.alike(model))
        fixed = (demanded_batch(item.graph) for item in self.models.values())
        batch = self.batch or next(filter(None, fixed), None)
        settings = [replace(item, batch=batch) for item in settings_of(model)]
        with candidates_of({name: model}, {name: settings}, feeding) as (candidate,):
            yield candidate


def settings_of(model: OpenedModel) -> Sequence[RunConfig]:
    """Return the settings to measure a model with: those that `ship` tuned, or the defaults."""
    report = None if model.files is None else ship_report(model.files.path)
    if report is not None and report.tuned is not None:
        return [replace(load_tuned(report.tuned), concurrency=1)]
    return in_own_engine(model, [RunConfig()])
