"""GraphDefs written as plainly as possible: nothing here checks anything."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.transforms.ir.protos import AttrValue, FunctionDef, GraphDef, NodeDef, TensorProto

FLOAT, DOUBLE, INT32, UINT8, STRING, INT64, BOOL, VARIANT, RESOURCE = 1, 2, 3, 4, 7, 9, 10, 21, 20
FLOAT_REF = 101
_TYPES = {"float32": FLOAT, "float64": DOUBLE, "int32": INT32, "uint8": UINT8, "int64": INT64,
          "bool": BOOL, "object": STRING}  # fmt: skip
_NARROW = {float: np.float32, int: np.int32}  # which Python has not


class Type(int):
    """A value of an attribute of type `type`."""


class Shape(tuple):
    """A value of an attribute of type `shape`; None: of unknown rank."""


class Func(str):
    """A value of an attribute of type `func`."""


def tensor(value: Any) -> TensorProto:
    """Return an array as a message, its bytes as they are."""
    array = np.asarray(value, _NARROW.get(type(value)))
    made = TensorProto(dtype=_TYPES[array.dtype.name])
    for size in array.shape:
        made.tensor_shape.dim.add(size=size)
    if array.dtype == object:
        made.string_val.extend(each for each in array.ravel())
    else:
        made.tensor_content = array.tobytes()
    return made


def attr(value: Any) -> AttrValue:
    """Return an attribute's value by the kind of the Python value."""
    if isinstance(value, AttrValue):
        return value
    made = AttrValue()
    if isinstance(value, Type):
        made.type = int(value)
    elif isinstance(value, Shape):
        made.shape.SetInParent()
        for size in value:
            made.shape.dim.add(size=size)
    elif isinstance(value, Func):
        made.func.name = value
    elif isinstance(value, bool):
        made.b = value
    elif isinstance(value, int):
        made.i = value
    elif isinstance(value, float):
        made.f = value
    elif isinstance(value, str | bytes):
        made.s = value.encode() if isinstance(value, str) else value
    elif isinstance(value, TensorProto):
        made.tensor.CopyFrom(value)
    elif isinstance(value, np.ndarray):
        made.tensor.CopyFrom(tensor(value))
    else:
        _fill_list(made, value)
    return made


def _fill_list(made: AttrValue, values: Iterable[Any]) -> None:
    made.list.SetInParent()
    for value in values:
        one = attr(value)
        kind = one.WhichOneof("value")
        field = getattr(made.list, kind)
        if kind in ("shape", "tensor", "func"):
            field.add().CopyFrom(getattr(one, kind))
        else:
            field.append(getattr(one, kind))


def node(name: str, op: str, *inputs: str, **attrs: Any) -> NodeDef:
    """Return a node."""
    made = NodeDef(name=name, op=op, input=inputs)
    for key, value in attrs.items():
        made.attr[key].CopyFrom(attr(value))
    return made


def placeholder(name: str = "x", shape: Iterable[int] | None = (2, 3), of: int = FLOAT) -> NodeDef:
    """Return a placeholder."""
    made = node(name, "Placeholder", dtype=Type(of), shape=Shape(shape or ()))
    if shape is None:
        made.attr["shape"].shape.unknown_rank = True
    return made


def constant(name: str, value: Any, of: int | None = None) -> NodeDef:
    """Return a constant; `of` is the type of the attribute, if it is to be another one."""
    made = value if isinstance(value, TensorProto) else tensor(value)
    return node(name, "Const", dtype=Type(made.dtype if of is None else of), value=made)


def floats(name: str, op: str, *inputs: str, **attrs: Any) -> NodeDef:
    """Return a node of type float."""
    return node(name, op, *inputs, T=Type(FLOAT), **attrs)


def text(name: str, value: str | bytes) -> NodeDef:
    """Return a constant text."""
    content = value.encode() if isinstance(value, str) else value
    return constant(name, TensorProto(dtype=STRING, string_val=[content], tensor_shape={}))


def function(
    name: str,
    nodes: Iterable[NodeDef],
    args: Iterable[tuple[str, int]] = (("x", FLOAT),),
    results: Iterable[tuple[str, int, str]] = (),
) -> FunctionDef:
    """Return a function; a result is its name, its type, and the tensor that is returned."""
    made = FunctionDef(node_def=nodes)
    made.signature.name = name
    for arg, of in args:
        made.signature.input_arg.add(name=arg, type=of)
    for result, of, source in results:
        made.signature.output_arg.add(name=result, type=of)
        made.ret[result] = source
    return made


def graph(*nodes: NodeDef, functions: Iterable[FunctionDef] = ()) -> GraphDef:
    """Return a graph of exactly these."""
    made = GraphDef(node=nodes)
    made.versions.producer = 1882
    made.library.function.extend(functions)
    return made


def net(*nodes: NodeDef, end: str | None = None, functions: Iterable[FunctionDef] = ()) -> GraphDef:
    """Return a small sound net from `x` [2, 3] to `out`, with these nodes besides.

    With `end`, `out` waits for this node too: it is needed.
    """
    weights = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    own = [
        placeholder(),
        constant("weights", weights),
        floats("dense", "MatMul", "x", "weights", transpose_a=False, transpose_b=False),
        floats("out", "Relu", "dense"),
    ]
    if end is not None:
        own[-1].name = "relu"
        own.append(floats("out", "Identity", "relu", f"^{end.partition(':')[0]}"))
    return graph(*own, *nodes, functions=functions)


def written_graph(made: GraphDef, name: str = "model.pb"):
    """Return what writes a graph into a folder."""

    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(made.SerializeToString(deterministic=True))
        return path

    return write
