"""What an 8-bit graph has to be: every option of `deploykit quantize`, with its default."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Literal

from deploykit.benchmarking.settings import RunConfig
from deploykit.transforms.core.display.flag import Flag
from deploykit.transforms.core.engines.engines import MOST_BATCH, check_engine
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.int8.isa import Isa

QuantizationMode = Literal["auto", "static", "weights", "nodes"]
MIN_SQNR_DB = 24.0  # int8.md, rule 8
PREFERENCES = {"accuracy": MIN_SQNR_DB, "speed": 18.0}
"""What answers have to keep at least, in dB, where nothing else is asked of them."""
MAX_DROP = 0.01
MINUTES = 4
_CALIBRATED = ("prefer", "keep_float", "isa", "engine", "batch", "threads", "budget", "group_by",
               "whole_tokens")  # fmt: skip
_SEARCHED = ("prefer", "group_by")
_BY_LABELS = ("metric", "max_drop")
_WEIGHTS = ("minimum_size", "skip")


@dataclass(frozen=True)
class QuantizeOptions:
    """What an 8-bit graph has to be."""

    HEADING: ClassVar = "With --calibration"

    mode: Annotated[QuantizationMode, Flag(heading="Quantization")] = "auto"
    """static: layers run in int8; weights: weights are stored in int8, and layers run in float32;
    nodes: as in the Graph Transform Tool; auto: static with `calibration` or for a
    quantization-aware model, else weights."""
    min_sqnr: Annotated[float | None, Flag(metavar="DB", heading="Quantization")] = None
    """Smallest signal-to-noise ratio of the outputs; noisier results are not written. With
    `calibration`, noisy layers are kept in float32 to reach it [default: 15; with `calibration`,
    that of `prefer`]."""
    prefer: Literal["accuracy", "speed"] = "accuracy"
    """accuracy: at least 24 dB; speed: at least 18 dB, with more int8 layers. With `evaluation`,
    `max_drop` applies instead."""
    metric: Annotated[str, Flag(metavar="NAME|MODULE:FUNCTION")] = "top1"
    """What `max_drop` limits: top1, top5, mae, or your own function of the outputs by name and the
    labels."""
    max_drop: Annotated[float, Flag(at_least=0)] = MAX_DROP
    """Largest loss of the metric allowed."""
    keep_float: Annotated[Sequence[str], Flag(metavar="NODE")] = ()
    """Keep this layer in float32; may be repeated."""
    isa: Isa = "auto"
    """Instruction set of the target machine; auto: that of this machine."""
    engine: Literal["auto", "tensorflow", "openvino"] = "tensorflow"
    """Execution engine of the int8 model. openvino: layers are chosen by noise and time in
    OpenVINO; the result still runs in TensorFlow. auto: openvino if it is installed, matches
    TensorFlow, and is faster."""
    batch: Annotated[int | None, Flag(at_most=MOST_BATCH)] = None
    """Batch size to optimize for [default: 1]."""
    threads: Annotated[tuple[int, int] | None, Flag(format="thread pair")] = None
    """Threads per op x concurrent ops to optimize for [default: TensorFlow's]."""
    budget: Annotated[float, Flag(metavar="MINUTES", above=0)] = MINUTES
    """Time limit of the command. If that is too short, deploykit reports the minimum during the
    run."""
    whole_tokens: bool = False
    """Never split the tokens of an encoder into two parallel parts. By default they are split if
    that is significantly faster for one request at a time."""
    group_by: Annotated[str | None, Flag(metavar="NAME")] = None
    """Also report SQNR and agreement per group of held-out or `evaluation` samples. NAME is an
    array, column or feature with one text or integer per sample, or `folder` for images. [default:
    `group`, or image folders that are not the classes]"""
    allow_low_accuracy: bool = False
    """Continue if the predictions of the float32 model cannot be right: all of one class, or no
    better than chance."""
    allow_float: Annotated[bool, Flag(heading="Quantization")] = False
    """If int8 is significantly slower, too inaccurate or not possible, write the optimized float32
    graph and exit 0 [default: write nothing and exit 5]."""
    minimum_size: Annotated[int, Flag(heading="Without --calibration")] = 1024
    """Keep weights with fewer elements in float32."""
    skip: Annotated[Sequence[str], Flag(metavar="NODE", heading="Without --calibration")] = ()
    """Keep this constant in float32; may be repeated."""

    @property
    def settings(self) -> RunConfig:
        """The batch and the threads for which it is to be fast."""
        return RunConfig(batch=self.batch, threads=self.threads)

    def resolved_mode(
        self, is_calibrated: bool, is_evaluated: bool, states_scales: bool = False
    ) -> str:
        """Return static, weights or nodes.

        `states_scales`: the model has fake-quants, so static needs no calibration data.
        GraphError: something is set that does nothing without data that are not given, or with
        those that are.
        """
        mode = self.mode
        if mode == "auto":
            mode = "static" if is_calibrated or states_scales else "weights"
        is_stated = states_scales and mode == "static"
        if mode == "static" and not is_calibrated and not is_stated:
            raise GraphError("option-needs", option="--mode static", needed="--calibration DATA")
        if mode != "static" and is_calibrated:
            raise GraphError("only-for", option="--calibration", what=f"--mode static, not {mode}")
        if not is_calibrated and is_evaluated:
            raise GraphError("option-needs", option="--evaluation", needed="--calibration DATA")
        if is_stated:
            self._refuse(_WEIGHTS, "is for --mode weights")
            self._refuse(_SEARCHED, "does nothing for a model that states its int8 scales")
        elif is_calibrated:
            self._refuse(_WEIGHTS, "is for quantizing without --calibration")
        else:
            self._refuse((*_BY_LABELS, *_CALIBRATED), "needs --calibration DATA")
        if is_calibrated and not is_evaluated:
            self._refuse(_BY_LABELS, "needs --evaluation DATA")
        if is_evaluated:
            self._refuse(("prefer",), "is for a search without --evaluation; --max-drop says it")
        if self.min_sqnr is not None:
            self._refuse(("prefer",), "does nothing beside --min-sqnr, which says it")
        if self.engine != "auto":
            check_engine(self.engine)
        return mode

    def _refuse(self, names: Sequence[str], why: str) -> None:
        """Raise GraphError where one of these is set, as it would do nothing."""
        defaults = {field.name: field.default for field in fields(self)}
        for name in names:
            value = getattr(self, name)
            if value != defaults[name] and value not in ([], ()):
                raise GraphError("option-reason", option=name.replace("_", "-"), reason=why)


DEFAULT = QuantizeOptions()
