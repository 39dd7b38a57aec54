"""The result of measuring input styles, with a JSON form."""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.input_speed.bottleneck import Rates, ReadingCost, Verdict, undecided, verdict
from deploykit.data.input_speed.input_runner import PHASES, Stretch
from deploykit.data.pipeline import Pipeline
from deploykit.data.user_pipeline import OWN
from deploykit.importers.open_model import OpenedModel
from deploykit.transforms.common.documents import AsHtml, Hidden, IfSet, Written, head, written

_AGREEING = 0.4  # minimum share of rounds that agree on a limit on a loaded machine
_SLOWEST = 1e-9  # items per second of a phase without items


def _idle_share(stretch: Stretch) -> float | None:
    """Return a lower bound of the share of the time in which no thread ran or could have run."""
    return None if stretch.wanted is None else max(0.0, 1 - stretch.wanted)


@dataclass(frozen=True)
class Round:
    """The measurements of each phase in one round of a style."""

    input: Stretch
    compute: Stretch
    both: Stretch


@dataclass(frozen=True)
class StyleResult:
    """The rounds of an input style, with its rates and verdict."""

    style: str
    kind: Hidden[str]
    """The kind of the data: `records`, `csv`, `images`, `arrays` or `own`."""
    rounds: tuple[Round, ...]
    cores: float
    devices: Sequence[Mapping[str, Any]] = ()
    """The mean and maximum of each GPU metric during the run."""
    computes: Hidden[str] = "cpu"
    """The device of the model: cpu, gpu or simulated."""

    decoding: Hidden[float | None] = None
    """The share of the CPU time of reading an image spent decoding it; None without images."""

    @property
    @written(flat=True)
    def _rates(self) -> dict[str, Any]:
        rates, reading = self.rates, self.rates.reading
        return {
            "items_per_second": rates.both,
            "compute_only": rates.compute,
            "input_only": rates.input,
            "ceiling": rates.ceiling,
            "floor": rates.floor,
            "share_of_ceiling": rates.share,
            "cpu": rates.cpu,
            "machine": {name: getattr(rates, name) for name in ("idle", "iowait", "foreign")},
            "reading": {
                "cpu": reading.cpu,
                "idle_share": reading.idle_share,
                "bytes_per_second": reading.bytes,
                "storage_bytes_per_second": reading.read,
                "decoding_share": reading.decoding,
            },
            "unstable": rates.unstable,
        }

    @property
    def rates(self) -> Rates:
        """The medians over the rounds."""
        return self._of(self.rounds)

    @property
    @written(flat=True)
    def verdict(self) -> Verdict:
        """The bottleneck of this style."""
        result = self._judged(self.rates)
        limits = Counter(self._judged(self._of([round_])).limit for round_ in self.rounds)
        if self.rates.crowded and limits[result.limit] < _AGREEING * len(self.rounds):
            return undecided(self.rates, limits)
        return result

    def _judged(self, rates: Rates) -> Verdict:
        return verdict(self.style, self.kind, rates, self.computes)

    def _of(self, rounds: Sequence[Round]) -> Rates:
        def each(
            phase: str, figure: Callable[[Stretch], float | None], least: float = 0.0
        ) -> float | None:
            values = [figure(getattr(turn, phase)) for turn in rounds]
            known = [max(least, value) for value in values if value is not None]
            return statistics.median(known) if known else None

        def rate(phase: str) -> float:
            return each(phase, lambda stretch: stretch.items / stretch.seconds, _SLOWEST) or 0.0

        def pooled(phase: str) -> float:
            stretches: list[Stretch] = [getattr(turn, phase) for turn in rounds]
            items = sum(stretch.items for stretch in stretches)
            return max(_SLOWEST, items / sum(stretch.seconds for stretch in stretches))

        def bytes_of(name: str) -> float | None:
            read = [stretch for turn in rounds for stretch in (turn.input, turn.both)]
            counts = [getattr(stretch, name) for stretch in read]
            return None if None in counts else sum(counts) / sum(item.seconds for item in read)

        reading = ReadingCost(
            cpu=each("input", lambda stretch: stretch.cores) or 0.0,
            idle_share=each("input", _idle_share),
            read=bytes_of("read_bytes"),
            asked=bytes_of("asked_bytes"),
            iowait=each("input", lambda stretch: stretch.iowait),
            decoding=self.decoding,
        )
        return Rates(
            # Disks deliver data in bursts, some of which a median would miss.
            both=pooled("both") if reading.waiting else rate("both"),
            compute=rate("compute"),
            input=pooled("input") if reading.waiting else rate("input"),
            cpu=each("both", lambda stretch: stretch.cores) or 0.0,
            cores=self.cores,
            idle=each("both", lambda stretch: stretch.idle),
            iowait=each("both", lambda stretch: stretch.iowait),
            foreign=each("both", lambda stretch: stretch.foreign),
            wanted=each("both", lambda stretch: stretch.wanted),
            reading=reading,
        )

    @property
    @written()
    def spread(self) -> dict[str, tuple[float, float]]:
        """The smallest and the largest rate of each phase."""
        results = {}
        for phase in PHASES:
            stretches = [getattr(round_, phase) for round_ in self.rounds]
            rates = [stretch.items / stretch.seconds for stretch in stretches]
            results[phase] = (min(rates), max(rates))
        return results


def _about(pipeline: Pipeline) -> dict[str, Any]:
    keys = ("batch", "shuffle", "cache", "buckets", "private_threads")
    data = {key: getattr(pipeline.data, key) for key in ("path", "kind", "records")}
    return {"data": data, **{key: getattr(pipeline, key) for key in keys}}


@dataclass(frozen=True)
class InputResult(AsHtml):
    """The results of interleaved input styles, with the same data and model."""

    HEAD: ClassVar = head("input")

    styles: tuple[StyleResult, ...]
    model: Hidden[OpenedModel]
    pipeline: Annotated[Pipeline, Written(flat=True, by=_about)]
    """The pipeline that all styles built, over the valid records only."""
    settings: IfSet[RunConfig]
    """The settings of the model's process, which is also the one that reads; older documents lack
    them."""
    wait_ms: Annotated[float | None, Written("simulated_accelerator_ms")]
    skipped: tuple[str, ...]
    """The damaged files that were skipped."""
    machine: Mapping[str, Any]
    started: str
    interrupted: bool = False
    distinct: Annotated[int | None, Written("service_epoch")] = None
    """The number of records in an epoch of the tf.data service; None without a service."""
    cold_files: int = 0
    """The number of files outside the page cache, which each round read from the disk again."""

    @property
    def fed(self) -> Mapping[str, str]:
        """The preprocessing of the data for each input, as text."""
        return {} if self.pipeline.data.kind == OWN else self.pipeline.fed
