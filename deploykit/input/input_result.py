"""What a measurement of input styles found, as a value with a JSON form, and for people."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from deploykit.input.input_runner import Stretch
from deploykit.input.verdict import Rates, Verdict, verdict
from deploykit.storage.documents import FORMAT
from deploykit.text.tables import new_table

if TYPE_CHECKING:
    from deploykit.text.tables import Table


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
    data: str
    kind: str
    records: int | None
    batch: int
    wait_ms: float | None
    skipped: tuple[str, ...]
    """Damaged files that were left out."""
    machine: Mapping[str, Any]
    started: str
    interrupted: bool = False
    distinct: int | None = None
    """Records of the epoch that a tf.data service gave, each once; None: there was no service."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """What was asked of the pipeline besides: shuffle, cache, buckets, private threads."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "kind": "input",
            "format": FORMAT,
            "started": self.started,
            "interrupted": self.interrupted,
            "data": {"path": self.data, "kind": self.kind, "records": self.records},
            "batch": self.batch,
            "simulated_accelerator_ms": self.wait_ms,
            "skipped": list(self.skipped),
            "service_epoch": self.distinct,
            **self.how,
            "styles": [each.document() for each in self.styles],
            "machine": dict(self.machine),
        }

    def lines(self) -> "list[str | Table]":
        """Return it for people."""
        table = new_table(
            "input", "items/s", "compute", "input", "ceiling", "floor", "share", "CPU"
        )
        for each in self.styles:
            rates = each.rates
            figures = (rates.both, rates.compute, rates.input, rates.ceiling, rates.floor)
            table.add_row(
                each.style,
                *(f"{figure:.4g}" for figure in figures),
                f"{100 * rates.share:.0f} %",
                f"{rates.cpu:.1f} of {rates.cores:g}",
            )
        lines: list[str | Table] = [table]
        for each in self.styles:
            found = each.verdict
            lines.append(f"{each.style}: {found.limit}: {found.reason}; {found.advice}")
            lines += [_gpu_line(each.style, device) for device in each.devices]
        lines.append("compute: on a batch that lies ready; input: without a model; ceiling: the "
                     "smaller; floor: in turns")  # fmt: skip
        if self.wait_ms is not None:
            lines.append(f"simulated: each step waits {self.wait_ms:g} ms instead of computing")
        if self.distinct is not None:
            lines.append(f"tf.data service: an epoch has {self.distinct} records, each once")
        if self.skipped:
            lines.append(f"left out: {len(self.skipped)} damaged: {', '.join(self.skipped[:3])}")
        if self.interrupted:
            lines.append("interrupted: this is what was measured until then")
        return lines


def _gpu_line(style: str, device: Mapping[str, Any]) -> str:
    use = device.get("utilisation_percent", {}).get("mean")
    return f"{style}: {device['name']} in use {'?' if use is None else f'{use:.0f}'} % of the time"
