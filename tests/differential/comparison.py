"""Two graphs are the same: ops, attributes, devices, inputs, control inputs, and names if asked.

The graphs are walked together from their outputs on, so that each node finds its peer by its place;
no node may find two. The order of the nodes and what no output needs do not count.
"""

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split


def differences(expected: Graph, found: Graph, tolerance: float, names: bool = True) -> list[str]:
    """Return a sentence for each difference; values of Consts may differ by `tolerance`."""
    if (expected.inputs, expected.outputs) != (found.inputs, found.outputs):
        return [f"inputs or outputs: {found.inputs} {found.outputs}, not "
                f"{expected.inputs} {expected.outputs}"]  # fmt: skip
    ends = list(map(producer_name, (*expected.outputs, *expected.inputs)))
    peers: dict[str, str] = {}
    owners: dict[str, str] = {}
    waiting = [(name, name) for name in ends if name in expected or name in found]
    said: list[str] = []
    while waiting:
        a, b = waiting.pop()
        if peers.get(a) == b:
            continue
        if a in peers or b in owners:
            said.append(f"'{a}' is '{peers.get(a, b)}' in one place and '{b}' in another")
            continue
        if a not in expected or b not in found:
            said.append(f"one graph lacks '{a}'")
            continue
        peers[a], owners[b] = b, a
        said += _differences(expected[a], found[b], tolerance, names)
        waiting += zip(
            *([producer_name(t) for t in _inputs(n, names)] for n in (expected[a], found[b])),
            strict=False,
        )
    return said


def left_over(graph: Graph) -> list[str]:
    """Return the nodes that neither an output needs nor is an input."""
    needed = graph.ancestors(map(producer_name, (*graph.outputs, *graph.inputs)))
    return [node.name for node in graph if node.name not in needed]


def _inputs(node: Node, names: bool) -> list[str]:
    return [*node.data_inputs, *(sorted(node.control_inputs) if names else node.control_inputs)]


def _differences(a: Node, b: Node, tolerance: float, names: bool) -> list[str]:
    said = []
    if names and a.name != b.name:
        said.append(f"its name is '{b.name}'")
    if a.op != b.op:
        said.append(f"its op is {b.op}, not {a.op}")
    elif [split(t)[1] for t in a.inputs] != [split(t)[1] for t in b.inputs]:
        said.append(f"its inputs are {b.inputs}, not {a.inputs}")
    if a.device != b.device:
        said.append(f"its device is '{b.device}', not '{a.device}'")
    for name in sorted(a.attrs.keys() | b.attrs.keys()):
        if name not in a.attrs or name not in b.attrs:
            said.append(f"only one has the attribute {name}")
        elif not _equal(a.attr(name), b.attr(name), tolerance):
            said.append(f"{name} is {b.attr(name)}, not {a.attr(name)}")
    return [f"node '{a.name}': {what}" for what in said]


def _equal(a: object, b: object, tolerance: float) -> bool:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return type(a) is type(b) and a == b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f" or not tolerance:
        return np.array_equal(a, b) if a.dtype.kind == "O" else a.tobytes() == b.tobytes()
    return bool(np.abs(a - b).max(initial=0) <= tolerance * np.abs(a).max(initial=0))
