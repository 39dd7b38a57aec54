"""What a measurement of input styles found, as a value with a JSON form."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deploykit.freezing.open_model import OpenedModel
from deploykit.input.input_runner import Stretch
from deploykit.input.pipeline import Pipeline
from deploykit.input.verdict import Rates, Verdict, verdict
from deploykit.storage.documents import FORMAT


@dataclass(frozen=True)
class Round:
    """What one turn of a style gave in each phase."""

    input: Stretch
    compute: Stretch
    both: Stretch


@dataclass(frozen=True)
class StyleResult:
    """All rounds of a style, and what follows from them."""

    style: str
    kind: str
    """Of the data."""
    rounds: tuple[Round, ...]
    cores: float
    devices: Sequence[Mapping[str, Any]] = ()
    """GPUs while it ran: mean and maximum of each figure."""
    computes: str = "cpu"
    """Where the model does: cpu, gpu or simulated."""

    @property
    def rates(self) -> Rates:
        """The medians of the rounds."""
        return Rates(
            both=self._median(lambda each: each.both.items / each.both.seconds),
            compute=self._median(lambda each: each.compute.items / each.compute.seconds),
            input=self._median(lambda each: each.input.items / each.input.seconds),
            cpu=self._median(lambda each: each.both.cpu_seconds / each.both.seconds),
            cores=self.cores,
        )

    @property
    def verdict(self) -> Verdict:
        """What limits it."""
        return verdict(self.style, self.kind, self.rates, self.computes)

    def _median(self, figure: Callable[[Round], float]) -> float:
        return statistics.median(figure(each) for each in self.rounds)

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        rates = self.rates
        return {
            "style": self.style,
            "items_per_second": rates.both,
            "compute_only": rates.compute,
            "input_only": rates.input,
            "ceiling": rates.ceiling,
            "floor": rates.floor,
            "share_of_ceiling": rates.share,
            "cpu": rates.cpu,
            "cores": rates.cores,
            **self.verdict.document(),
            "devices": list(self.devices),
            "rounds": [asdict(each) for each in self.rounds],
        }


@dataclass(frozen=True)
class InputResult:
    """Styles that were measured in turn, over the same data before the same model."""

    styles: tuple[StyleResult, ...]
    model: OpenedModel
    pipeline: Pipeline
    """What all of them built, over sound records alone."""
    wait_ms: float | None
    skipped: tuple[str, ...]
    """Damaged files that were left out."""
    machine: Mapping[str, Any]
    started: str
    interrupted: bool = False
    distinct: int | None = None
    """Records of the epoch that a tf.data service gave, each once; None: there was no service."""

    @property
    def fed(self) -> Mapping[str, str]:
        """What becomes of the data on the way to each input, in words."""
        return self.pipeline.fed

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        pipeline, data = self.pipeline, self.pipeline.data
        return {
            "kind": "input",
            "format": FORMAT,
            "started": self.started,
            "interrupted": self.interrupted,
            "data": {"path": data.path, "kind": data.kind, "records": data.records},
            "batch": pipeline.batch,
            "simulated_accelerator_ms": self.wait_ms,
            "skipped": list(self.skipped),
            "service_epoch": self.distinct,
            "shuffle": pipeline.shuffle,
            "cache": pipeline.cache,
            "buckets": list(pipeline.buckets),
            "private_threads": pipeline.private_threads,
            "styles": [each.document() for each in self.styles],
            "machine": dict(self.machine),
        }
