"""What the stages of one shipment share, and what a stage is: its work and what it needs."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from deploykit.data.data import is_arrays
from deploykit.data.samples import open_samples
from deploykit.importers.metadata_file import About
from deploykit.importers.model_source import ModelSource
from deploykit.importers.open_model import OpenedModel, open_model
from deploykit.quantization.calibration import KnownRanges
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipped import DONE, FOLDER, UNDECIDED, Outcome, StageResult
from deploykit.verification.samples import Dataset

AS_IT_CAME, OPTIMIZED, EIGHT_BITS = "as it came", "optimized", "8 bits"
FROZEN, OPTIMIZED_FILE, EIGHT_BITS_FILE = (
    f"{FOLDER}/{name}.pb" for name in ("frozen", "optimized", "quantized")
)
Purpose = Literal["calibration", "evaluation"]
"""The options that name samples."""
PREPROCESS, LABELS = "preprocess.json", "labels.txt"


BYTES_A_MS = 2 << 20
"""Of a model: what it does in a millisecond; EfficientNet-Lite0 (18 MB) takes 10 on a core or two,
ResNet50 (100 MB) 30 to 60. It only says how long measurements may take."""


def is_folder(data: Any) -> bool:
    """Return whether data are files that are read batch by batch, and no file of arrays."""
    return isinstance(data, str) and not is_arrays(data)


@dataclass
class Shipment:
    """One run of `ship`: its inputs, its folder, and the results of the stages so far."""

    source: ModelSource
    folder: Path
    """Where it is built."""
    output: Path
    """Where it is in the end; the same folder, unless that holds a finished shipment."""
    name: str
    how: ShipOptions
    minutes: float
    """Of the budget."""
    call_ms: float = 1.0
    """About what a call takes, in milliseconds, as the size of the model tells."""
    results: dict[str, StageResult] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    share: float = 0.0
    """Minutes that the running stage may take: no more than its model is worth."""
    calibrated: KnownRanges | None = None
    """What this run's calibration hands to the search; None: it did not run, or is of no use."""
    _opened: dict[str, OpenedModel] = field(default_factory=dict)
    _samples: dict[str, Dataset] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Minutes of the budget that are left."""
        return self.minutes - (time.monotonic() - self.began) / 60

    def path(self, name: str) -> Path:
        """Return where a file of the folder lies."""
        return self.folder / name

    def in_output(self, value: Any) -> Any:
        """Return plain data with the path of `output` instead of that of `folder`."""
        if isinstance(value, str):
            return value.replace(str(self.folder), str(self.output))
        if isinstance(value, Mapping):
            return {self.in_output(k): self.in_output(item) for k, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.in_output(item) for item in value]
        return value

    def opened(self, name: str) -> OpenedModel:
        """Return a graph of the folder, which is read once."""
        if name not in self._opened:
            self._opened[name] = open_model(self.path(name))
        return self._opened[name]

    def to_change(self, name: str) -> OpenedModel:
        """Return a graph of the folder with a graph of its own, for what adds to it."""
        opened = self.opened(name)
        return replace(opened, graph=opened.graph.copy())

    def samples(self, which: Purpose) -> Dataset:
        """Return the samples that an option names, with labels and groups; they are read once.

        The names of classes that are given hold for evaluation samples.
        """
        if which not in self._samples:
            self._samples[which] = open_samples(
                getattr(self.how, which),
                self.opened(FROZEN).frozen,
                self.how.preprocess,
                labels=self.how.labels if which == "evaluation" else None,
                group_by="",
            )
        return self._samples[which]

    def forget_files(self) -> None:
        """Let go of samples of folders, which may be large; no later stage takes them."""
        self._samples = {
            k: v for k, v in self._samples.items() if not is_folder(getattr(self.how, k))
        }

    def arrays(self) -> Dataset | None:
        """Return samples that are fed as they are; None: they are files to preprocess, or none."""
        which: Purpose = "evaluation" if self.how.calibration is None else "calibration"
        data = getattr(self.how, which)
        if data is None or is_folder(data) or self.how.preprocess is not None:
            return None
        return self.samples(which)

    def forget(self, name: str) -> None:
        """Let a graph be read anew, as it was written again."""
        self._opened.pop(name, None)

    def describe(self, name: str, known: About) -> None:
        """Let a graph that is open be what its file says since it was described again."""
        if name in self._opened:
            graph = self._opened[name].graph.copy()
            graph.about = known
            self._opened[name] = replace(self._opened[name], graph=graph)

    def outcome(self, stage: str) -> Outcome:
        """Return what a stage came to; of one that has not run, nothing."""
        result = self.results.get(stage)
        return Outcome() if result is None else result.outcome

    def document(self, stage: str) -> Mapping[str, Any]:
        """Return what a stage found, as plain data; {}: it was left out."""
        return self.outcome(stage).document or {}

    def ran(self, stage: str) -> bool:
        """Say whether a stage has a result."""
        return stage in self.results and self.outcome(stage).kind in (DONE, UNDECIDED)

    @property
    def in_8_bits(self) -> bool:
        """Whether what is shipped computes, or is stored, in 8 bits."""
        return self.document("quantize").get("result") == "int8"

    @property
    def precision(self) -> str:
        """`int8` or `float32`: that of what is shipped."""
        return "int8" if self.in_8_bits else "float32"

    @property
    def reason(self) -> str:
        """Why it is shipped in this precision, in a sentence."""
        result = self.outcome("quantize")
        return str((result.document or {}).get("reason") or result.why)

    @property
    def chosen(self) -> str:
        """The file of the graph that is shipped."""
        return EIGHT_BITS_FILE if self.ran("quantize") else OPTIMIZED_FILE

    @property
    def graphs(self) -> dict[str, str]:
        """The files of the graphs that are compared, by what they are called."""
        results = {AS_IT_CAME: FROZEN, OPTIMIZED: OPTIMIZED_FILE}
        return {**results, EIGHT_BITS: EIGHT_BITS_FILE} if self.in_8_bits else results

    @property
    def shipped_as(self) -> str:
        """What the graph that is shipped is called among these."""
        return EIGHT_BITS if self.in_8_bits else OPTIMIZED


@dataclass(frozen=True)
class ShipStage:
    """One act of the whole, in its place."""

    name: str
    run: Callable[[Shipment], Outcome]
    options: tuple[str, ...] = ()
    """The fields of `ShipOptions` on which its result depends."""
    needs: tuple[str, ...] = ()
    """The stages whose results it reads."""
    left_out: Callable[[Shipment], str] = lambda shipment: ""
    """Why there is nothing to do for it, in a sentence; empty: it runs."""
    measures: bool = False
    """Whether its result holds for this machine alone."""
    seconds: float = 10.0
    """That it takes for a small model, where nothing better is known; with a share, at most."""
    seconds_a_ms: float = 0.0
    """More of them for each millisecond that a call takes, as far as the model's size tells."""
    share: float = 0.0
    """Of the budget that is left when it begins, that it may take; 0: it takes what it takes."""

    def about(self, call_ms: float) -> float:
        """Return the seconds that it takes where a call takes so long."""
        return self.seconds + self.seconds_a_ms * call_ms
