"""What a model must be for 8 bits with calibration; it is said or warned of at once."""

import logging
from collections.abc import Iterable

from deploykit.quantization.accuracy import Judge
from deploykit.quantization.requested import QuantizeOptions
from deploykit.transforms.core.errors import GraphError, VerificationError, nearest
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.plan import OPS
from deploykit.transforms.core.int8.stored_codes import holds_codes
from deploykit.transforms.core.layers.layers import LAYER_OPS
from deploykit.transforms.core.tensors import Array
from deploykit.verification.groups import GroupCloseness, worst_group
from deploykit.verification.plausibility import doubt

logger = logging.getLogger("deploykit")

NAMED = 3  # layers in a message
AGREEMENT = 0.95  # below this, what is in 8 bits often answers otherwise
EIGHT_BIT_OPS = frozenset({*OPS.values(), "Dequantize", "QuantizeV2", "QuantizedConv2D",
                           "QuantizedMatMul", "Requantize"})  # fmt: skip


def refuse_quantized(graph: Graph) -> None:
    """Raise GraphError where a graph is in 8 bits already."""
    if holds_codes(graph):
        raise GraphError("quantized-already", sign="in codes, for OpenVINO")
    found = next((node for node in graph if node.op in EIGHT_BIT_OPS), None)
    if found is not None:
        raise GraphError("quantized-already", sign=f"node '{found.name}' is a {found.op}")


def is_quantized(graph: Graph) -> bool:
    """Return whether anything of a graph is stored in int8, or runs in it."""
    return holds_codes(graph) or any(
        node.op in EIGHT_BIT_OPS or node.op.startswith("Quantized") for node in graph
    )


def refuse_unknown_layers(graph: Graph, names: Iterable[str]) -> None:
    """Raise GraphError where a name is not that of a layer."""
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
    """Say whether there is a layer in float32, or in a function, where its type may be open."""
    return any(node.op in LAYER_OPS and node.attr("T") == "float32" for node in graph) or any(
        node.op in LAYER_OPS for function in graph.library.function for node in function.node_def
    )


def doubts(judge: Judge, labels: Array | None, how: QuantizeOptions) -> list[str]:
    """Return what speaks against the answers of a judge's float graph, as notes; it is warned of.

    Answers are classes where a Softmax or a Sigmoid makes them, or where labels are class numbers;
    elsewhere they may be coordinates, of which the same one is always the highest.

    VerificationError: something does, answers are classes, and it is not allowed.
    """
    found = judge.answers()
    said = "" if found is None else doubt(found.numbers, found.classes, labels)
    if found is None or not said:
        return []
    if not how.allow_low_accuracy and (found.are_sure or labels is not None):
        raise VerificationError("outputs-doubtful", doubt=said[:-1])
    return warned([said])


def few_agree(agreement: float | None) -> list[str]:
    """Return a note where few answers in 8 bits are those in float; it is warned of."""
    if agreement is None or agreement >= AGREEMENT:
        return []
    return warned(
        [
            f"only {100 * agreement:.1f} % of the answers on held-out samples are those of the "
            "float model; a higher --min-sqnr keeps more layers float"
        ]
    )


def below_in_group(groups: Iterable[GroupCloseness], bar: float) -> list[str]:
    """Return a note that names the worst group, where its bound is below what is requested.

    `bar` is what outputs have to keep, in dB; it is warned of.
    """
    worst = worst_group(groups)
    if worst is None or worst.sqnr_db is None or worst.sqnr_low_db is None:
        return []
    if worst.sqnr_low_db >= bar:
        return []
    return warned(
        [
            f"group '{worst.name}' keeps {worst.sqnr_db:.1f} dB on {worst.samples} samples, and "
            f"its 95 % lower bound, {worst.sqnr_low_db:.1f} dB, is below the requested {bar:g} "
            "dB: add such samples to the calibration data"
        ]
    )


def warned(notes: Iterable[str]) -> list[str]:
    """Return notes, and warn of each."""
    notes = list(notes)
    for note in notes:
        logger.warning("%s", note)
    return notes
