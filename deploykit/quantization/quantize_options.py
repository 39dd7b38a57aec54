"""QuantizeOptions, and the preconditions of a model for int8 with calibration."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Literal

from deploykit.benchmarking.run_config import RunConfig
from deploykit.quantization.accuracy import Evaluator
from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.common.errors import GraphError, VerificationError, nearest
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.engines.engines import MAX_BATCH, check_engine
from deploykit.transforms.int8.int8_kernels import Isa
from deploykit.transforms.int8.plan import OPS
from deploykit.transforms.int8.stored_codes import holds_codes
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.layers.layers import LAYER_OPS
from deploykit.verification.confidence import GroupCloseness, worst_group
from deploykit.verification.coverage import doubt
from deploykit.verification.samples import Dataset

QuantizationMode = Literal["auto", "static", "weights", "nodes"]
MIN_SQNR_DB = 24.0  # int8.md, rule 8
PREFERENCES = {"accuracy": MIN_SQNR_DB, "speed": 18.0}
"""Minimum SQNR of the outputs in dB, by `prefer`, unless `min_sqnr` is set."""
MAX_DROP = 0.01
MINUTES = 4
_CALIBRATED = ("prefer", "keep_float", "isa", "engine", "batch", "threads", "budget", "group_by")
_SEARCHED = ("prefer", "group_by")
_BY_LABELS = ("metric", "max_drop")
_WEIGHTS = ("minimum_size", "skip")


@takes_former_names
@dataclass(frozen=True)
class QuantizeOptions:
    """Options for quantizing a graph."""

    HEADING: ClassVar = "With --calibration"

    mode: Annotated[QuantizationMode, Flag(heading="Quantization")] = "auto"
    """static: layers run in int8; weights: weights are stored in int8, and layers run in float32;
    nodes: as in the Graph Transform Tool; auto: static with `calibration` or for a
    quantization-aware model, else weights."""
    min_sqnr: Annotated[float | None, Flag(metavar="DB", heading="Quantization")] = None
    """Smallest signal-to-noise ratio of the outputs, in dB; noisier results are not written. With
    `calibration`, noisy layers are kept in float32 to reach it [default: 15; with `calibration`,
    that of `prefer`]."""
    prefer: Literal["accuracy", "speed"] = "accuracy"
    """accuracy: at least 24 dB; speed: at least 18 dB, with more int8 layers. With `evaluation`,
    `max_drop` applies instead."""
    metric: Annotated[str, Flag(metavar="NAME|MODULE:FUNCTION")] = "top1"
    """With `evaluation`, the metric that `max_drop` limits: top1, top5, mae (mean absolute error),
    or your own function of the outputs by name and the labels."""
    max_drop: Annotated[float, Flag(at_least=0)] = MAX_DROP
    """With `evaluation`, the largest loss of the metric allowed; 0.01 of top1 is one percentage
    point."""
    keep_float: Annotated[Sequence[str], Flag(metavar="NODE")] = ()
    """Keep this layer in float32; may be repeated."""
    isa: Isa = "auto"
    """Instruction set of the target CPU; auto: that of this machine."""
    engine: Literal["auto", "tensorflow", "openvino"] = "tensorflow"
    """Execution engine of the int8 model. openvino: layers are chosen by noise and time in
    OpenVINO; the result still runs in TensorFlow. auto: openvino if it is installed, matches
    TensorFlow, and is faster."""
    batch: Annotated[int | None, Flag(at_most=MAX_BATCH)] = None
    """Batch size to optimize for [default: 1]."""
    threads: Annotated[tuple[int, int] | None, Flag(format="thread pair")] = None
    """Threads per op and number of concurrent ops to optimize for, such as 4x1 [default:
    TensorFlow's]."""
    budget: Annotated[float, Flag(metavar="MINUTES", above=0)] = MINUTES
    """Time limit of the command. If that is too short, deploykit reports the minimum during the
    run."""
    group_by: Annotated[str | None, Flag(metavar="NAME")] = None
    """Also report SQNR and agreement per group of held-out or `evaluation` samples. NAME is an
    array, column or feature with one string or integer per sample, or `folder` for images.
    [default: `group`, or image folders that are not the classes]"""
    allow_low_accuracy: bool = False
    """Continue although the predictions of the float32 model look wrong: all of one class, or no
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
        """The batch size and the threads to optimize for."""
        return RunConfig(batch=self.batch, threads=self.threads)

    def resolved_mode(
        self, is_calibrated: bool, is_evaluated: bool, states_scales: bool = False
    ) -> str:
        """Return static, weights or nodes.

        `states_scales`: the model has fake-quants, so static needs no calibration data.
        GraphError: an option is set that has no effect with the given data, or needs other data.
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
            self._refuse(_SEARCHED, "has no effect for a model that states its int8 scales")
        elif is_calibrated:
            self._refuse(_WEIGHTS, "is for quantizing without --calibration")
        else:
            self._refuse((*_BY_LABELS, *_CALIBRATED), "needs --calibration DATA")
        if is_calibrated and not is_evaluated:
            self._refuse(_BY_LABELS, "needs --evaluation DATA")
        if is_evaluated:
            self._refuse(("prefer",), "is for a search without --evaluation; use --max-drop")
        if self.min_sqnr is not None:
            self._refuse(("prefer",), "has no effect with --min-sqnr")
        if self.engine != "auto":
            check_engine(self.engine)
        return mode

    def _refuse(self, names: Sequence[str], why: str) -> None:
        """Raise GraphError if one of these options is set, as it would have no effect."""
        defaults = {field.name: field.default for field in fields(self)}
        for name in names:
            value = getattr(self, name)
            if value != defaults[name] and value not in ([], ()):
                raise GraphError("option-reason", option=name.replace("_", "-"), reason=why)


DEFAULT = QuantizeOptions()


logger = logging.getLogger("deploykit")

NAMED = 3  # layers in a message
AGREEMENT = 0.95  # top-1 agreement below which a warning is logged
EIGHT_BIT_OPS = frozenset({*OPS.values(), "Dequantize", "QuantizeV2", "QuantizedConv2D",
                           "QuantizedMatMul", "Requantize"})  # fmt: skip


def refuse_quantized(graph: Graph) -> None:
    """Raise GraphError if a graph is already quantized to int8."""
    if holds_codes(graph):
        raise GraphError("quantized-already", sign="in codes, for OpenVINO")
    result = next((node for node in graph if node.op in EIGHT_BIT_OPS), None)
    if result is not None:
        raise GraphError("quantized-already", sign=f"node '{result.name}' is a {result.op}")


def is_quantized(graph: Graph) -> bool:
    """Return whether any part of a graph is stored in int8 or runs in int8."""
    return holds_codes(graph) or any(
        node.op in EIGHT_BIT_OPS or node.op.startswith("Quantized") for node in graph
    )


def refuse_unknown_layers(graph: Graph, names: Iterable[str]) -> None:
    """Raise GraphError if a name is not the name of a layer."""
    layers = [node.name for node in graph if node.op in LAYER_OPS]
    for name in names:
        if name not in layers:
            what = (
                f"node '{name}' is a {graph[name].op}, not a layer"
                if name in graph
                else (f"there is no layer '{name}'")
            )
            hint = nearest(name, layers)
            if not hint and layers:
                hint = f"; layers are {', '.join(layers[:NAMED])}"
            raise GraphError("inside-with-hint", reason=what, hint=hint)


def has_layers(graph: Graph) -> bool:
    """Return whether a graph has a float32 layer, or a layer in a function, of any type."""
    return any(node.op in LAYER_OPS and node.attr("T") == "float32" for node in graph) or any(
        node.op in LAYER_OPS for function in graph.library.function for node in function.node_def
    )


def doubts(judge: Evaluator, samples: Dataset, how: QuantizeOptions) -> list[str]:
    """Return and log why the float32 graph's predictions are doubtful, as notes.

    Outputs are classes if a Softmax or a Sigmoid makes them, or if labels are class numbers. Other
    outputs may be coordinates, of which the same one is always the highest.

    VerificationError: predicted classes are doubtful, and `allow_low_accuracy` is not set.
    """
    result, labels = judge.answers(), samples.labels_of(samples.feeds())
    if result is None:
        return []
    text = doubt(
        result.numbers,
        result.classes,
        labels,
        source=samples.source,
        is_named=samples.has_class_names,
    )
    if not text:
        return []
    if not how.allow_low_accuracy and (result.are_sure or labels is not None):
        raise VerificationError("outputs-doubtful", doubt=text[:-1])
    return warned([text])


def few_agree(agreement: float | None) -> list[str]:
    """Return and log a note if the top-1 agreement of int8 with float32 is low."""
    if agreement is None or agreement >= AGREEMENT:
        return []
    return warned(
        [
            f"only {100 * agreement:.1f} % top-1 agreement with the float32 model on held-out "
            "samples; a higher --min-sqnr keeps more layers in float32"
        ]
    )


def below_in_group(groups: Iterable[GroupCloseness], bar: float) -> list[str]:
    """Return and log a note on the worst group if its lower SQNR bound is below `bar`, in dB."""
    worst = worst_group(groups)
    if worst is None or worst.sqnr_db is None or worst.sqnr_low_db is None:
        return []
    if worst.sqnr_low_db >= bar:
        return []
    return warned(
        [
            f"group '{worst.name}': SQNR {worst.sqnr_db:.1f} dB on {worst.samples} samples, and "
            f"its 95 % lower bound, {worst.sqnr_low_db:.1f} dB, is below the requested {bar:g} "
            "dB: add such samples to the calibration data"
        ]
    )


def warned(notes: Iterable[str]) -> list[str]:
    """Log each note as a warning, and return the notes."""
    notes = list(notes)
    for note in notes:
        logger.warning("%s", note)
    return notes
