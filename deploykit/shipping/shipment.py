"""The state that the stages of one shipment share, and the definition of a stage."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from deploykit.data.data import is_arrays
from deploykit.data.labels import ClassNames
from deploykit.data.samples import open_samples
from deploykit.importers.metadata_file import About
from deploykit.importers.model_source import ModelSource
from deploykit.importers.open_model import OpenedModel, open_model
from deploykit.quantization.calibration import KnownRanges
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipped import DONE, FOLDER, UNDECIDED, Outcome, StageResult
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.samples import Dataset

AS_IT_CAME, OPTIMIZED, EIGHT_BITS = "as it came", "optimized", "8 bits"
FROZEN, OPTIMIZED_FILE, EIGHT_BITS_FILE = (
    f"{FOLDER}/{name}.pb" for name in ("frozen", "optimized", "quantized")
)
Purpose = Literal["calibration", "evaluation"]
"""The options that name samples."""
PREPROCESS, LABELS = "preprocess.json", "labels.txt"


BYTES_A_MS = 2 << 20
"""Estimated model bytes per millisecond of an inference; only limits measurement times.

EfficientNet-Lite0 (18 MB) takes 10 ms on one or two cores, ResNet50 (100 MB) 30 to 60 ms."""


def is_folder(data: Any) -> bool:
    """Return whether data is a path of files read batch by batch, not of a file of arrays."""
    return isinstance(data, str) and not is_arrays(data)


def class_names(how: ShipOptions, which: Purpose) -> ClassNames | None:
    """Return the names in the option `labels`, for the samples of an option; None: not given.

    They are the order of the classes of both. Calibration samples may be of other classes; their
    labels are then ignored, with a warning.
    """
    if how.labels is None:
        return None
    return replace(ClassNames.of(Graph(), how.labels), is_given=which == "evaluation")


def read_samples(how: ShipOptions, which: Purpose, graph: Graph) -> Dataset:
    """Return the samples of an option, with the labels of `class_names` and groups."""
    labels = class_names(how, which)
    return open_samples(getattr(how, which), graph, how.preprocess, labels=labels, group_by="")


@dataclass
class Shipment:
    """One run of `ship`: its inputs, its folder, and the results of the stages so far."""

    source: ModelSource
    folder: Path
    """The folder in which the shipment is built."""
    output: Path
    """The final folder; the same as `folder`, unless it contains a finished shipment."""
    name: str
    how: ShipOptions
    minutes: float
    """The whole budget in minutes."""
    call_ms: float = 1.0
    """Estimated latency of an inference in milliseconds, from the size of the model."""
    results: dict[str, StageResult] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    share: float = 0.0
    """Minutes that the running stage may take."""
    calibrated: KnownRanges | None = None
    """Ranges that calibration passes to the search; None if it did not run or cannot be used."""
    _opened: dict[str, OpenedModel] = field(default_factory=dict)
    _samples: dict[str, Dataset] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Remaining minutes of the budget."""
        return self.minutes - (time.monotonic() - self.began) / 60

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder."""
        return self.folder / name

    def in_output(self, value: Any) -> Any:
        """Return plain data with the path `output` in place of `folder`."""
        if isinstance(value, str):
            return value.replace(str(self.folder), str(self.output))
        if isinstance(value, Mapping):
            return {self.in_output(k): self.in_output(item) for k, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.in_output(item) for item in value]
        return value

    def opened(self, name: str) -> OpenedModel:
        """Return a graph of the folder; it is read once."""
        if name not in self._opened:
            self._opened[name] = open_model(self.path(name))
        return self._opened[name]

    def to_change(self, name: str) -> OpenedModel:
        """Return a copy of a graph of the folder for code that modifies it."""
        opened = self.opened(name)
        return replace(opened, graph=opened.graph.copy())

    def samples(self, which: Purpose) -> Dataset:
        """Return the samples of an option, with labels and groups; they are read once."""
        if which not in self._samples:
            self._samples[which] = read_samples(self.how, which, self.opened(FROZEN).frozen)
        return self._samples[which]

    @property
    def calibration_options(self) -> tuple[str, ...]:
        """Further options that decide the labels of calibration samples: the order of classes."""
        is_read = self.how.calibration is not None
        return ("labels",) if is_read and self.samples("calibration").class_order else ()

    def forget_files(self) -> None:
        """Release samples read from folders, which may be large; no later stage uses them."""
        self._samples = {
            k: v for k, v in self._samples.items() if not is_folder(getattr(self.how, k))
        }

    def arrays(self) -> Dataset | None:
        """Return samples that need no preprocessing; None if there are none."""
        which: Purpose = "evaluation" if self.how.calibration is None else "calibration"
        data = getattr(self.how, which)
        if data is None or is_folder(data) or self.how.preprocess is not None:
            return None
        return self.samples(which)

    def forget(self, name: str) -> None:
        """Drop a cached graph whose file was rewritten."""
        self._opened.pop(name, None)

    def describe(self, name: str, known: About) -> None:
        """Update the metadata of an open graph after its metadata file was rewritten."""
        if name in self._opened:
            graph = self._opened[name].graph.copy()
            graph.about = known
            self._opened[name] = replace(self._opened[name], graph=graph)

    def outcome(self, stage: str) -> Outcome:
        """Return the outcome of a stage; an empty one if it has not run."""
        result = self.results.get(stage)
        return Outcome() if result is None else result.outcome

    def document(self, stage: str) -> Mapping[str, Any]:
        """Return the result of a stage as plain data; {} if it was skipped."""
        return self.outcome(stage).document or {}

    def ran(self, stage: str) -> bool:
        """Return whether a stage has a result."""
        return stage in self.results and self.outcome(stage).kind in (DONE, UNDECIDED)

    @property
    def in_8_bits(self) -> bool:
        """Whether the shipped graph runs in int8 or stores int8 weights."""
        return self.document("quantize").get("result") == "int8"

    @property
    def precision(self) -> str:
        """Precision of the shipped graph: `int8` or `float32`."""
        return "int8" if self.in_8_bits else "float32"

    @property
    def reason(self) -> str:
        """A sentence that explains the choice of this precision."""
        result = self.outcome("quantize")
        return str((result.document or {}).get("reason") or result.why)

    @property
    def chosen(self) -> str:
        """File name of the shipped graph."""
        return EIGHT_BITS_FILE if self.ran("quantize") else OPTIMIZED_FILE

    @property
    def graphs(self) -> dict[str, str]:
        """Files of the compared graphs, by name."""
        results = {AS_IT_CAME: FROZEN, OPTIMIZED: OPTIMIZED_FILE}
        return {**results, EIGHT_BITS: EIGHT_BITS_FILE} if self.in_8_bits else results

    @property
    def shipped_as(self) -> str:
        """Name of the shipped graph in `graphs`."""
        return EIGHT_BITS if self.in_8_bits else OPTIMIZED


@dataclass(frozen=True)
class ShipStage:
    """One stage of a shipment."""

    name: str
    run: Callable[[Shipment], Outcome]
    options: tuple[str, ...] = ()
    """The fields of `ShipOptions` on which its result depends."""
    needs: tuple[str, ...] = ()
    """The stages whose results it reads."""
    left_out: Callable[[Shipment], str] = lambda shipment: ""
    """Returns why the stage is skipped, as a sentence; empty if it runs."""
    measures: bool = False
    """Whether its result is valid only on this machine."""
    seconds: float = 10.0
    """Estimated seconds for a small model; a maximum if the stage has a share."""
    seconds_a_ms: float = 0.0
    """Additional seconds per millisecond of the estimated inference latency."""
    share: float = 0.0
    """Fraction of the remaining budget that it may use; 0 means no limit."""

    def about(self, call_ms: float) -> float:
        """Return its estimated seconds; `call_ms` is the latency of an inference."""
        return self.seconds + self.seconds_a_ms * call_ms
