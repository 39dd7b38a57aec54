"""Every option of `deploykit ship`, with its default."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from deploykit.exporting.manifests import ManifestKind
from deploykit.quantization.requested import MAX_DROP
from deploykit.serving.saved_model.write_version import check_name
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.core.display.flag import ALLOW_OP, Flag
from deploykit.transforms.core.engines.engines import AUTO, TENSORFLOW, check_engine
from deploykit.transforms.core.errors import GraphError
from deploykit.verification.public_types import DataLike, PreprocessLike

Goal = Literal["latency", "throughput", "size"]
DeviceKind = Literal["cpu", "gpu"]
GOALS: tuple[Goal, ...] = get_args(Goal)
DEVICES: tuple[DeviceKind, ...] = get_args(DeviceKind)
MINUTES = 8.0


@takes_former_names
@dataclass(frozen=True)
class ShipOptions:
    """What is to be shipped, and what may be spent on it."""

    HEADING: ClassVar = "What is shipped"

    calibration: Annotated[DataLike | None, Flag(metavar="DATA", heading="Data")] = None
    """64 samples or more like those of real use, with which layers are put in 8 bits: a .npz file
    of arrays by input name, a folder of TFRecords, images or CSV files, or DIR/NAME where DIR holds
    records of several names. Without it, an optimized float model is shipped."""
    evaluation: Annotated[
        DataLike | None, Flag(hidden="--eval", metavar="DATA", heading="Data")
    ] = None
    """Such samples with labels, on which the accuracy before and after is taken."""
    labels: Annotated[str | os.PathLike[str] | Sequence[str] | None, Flag(heading="Data")] = None
    """File with the names of the classes, one a line."""
    preprocess: Annotated[
        PreprocessLike | None, Flag(metavar="FILE.json|LO..HI", heading="Data")
    ] = None
    """What becomes of photos and other data before the model takes them: a JSON file, or the range
    of photos, such as 0..1 [default: what is known of the model]."""
    name: Annotated[str | None, Flag(metavar="NAME")] = None
    """The model's name in requests [default: the name of its file or folder]."""
    goal: Annotated[Goal, Flag(hidden="--target", formerly="target")] = "latency"
    """latency: the fastest answer to one call; throughput: the most samples a second; size: weights
    in 8 bits even where that is no faster."""
    max_drop: Annotated[float, Flag(at_least=0)] = MAX_DROP
    """How much the accuracy may fall on `evaluation` data: 0.01 is one sample in a hundred."""
    budget: Annotated[float, Flag(metavar="MINUTES", above=0, heading="Run")] = MINUTES
    """How long all of it may take, as far as that can be chosen: the searches and measurements take
    less where there is less."""
    device: DeviceKind = "cpu"
    """What is to compute the model; layers compute in 8 bits on CPUs alone."""
    engine: Literal["auto", "tensorflow", "openvino"] = "auto"
    """What is to compute the model on a CPU; auto: openvino where it is installed, gives
    TensorFlow's answers, and is faster."""
    manifests: Annotated[Sequence[ManifestKind], Flag(format="kinds")] = ()
    """Also write files that run it elsewhere: config, docker, kubernetes, kserve, or all; separated
    by commas."""
    allow_low_accuracy: bool = False
    """Go on where the answers of the float model cannot be right: all of one class, or no better
    than guesses."""
    input_range: Annotated[tuple[float, float], Flag(format="range", heading="Data")] = (-1.0, 1.0)
    """Range of the random values for float inputs, where no data are given."""
    allow_unverified: Annotated[bool, Flag(heading="Data")] = False
    """Continue if nothing could be compared, for example because random values do not fit the
    model, instead of exiting with 5."""
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = ()
    """Run this op although it reads or writes files or starts processes; may be repeated."""

    def check(self) -> None:
        """Raise GraphError for what contradicts itself, before anything is read."""
        if self.engine != AUTO:
            check_engine(self.engine)
        if self.device == "gpu" and self.engine not in (AUTO, TENSORFLOW):
            raise GraphError("openvino-cpu-only")
        if self.name is not None:
            check_name(self.name)
