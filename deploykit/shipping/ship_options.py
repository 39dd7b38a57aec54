"""Every option of `deploykit ship`, with its default."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploykit.exporting.manifests import KINDS
from deploykit.quantization.requested import MAX_DROP
from deploykit.serving.saved_model.write_version import check_name
from deploykit.transforms.core.engines.engines import AUTO, CHOICES, TENSORFLOW, check_engine
from deploykit.transforms.core.errors import GraphError

TARGETS = ("latency", "throughput", "size")
DEVICES = ("cpu", "gpu")
MINUTES = 8.0


@dataclass(frozen=True)
class ShipOptions:
    """What is to be shipped, and what may be spent on it."""

    calibration: Any = None
    """64 samples or more like those of real use, with which layers are put in 8 bits: arrays by
    input name, a `tf.data.Dataset`, an `.npz` file, or a folder of TFRecords, images or CSV files.
    Without, an optimized float model is shipped."""
    evaluation: Any = None
    """Such samples with labels, on which the accuracy before and after is taken."""
    labels: str | os.PathLike[str] | Sequence[str] | None = None
    """Names of the classes in the order of the scores, or a file with one a line."""
    preprocess: Any = None
    """What becomes of photos and other data: a JSON file, what it holds, or the range of photos,
    such as `0..1`; default: what is known of the model."""
    name: str | None = None
    """What requests call the model; default: the name of its file or folder."""
    target: str = "latency"
    """`latency`: the fastest answer to one call; `throughput`: the most samples a second; `size`:
    weights in 8 bits even where that is no faster."""
    max_drop: float = MAX_DROP
    """How much the accuracy may fall on the evaluation data: 0.01 is one in a hundred."""
    budget: float = MINUTES
    """Minutes that all of it may take, as far as that can be chosen."""
    device: str = "cpu"
    """`cpu` or `gpu`: what is to compute the model."""
    engine: str = AUTO
    """What computes it: `tensorflow`, `openvino`, or `auto` for OpenVINO where it is installed,
    right and faster, else TensorFlow; which serves it in any case where OpenVINO is not there."""
    manifests: Sequence[str] = ()
    """Which files that run it elsewhere are written too: `config`, `docker`, `kubernetes`,
    `kserve`."""
    allow_low_accuracy: bool = False
    """Go on, with a warning, where the float model's answers cannot be right: they are all one
    class, or no more of them are right than guesses would be."""
    input_range: tuple[float, float] = (-1.0, 1.0)
    """Of synthetic floats, on which each graph is compared with the one before."""
    allow_unverified: bool = False
    """Continue if nothing could be compared, on synthetic inputs or on the calibration data."""
    allowed_ops: Sequence[str] = ()
    """Ops that are run although they act on files or processes."""

    def check(self) -> None:
        """Raise GraphError for what contradicts itself, before anything is read."""
        for name, value, known in (
            ("target", self.target, TARGETS),
            ("device", self.device, DEVICES),
            ("engine", self.engine, CHOICES),
        ):
            if value not in known:
                raise GraphError("not-one-of", what=f"the {name}", known=known, got=value)
        for kind in self.manifests:
            if kind not in KINDS:
                raise GraphError("not-one-of", what="manifests", known=KINDS, got=kind)
        if not self.budget > 0:
            raise GraphError(
                "out-of-range", name="the budget in minutes", expected="above 0", got=self.budget
            )
        if self.max_drop < 0:
            raise GraphError(
                "out-of-range", name="max_drop", expected="0 or more", got=self.max_drop
            )
        if self.engine != AUTO:
            check_engine(self.engine)
        if self.device == "gpu" and self.engine not in (AUTO, TENSORFLOW):
            raise GraphError("openvino-cpu-only")
        if self.name is not None:
            check_name(self.name)
