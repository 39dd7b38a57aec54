"""One run of `ship`: its state, and stages whose results are cached by what they depend on."""

import copy
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from deploykit import __version__
from deploykit.data.data import is_arrays
from deploykit.data.labels import ClassNames
from deploykit.data.samples import open_samples
from deploykit.importers.metadata_file import About
from deploykit.importers.model_source import ModelSource
from deploykit.importers.open_model import OpenedModel, open_model, path_of
from deploykit.quantization.calibration import KnownRanges
from deploykit.rendering.progress import Work
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipped import (
    FOLDER,
    KEPT,
    LEFT_OUT,
    NAMES,
    RUN,
    Outcome,
    PlannedStage,
    StageResult,
)
from deploykit.shipping.stage_cache import StageCache, sizes_of
from deploykit.storage.resume_file import digest
from deploykit.system.machine import environment, machine
from deploykit.transforms.common.documents import FORMAT
from deploykit.transforms.engines.engines import TENSORFLOW, version_of
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
    return replace(ClassNames.of(Graph(), how.labels), may_differ=which == "calibration")


def read_samples(how: ShipOptions, which: Purpose, graph: Graph) -> Dataset:
    """Return the samples of an option, with the labels of `class_names` and groups."""
    labels = class_names(how, which)
    return open_samples(getattr(how, which), graph, how.read_by, labels=labels, group_by="")


@dataclass(kw_only=True)
class Shipment:
    """One run of `ship`: its inputs, its folder, and the results of the stages so far."""

    source: ModelSource
    how: ShipOptions
    name: str
    output: Path
    """The final folder."""
    folder: Path
    """The folder in which the shipment is built: another one if `output` contains a finished one.
    """
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Digests of the model and of each option."""
    results: dict[str, StageResult] = field(default_factory=dict)
    plan: list[PlannedStage] | None = None
    """The stages so far, if they are only planned; None if they run."""
    from_stage: str | None = None
    """The first stage that a plan repeats."""
    stages: Sequence["ShipStage"] = ()
    """All stages in their order, whose estimates change as the budget is used up."""
    work: Work | None = None
    began: float = field(default_factory=time.monotonic)
    """Start of the budget, on the monotonic clock."""
    share: float = 0.0
    """Minutes that the running stage may take."""
    calibrated: KnownRanges | None = None
    """Ranges that calibration passes to the search; None if it did not run or cannot be used."""
    _opened: dict[Path, OpenedModel] = field(default_factory=dict)
    _samples: dict[str, Dataset] = field(default_factory=dict)

    @cached_property
    def call_ms(self) -> float:
        """Estimated latency of an inference in milliseconds, from the size of the model."""
        if paths := path_of(self.source):
            return sum(sizes_of(Path(paths[0])).values()) / BYTES_A_MS
        return sum(map(len, self.source.model.graph.serialized())) / BYTES_A_MS

    @property
    def cache(self) -> StageCache:
        """The cached results in the folder."""
        return StageCache(self.folder)

    @property
    def left(self) -> float:
        """Remaining minutes of the budget."""
        return self.how.budget - (time.monotonic() - self.began) / 60

    def to_plan(self, folder: Path, from_stage: str | None) -> "Shipment":
        """Return this shipment, to plan its stages with the results in a folder."""
        other = copy.copy(self)  # with the samples that were read, and the graphs of this folder
        if folder != self.folder:
            other._opened = {}
        other.folder, other.from_stage, other.plan, other.results = folder, from_stage, [], {}
        return other

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
        """Return a graph of the folder; it is read once, and again after `forget_graph`."""
        path = self.path(name)
        if path not in self._opened:
            self._opened[path] = open_model(path)
        return self._opened[path]

    def forget_graph(self, name: str) -> None:
        """Release a graph whose file was rewritten, so that its next use reads the new file."""
        self._opened.pop(self.path(name), None)

    def to_change(self, name: str) -> OpenedModel:
        """Return a copy of a graph of the folder for code that modifies it."""
        opened = self.opened(name)
        return replace(opened, graph=opened.graph.copy())

    def describe(self, name: str, known: About) -> None:
        """Update the metadata of an open graph after its metadata file was rewritten."""
        if self.path(name) in self._opened:
            self._opened[self.path(name)] = opened = self.to_change(name)
            opened.graph.about = known

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

    def outcome(self, stage: str) -> Outcome:
        """Return the outcome of a stage; an empty one if it has not run."""
        result = self.results.get(stage)
        return Outcome() if result is None else result.outcome

    def document(self, stage: str) -> Mapping[str, Any]:
        """Return the result of a stage as plain data; {} if it was skipped."""
        return self.outcome(stage).document or {}

    @property
    def in_8_bits(self) -> bool:
        """Whether the shipped graph runs in int8 or stores int8 weights."""
        return self.document("quantize").get("result") == "int8"

    @property
    def precision(self) -> str:
        """Precision of the shipped graph: `int8` or `float32`."""
        return "int8" if self.in_8_bits else "float32"

    @property
    def chosen(self) -> str:
        """File name of the shipped graph."""
        quantized = self.results.get("quantize")
        is_float = quantized is None or quantized.outcome.kind == LEFT_OUT
        return OPTIMIZED_FILE if is_float else EIGHT_BITS_FILE

    @property
    def shipped_as(self) -> str:
        """Name of the shipped graph among the compared ones."""
        return EIGHT_BITS if self.in_8_bits else OPTIMIZED


@dataclass(frozen=True, kw_only=True)
class ShipStage:
    """A stage. A call runs it, unless a result for the same options and results is cached."""

    run: Callable[[Shipment], Outcome]
    options: tuple[str, ...] = ()
    """The fields of `ShipOptions` on which its result depends."""
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

    @property
    def name(self) -> str:
        """Name of the stage and of its function."""
        return self.run.__name__

    def __call__(self, shipment: Shipment, *needed: StageResult) -> StageResult:
        """Return the result of the stage, or plan it; `needed` are the results that it reads."""
        work = shipment.work
        if work is not None:
            work.begin(self.name)
        if why := self.left_out(shipment):
            result = StageResult(self.name, Outcome(kind=LEFT_OUT, why=why), 0.0, key=LEFT_OUT)
            if shipment.plan is not None:
                shipment.plan.append(PlannedStage(self.name, LEFT_OUT, 0.0, why))
        elif shipment.plan is None:
            result = self.result(shipment, *needed)
        else:
            result = self._planned(shipment, needed, shipment.plan)
        if work is not None:
            work.expect({
                stage.name: min(expected, max(60 * stage.share * shipment.left, 1.0))
                for stage in shipment.stages[NAMES.index(self.name) + 1 :]
                if stage.share and (expected := work.expected[stage.name])
            })  # fmt: skip
        shipment.results[self.name] = result
        return result

    def result(self, shipment: Shipment, *needed: StageResult) -> StageResult:
        """Return the result of the stage: cached, or run now."""
        key = self.key(shipment.inputs, needed)
        if (result := shipment.cache.lookup(self.name, key, shipment.inputs)) is not None:
            return result
        most = self.about(shipment) / 60
        shipment.share = max(min(self.share * shipment.left, most), 0.0)
        began = time.monotonic()
        outcome = self.run(shipment)
        outcome = replace(outcome, document=shipment.in_output(outcome.document))
        result = StageResult(self.name, outcome, time.monotonic() - began)
        return shipment.cache.keep(key, result, shipment.inputs)

    def _planned(
        self, shipment: Shipment, needed: tuple[StageResult, ...], plan: list[PlannedStage]
    ) -> StageResult:
        """Plan the stage as far as it is known without running any."""
        first, key, result = shipment.from_stage, self.key(shipment.inputs, needed), None
        is_repeated = first is not None and NAMES.index(self.name) >= NAMES.index(first)
        if not is_repeated and all(item.kept or item.key == LEFT_OUT for item in needed):
            result = shipment.cache.lookup(self.name, key, shipment.inputs)
        if result is not None:
            plan.append(PlannedStage(self.name, KEPT, 0.0))
            return result
        seconds = shipment.cache.seconds(self.name)
        if seconds is None:
            most = 60 * self.share * shipment.how.budget if self.share else math.inf
            seconds = min(self.about(shipment), most)
        plan.append(PlannedStage(self.name, RUN, seconds))
        return StageResult(self.name, Outcome(), 0.0, key=key)

    def key(self, inputs: Mapping[str, Any], needed: tuple[StageResult, ...]) -> str:
        """Return a digest of everything that the result depends on.

        `inputs` are digests by option, including `model`.
        """
        facts: dict[str, Any] = {
            "format": FORMAT,
            "stage": self.name,
            "inputs": {name: inputs[name] for name in ("model", *self.options)},
            "results": {item.stage: item.key for item in needed},
            "versions": [__version__, version_of(TENSORFLOW)],
        }
        if self.measures:
            here = machine()
            facts["machine"] = {k: here[k] for k in ("cpu", "flags", "affinity", "cpu_limit")}
            facts["environment"] = environment()
        return digest([json.dumps(facts, sort_keys=True, default=str).encode()])

    def about(self, shipment: Shipment) -> float:
        """Return its estimated seconds."""
        return self.seconds + self.seconds_a_ms * shipment.call_ms


def cached(*options: str, **how: Any) -> Callable[[Callable[[Shipment], Outcome]], ShipStage]:
    """Make a stage of a function, which is called with the shipment and results of other stages.

    Args:
        options: the fields of `ShipOptions` on which its result depends.
        how: other fields of `ShipStage`.

    Example:
        >>> @cached("labels", seconds=2)
        ... def describe(shipment: Shipment) -> Outcome:
        ...     return Outcome({"labels": shipment.how.labels})
        >>> described = describe(shipment, verified)
    """
    return lambda function: ShipStage(run=function, options=options, **how)
