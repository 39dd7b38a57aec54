"""Which tensors of two graphs are fed and compared with each other."""

from collections.abc import Sequence
from typing import NamedTuple

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node
from deploykit.verification.choices import choices, paired_choices


class Pairing(NamedTuple):
    """The tensors of a reference that are compared with those of a result."""

    pairs: Sequence[tuple[str, str]]
    """The outputs, what lies in front of a choice such as a non-maximum suppression, and what final
    Softmaxes read."""
    in_front: Sequence[tuple[str, str]] = ()
    """Of the pairs, those from which a choice is made."""
    behind: frozenset[str] = frozenset()
    """The outputs of the reference that follow a choice."""


def paired_outputs(reference: Graph, result: Graph) -> Pairing:
    """Return the tensors to compare."""
    others = _paired(reference.outputs, result.outputs)
    pairs = list(zip(reference.outputs, others, strict=True))
    in_front, behind = paired_choices(reference, result)
    pairs += in_front
    for a, b in tuple(pairs):
        before = (before_softmax(reference, a), before_softmax(result, b))
        if before[0] is not None and before[1] is not None:
            pairs.append((before[0], before[1]))
    return Pairing(list(dict.fromkeys(pairs)), in_front, behind)


def compared_tensors(reference: Graph) -> list[str]:
    """Return the tensors of a graph that are compared, with whatever result."""
    found = [*reference.outputs, *choices(reference).tensors]
    found += [before for a in found if (before := before_softmax(reference, a)) is not None]
    return list(dict.fromkeys(found))


def judged_outputs(reference: Graph, paired: Pairing) -> set[str]:
    """Return the tensors of the reference whose noise counts.

    Not a Softmax, and not what follows a choice, where what lies in front is compared.
    """
    compared = {a for a, _ in paired.pairs}
    return {a for a in compared - paired.behind if before_softmax(reference, a) not in compared}


def before_softmax(graph: Graph, tensor: str) -> str | None:
    """Return what the Softmax that makes a tensor reads, or None where there is none."""
    node = maker(graph, tensor)
    return node.inputs[0] if node.op == "Softmax" else None


def maker(graph: Graph, tensor: str) -> Node:
    """Return the node that makes the values of a tensor, which others only hand on."""
    node = graph.producer(tensor)
    while node.op in ("Identity", "Reshape", "Squeeze") and node.inputs:
        node = graph.producer(node.inputs[0])
    return node


def _paired(names: Sequence[str], others: Sequence[str]) -> Sequence[str]:
    """Return for each name the one it is paired with: itself, or else the one in its place."""
    return names if set(names) <= set(others) else others
