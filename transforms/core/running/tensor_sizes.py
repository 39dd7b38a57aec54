"""How large the tensors of a graph are before it runs, by TensorFlow's own static shapes."""

import math
from typing import Any

from deploykit.transforms.core.errors import LimitError
from deploykit.transforms.core.files.reading import said
from deploykit.transforms.core.tensors import STRING_BYTES

_NUMBER_CHARACTERS = 64  # of a number as text, where no width and precision ask for more


def refuse_large_tensors(graph: Any, most: int) -> None:
    """Raise LimitError where a `tf.Graph` makes a tensor of more than `most` bytes.

    It names the first node that does. A tensor without a static shape counts as small.
    """
    found = too_large_nodes(graph, most)
    for node in graph.get_operations() if found else ():
        if node.name in found:
            raise LimitError("tensor-too-large", node=node.name, type=node.type, most=said(most))


def too_large_nodes(graph: Any, most: int) -> set[str]:
    """Return the nodes of a `tf.Graph` that make, or need, a tensor of more than `most` bytes.

    The graph's nodes are in execution order. What a Const holds does not count: the file has it.
    A tensor without a static shape counts as small.
    """
    found: set[str] = set()
    longest: dict[str, int] = {}  # by node: the bytes of its longest string at most
    for node in graph.get_operations():
        if string := _longest_string(node, longest):
            longest[node.name] = string
        sizes = (_size(tensor, string) for tensor in node.outputs)
        needs = bool(found) and any(tensor.op.name in found for tensor in node.inputs)
        if needs or (node.type != "Const" and any(size > most for size in sizes)):
            found.add(node.name)
    return found


def _size(tensor: Any, string: int) -> int:
    shape = tensor.shape
    if not shape.is_fully_defined():
        return 0
    item = STRING_BYTES + string if tensor.dtype.name == "string" else tensor.dtype.size
    return math.prod(map(int, shape.as_list())) * int(item)


def _longest_string(node: Any, longest: dict[str, int]) -> int:
    if all(tensor.dtype.name != "string" for tensor in node.outputs):
        return 0
    if node.type == "Const":
        return max(map(len, node.get_attr("value").string_val), default=0)
    found = [longest.get(tensor.op.name, 0) for tensor in node.inputs]
    if node.type == "StringJoin":
        return sum(found) + len(node.get_attr("separator")) * max(len(found) - 1, 0)
    if node.type == "AsString":
        asked = (int(node.get_attr(name)) for name in ("width", "precision"))
        return _NUMBER_CHARACTERS + sum(max(each, 0) for each in asked)
    return max(found, default=0)
