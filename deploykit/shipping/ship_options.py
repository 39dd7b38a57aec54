"""Every option of `deploykit ship`, with its default."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from deploykit.api.comparison import ReadsData
from deploykit.exporting.manifests import ManifestKind
from deploykit.quantization.quantize_options import MAX_DROP
from deploykit.serving.saved_model.write_version import check_name
from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import ALLOW_OP, COLUMNS, HEADER, Flag
from deploykit.transforms.engines.engines import AUTO, TENSORFLOW, check_engine
from deploykit.verification.chosen_columns import check_columns
from deploykit.verification.samples import DataLike, PreprocessLike

Goal = Literal["latency", "throughput", "size"]
DeviceKind = Literal["cpu", "gpu"]
MINUTES = 8.0


@takes_former_names
@dataclass(frozen=True)
class ShipOptions(ReadsData):
    """Options of `ship`: data, goal, budget and device."""

    HEADING: ClassVar = "What is shipped"

    calibration: Annotated[DataLike | None, Flag(metavar="DATA", heading="Data")] = None
    """At least 64 representative samples, to quantize layers to int8: a .npz file of arrays by
    input name, a folder of TFRecords, images or CSV files, or DIR/NAME if DIR contains records of
    several names. Without it, the result is an optimized float32 model."""
    evaluation: Annotated[
        DataLike | None, Flag(hidden="--eval", metavar="DATA", heading="Data")
    ] = None
    """Labelled samples in the same format, to measure accuracy before and after."""
    labels: Annotated[str | os.PathLike[str] | Sequence[str] | None, Flag(heading="Data")] = None
    """File with the class names, one per line."""
    preprocess: Annotated[
        PreprocessLike | None, Flag(metavar="FILE.json|LO..HI", heading="Data")
    ] = None
    """Preprocessing of images and other data: a JSON file, or only the value range of images, such
    as 0..1 [default: from the model]."""
    header: Annotated[HeaderRule, HEADER] = "auto"
    columns: Annotated[Mapping[str, str], COLUMNS] = field(default_factory=dict)
    name: Annotated[str | None, Flag(metavar="NAME")] = None
    """The model's name in requests [default: the name of its file or folder]."""
    goal: Annotated[Goal, Flag(hidden="--target", formerly="target")] = "latency"
    """latency: lowest latency of a single request; throughput: most samples per second; size: int8
    weights even if they are no faster."""
    max_drop: Annotated[float, Flag(at_least=0)] = MAX_DROP
    """Largest loss of accuracy allowed on `evaluation` data; 0.01 is one percentage point."""
    budget: Annotated[float, Flag(metavar="MINUTES", above=0, heading="Run")] = MINUTES
    """Time for the whole run. A smaller budget shortens searches and measurements, but not the
    other steps."""
    device: DeviceKind = "cpu"
    """Device that runs the model; int8 layers run only on CPUs."""
    engine: Literal["auto", "tensorflow", "openvino"] = "auto"
    """Execution engine on a CPU; auto: openvino if it is installed, matches TensorFlow, and is
    faster."""
    manifests: Annotated[Sequence[ManifestKind], Flag(format="kinds")] = ()
    """Also write deployment files: config, docker, kubernetes, kserve, or all; separated by
    commas."""
    allow_low_accuracy: bool = False
    """Continue although the predictions of the float32 model look wrong: all of one class, or no
    better than chance."""
    input_range: Annotated[tuple[float, float], Flag(format="range", heading="Data")] = (-1.0, 1.0)
    """Range of the random values for float inputs if no data is given."""
    allow_unverified: Annotated[bool, Flag(heading="Data")] = False
    """Continue instead of exiting with 5 if nothing could be compared, for example because random
    values do not fit the model."""
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = ()
    """Allow this op, which acts on files, the network or processes; may be repeated."""

    def check(self) -> None:
        """Raise GraphError for contradictory options, before any file is read."""
        data = self.evaluation if self.calibration is None else self.calibration
        check_columns(self.columns, data, "--calibration")
        if self.engine != AUTO:
            check_engine(self.engine)
        if self.device == "gpu" and self.engine not in (AUTO, TENSORFLOW):
            raise GraphError("openvino-cpu-only")
        if self.name is not None:
            check_name(self.name)
