"""What an 8-bit graph has to be: every option of `deploykit quantize`, with its default."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from deploykit.benchmarking.settings import Settings
from deploykit.transforms.core.engines.engines import OPENVINO, TENSORFLOW, check_engine
from deploykit.transforms.core.errors import GraphError

CHOICES = (TENSORFLOW, OPENVINO, "auto")
MODES = ("auto", "static", "weights", "nodes")
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
class Quantization:
    """What an 8-bit graph has to be."""

    mode: str = "auto"
    """static: compute in 8 bits, with calibrated ranges or those that a quantization-aware model
    states; weights: store weights in 8 bits and compute in float; nodes: as the Graph Transform
    Tool did; auto: static with calibration data or a quantization-aware model, else weights."""
    min_sqnr: float | None = None
    """Signal to quantization noise of the outputs, in dB, at least; default: 15, and with
    calibration and without evaluation data that of `prefer`."""
    prefer: str = "accuracy"
    """static: where `min_sqnr` and evaluation data say nothing, accuracy keeps 24 dB, and speed
    18, with more layers in 8 bits."""
    metric: str = "top1"
    """What `max_drop` holds for, on evaluation data: top1, top5, mae or `module:function`, called
    with the outputs by name and the labels."""
    max_drop: float = MAX_DROP
    """How much the metric may fall on evaluation data, in its own unit."""
    keep_float: Sequence[str] = ()
    """static: names of layers that stay float."""
    isa: str = "auto"
    """static: the instruction set to be exact on; auto is this machine's."""
    engine: str = TENSORFLOW
    """static: what is to compute the graph: tensorflow, openvino, or auto, which takes OpenVINO
    where it is installed, gives TensorFlow's answers, and is faster."""
    batch: int | None = None
    """static: samples at once to be fast for; default: 1."""
    threads: tuple[int, int] | None = None
    """static: threads inside an op, and ops at once, to be fast for; default: TensorFlow's."""
    budget: float = MINUTES
    """static: minutes that all of it may take; where that cannot do, it is said what is needed."""
    whole_tokens: bool = False
    """static: never compute the tokens of an encoder in two parts at once (`split_tokens`). By
    default, TensorFlow's int8 graph does where that is significantly faster here, with `threads`
    or with those that suit it: for one request at a time, not for several."""
    group_by: str | None = None
    """static: the array, column or feature with the group of each sample, such as its source, or
    of images `folder`: of the evaluation data, or else of the calibration data. Noise and agreement
    are measured within each group too. Default: `group`, where the data have one, or folders of
    images that are not the classes."""
    allow_low_accuracy: bool = False
    """Go on, with a warning, where the float model's answers cannot be right: they are all
    one class, or no more of them are right than guesses would be."""
    allow_float: bool = False
    """Return, and write, the optimized float32 graph where int8 is significantly slower, too
    inaccurate or not possible; without it, that is a NotQuantizedError."""
    minimum_size: int = 1024
    """weights: those with fewer elements stay float."""
    skip: Sequence[str] = ()
    """weights: names of constants that stay float."""

    @property
    def settings(self) -> Settings:
        """The batch and the threads for which it is to be fast."""
        return Settings(batch=self.batch, threads=self.threads)

    def resolved_mode(
        self, is_calibrated: bool, is_evaluated: bool, states_scales: bool = False
    ) -> str:
        """Return static, weights or nodes.

        `states_scales`: the model has fake-quants, so static needs no calibration data.
        GraphError: something is set that does nothing without data that are not given, or with
        those that are.
        """
        mode = self.mode
        if self.prefer not in PREFERENCES:
            known = " or ".join(PREFERENCES)
            raise GraphError("not-one-of", what="prefer", known=known, got=self.prefer)
        if self.engine not in CHOICES:
            raise GraphError("not-one-of", what="the engine", known=CHOICES, got=self.engine)
        if mode not in MODES:
            raise GraphError("not-one-of", what="the mode", known=MODES, got=mode)
        if mode == "auto":
            mode = "static" if is_calibrated or states_scales else "weights"
        is_stated = states_scales and mode == "static"
        if mode == "static" and not is_calibrated and not is_stated:
            raise GraphError("option-needs", option="--mode static", needed="--calibration DATA")
        if mode != "static" and is_calibrated:
            raise GraphError("only-for", option="--calibration", what=f"--mode static, not {mode}")
        if not is_calibrated and is_evaluated:
            raise GraphError("option-needs", option="--eval", needed="--calibration DATA")
        if is_stated:
            self._refuse(_WEIGHTS, "is for --mode weights")
            self._refuse(_SEARCHED, "does nothing for a model that states its int8 scales")
        elif is_calibrated:
            self._refuse(_WEIGHTS, "is for quantizing without --calibration")
        else:
            self._refuse((*_BY_LABELS, *_CALIBRATED), "needs --calibration DATA")
        if is_calibrated and not is_evaluated:
            self._refuse(_BY_LABELS, "needs --eval DATA")
        if is_evaluated:
            self._refuse(("prefer",), "is for a search without --eval, where --max-drop says it")
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


DEFAULT = Quantization()
