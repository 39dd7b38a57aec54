"""What OpenVINO's CPU plugin would compute in other types than TensorFlow, which it does not say.

Found with 2026.4.1: float64 becomes float32, complex numbers lose their imaginary part, and sums in
8 bits stop at the largest number where TensorFlow's begin again at the least. Whole numbers of 64
bits become such of 32; those that are fed are looked at in each call, as most are small.
"""

from collections.abc import Mapping
from typing import Any

from deploykit.transforms.core.errors import GraphError, LoadError, unknown_name
from deploykit.transforms.core.tensors import Array, type_name

_TYPES = ("T", "dtype", "DstT", "SrcT")
_OTHERWISE = {
    "complex64": "without the imaginary part",
    "complex128": "without the imaginary part",
    "float64": "in float32",
}
_SATURATING = frozenset({"int8", "uint8"})
_ADDING = frozenset({
    "Add", "AddN", "AddV2", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "BiasAdd", "Cumsum",
    "MatMul", "Mul", "Neg", "Prod", "Square", "Sub", "Sum",
})  # fmt: skip
_WIDE = ("int64", "uint32", "uint64")
_MOST = (1 << 31) - 1


def check_types(graph_def: Any) -> None:
    """Raise LoadError for a node that OpenVINO would compute in another type."""
    functions = (function.node_def for function in graph_def.library.function)
    for node in (each for nodes in (graph_def.node, *functions) for each in nodes):
        for name in _TYPES:
            type_ = type_name(node.attr[name].type) if name in node.attr else ""
            if how := _OTHERWISE.get(type_):
                raise LoadError("openvino-type", node=node.name, op=node.op, type=type_, how=how)
            if type_ == "string" and node.op == "Placeholder":
                raise LoadError("openvino-strings", name=node.name)
            if name == "T" and type_ in _SATURATING and node.op in _ADDING:
                raise LoadError("openvino-sum-saturates", node=node.name, op=node.op, type=type_)


def check_fed(feeds: Mapping[str, Any], types: Mapping[str, str]) -> None:
    """Raise GraphError where arrays are not those that a graph takes.

    Args:
        feeds: the arrays by input.
        types: the type of each input of the graph; empty where nothing depends on it.
    """
    for tensor, type_ in types.items():
        if type_ and tensor not in feeds:
            raise GraphError("openvino-input-not-fed", name=tensor)
    for tensor, array in feeds.items():
        if tensor not in types:
            raise unknown_name("input", tensor, sorted(types))
        found = getattr(getattr(array, "dtype", None), "name", type(array).__name__)
        if types[tensor] and found != types[tensor]:
            raise GraphError(
                "does-not-fit", what=f"input '{tensor}'", got=found, expected=types[tensor]
            )
        if found in _WIDE:
            _check_range(tensor, array)


def _check_range(tensor: str, array: Array) -> None:
    """Raise GraphError for whole numbers beyond 32 bits, which OpenVINO's CPU would change."""
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if low < -_MOST - 1 or high > _MOST:
        beyond = high if high > _MOST else low
        raise GraphError("openvino-whole-numbers", name=tensor, value=beyond)
