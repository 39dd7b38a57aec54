"""Which of TensorFlow's private ops run here, found by running each once in a child process.

They come without a promise: a later TensorFlow, another build or another processor may lack one,
and a wrong one can end the process. So each is tried on a graph of one op whose result is known.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from transforms.core.child import call
from transforms.core.errors import CrashError, GraphError
from transforms.core.graph import Graph
from transforms.core.node import Node
from transforms.core.tensors import DType

_FLOAT = DType("float32")
_ONEDNN: dict[str, Any] = {
    "T": _FLOAT,
    "_kernel": "MklNameChangeOp",
    "fused_ops": ["BiasAdd", "Relu"],
    "num_args": 1,
    "is_filter_const": True,
}
_WINDOW: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": "VALID"}

# Op: shapes of the ones that it reads, its attributes, and the number that it then gives.
_TRIALS: Mapping[str, tuple[list[tuple[int, ...]], dict[str, Any], float]] = {
    "_MklNativeFusedConv2D": (
        [(1, 2, 2, 3), (2, 2, 3, 1), (1,)],
        {**_ONEDNN, **_WINDOW, "TArgs": [_FLOAT]},
        13.0,
    ),
    "_MklNativeFusedDepthwiseConv2dNative": (
        [(1, 2, 2, 1), (2, 2, 1, 1), (1,)],
        {**_ONEDNN, **_WINDOW},
        5.0,
    ),
    "_MklNativeFusedMatMul": ([(1, 3), (3, 1), (1,)], _ONEDNN, 4.0),
}


def probe(ops: Iterable[str]) -> frozenset[str]:
    """Return those of these private ops that run here and give what they must.

    The first call starts TensorFlow in a child process; later ones answer from what it found.
    """
    return _running() & frozenset(ops)


@functools.cache
def _running() -> frozenset[str]:
    try:
        return _right(tuple(_TRIALS))
    except (CrashError, GraphError):  # one of them, or its import: which one?
        return frozenset().union(*map(_right_alone, _TRIALS))


def _right_alone(op: str) -> frozenset[str]:
    try:
        return _right((op,))
    except (CrashError, GraphError):
        return frozenset()


def _right(ops: tuple[str, ...]) -> frozenset[str]:
    """Return the ops that give the right number, tried together in one child process."""
    graph = Graph()
    for op in ops:
        shapes, attrs, _ = _TRIALS[op]
        inputs = [f"{op[1:]}/{place}" for place in range(len(shapes))]
        for name, shape in zip(inputs, shapes, strict=True):
            graph.add(Node.constant(name, np.ones(shape, np.float32)))
        graph.add(Node(op[1:], op, tuple(inputs)).with_attrs(**attrs))
    content, names = b"".join(graph.serialized()), [op[1:] for op in ops]
    values = call("transforms.core.session:run_each", content, names)
    return frozenset(
        op for op in ops if op[1:] in values and values[op[1:]].ravel().tolist() == [_TRIALS[op][2]]
    )
