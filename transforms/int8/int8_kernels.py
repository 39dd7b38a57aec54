"""The int8 instructions of this CPU, and TensorFlow's private int8 ops that run on it."""

import contextlib
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from deploykit.transforms.common.errors import CrashError, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array, DType, numpy_type
from deploykit.transforms.runtime.child_process import call

Isa = Literal["auto", "avx2", "vnni"]
ISAS: tuple[Isa, ...] = get_args(Isa)
# On Arm they are called asimddp and i8mm.
_EXACT = frozenset({"amx_int8", "avx512_vnni", "avx_vnni", "asimddp", "i8mm"})


def flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the instruction sets of the first CPU; empty if the system does not report them."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return frozenset()
    known = (line.partition(":") for line in lines)
    result = (value for name, _, value in known if name.strip() in ("flags", "Features"))
    return frozenset(next(result, "").split())


def sums_exactly(isa: str) -> bool:
    """Return whether int8 products are summed in 32 bits, as VNNI, AMX and Arm's dot products do.

    AVX2 first adds the products of two adjacent inputs in 16 bits, where they may saturate.
    GraphError: the instruction set is unknown.
    """
    if isa not in ISAS:
        raise GraphError("not-one-of", what="isa", known=["auto", "avx2", "vnni"], got=isa)
    return isa == "vnni" or (isa == "auto" and not _EXACT.isdisjoint(flags()))


_FLOAT = DType("float32")
_ONEDNN: dict[str, Any] = {
    "T": _FLOAT,
    "_kernel": "MklNameChangeOp",
    "fused_ops": ["BiasAdd", "Relu"],
    "num_args": 1,
    "is_filter_const": True,
}
_WINDOW: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": "VALID"}
_CODES, _WEIGHTS = DType("quint8"), DType("qint8")
_EIGHT_BIT: dict[str, Any] = {"Tbias": _FLOAT, "Tdevice_inputs": [_CODES, _WEIGHTS, _FLOAT]}
_EIGHT_BIT_WINDOW: dict[str, Any] = {
    **_WINDOW,
    **_EIGHT_BIT,
    "Tinput": _CODES,
    "Tfilter": _WEIGHTS,
    "Tsummand": _CODES,
    "out_type": _CODES,
    "Thost_inputs": [_FLOAT] * 6,
    "Tdevice_outputs": [_CODES],
    "Thost_outputs": [_FLOAT] * 2,
    "fused_ops": ["BiasAdd", "Relu", "Requantize"],
}


def _ones(*shapes: tuple[int, ...], types: tuple[str, ...] = ()) -> list[tuple[Array, str]]:
    """Return ones in these shapes with their types, float32 unless given."""
    kinds = types or ("float32",) * len(shapes)
    return [(np.ones(s, numpy_type(k)), k) for s, k in zip(shapes, kinds, strict=True)]


def _codes(*shapes: tuple[int, ...]) -> list[tuple[Array, str]]:
    """Return codes, weights and a bias of ones, and ranges in which a code is its value."""
    return _ones(*shapes, types=("quint8", "qint8", "float32")) + _ends(0, 255, [-127], [127])


def _ends(*values: int | list[int]) -> list[tuple[Array, str]]:
    return [(np.array(value, np.float32), "float32") for value in values]


_EIGHT_BIT_PRODUCT: dict[str, Any] = {**_EIGHT_BIT, "T1": _CODES, "T2": _WEIGHTS, "U": _FLOAT}

# Op, and a variant if it is tried twice: its inputs, its attributes, and the expected result.
_TRIALS: Mapping[str, tuple[list[tuple[Array, str]], dict[str, Any], float | tuple[float, ...]]] = {
    "_MklNativeFusedConv2D": (
        _ones((1, 2, 2, 3), (2, 2, 3, 1), (1,)),
        {**_ONEDNN, **_WINDOW, "TArgs": [_FLOAT]},
        13.0,
    ),
    "_MklNativeFusedDepthwiseConv2dNative": (
        _ones((1, 2, 2, 1), (2, 2, 1, 1), (1,)),
        {**_ONEDNN, **_WINDOW},
        5.0,
    ),
    "_MklLayerNorm": (
        [(np.array([[0, 2]], np.float32), "float32"), *_ones((2,), (2,))],
        {"T": _FLOAT, "epsilon": 0.0},
        (0.0, 2.0),
    ),
    "_MklNativeFusedMatMul": (_ones((1, 3), (3, 1), (1,)), _ONEDNN, 4.0),
    "_FusedQuantizedConv2D": (
        _codes((1, 2, 2, 3), (2, 2, 3, 1), (1,)) + _ends(0, 255),
        _EIGHT_BIT_WINDOW,
        13.0,
    ),
    "_FusedQuantizedDepthwiseConv2D": (
        _codes((1, 2, 2, 1), (2, 2, 1, 1), (1,)) + _ends(0, 255),
        _EIGHT_BIT_WINDOW,
        5.0,
    ),
    "_QuantizedMatMul": (
        _codes((1, 3), (3, 1), (1,)),
        {
            **_EIGHT_BIT_PRODUCT,
            "Tout": _FLOAT,
            "Thost_inputs": [_FLOAT] * 4,
            "Tdevice_outputs": [_FLOAT],
            "Thost_outputs": [],
            "fused_ops": ["BiasAdd", "Dequantize"],
        },
        4.0,
    ),
    "_QuantizedMatMul GeluExact": (
        _codes((1, 3), (3, 1), (1,)) + _ends(-1, 254),
        {
            **_EIGHT_BIT_PRODUCT,
            "Tout": _CODES,
            "Thost_inputs": [_FLOAT] * 6,
            "Tdevice_outputs": [_CODES],
            "Thost_outputs": [_FLOAT] * 2,
            "fused_ops": ["BiasAdd", "GeluExact", "Requantize"],
            "output_quant_mode": "MIN_FIRST",
        },
        5.0,
    ),
}


def probe(ops: Iterable[str]) -> frozenset[str]:
    """Return those of these private ops that run here and return the expected result.

    The first call runs TensorFlow in a child process; later calls use the cached result.
    """
    failed = {_op(trial) for trial in _TRIALS.keys() - _running()}
    return (frozenset(map(_op, _TRIALS)) - failed) & frozenset(ops)


@functools.cache
def _running() -> frozenset[str]:
    try:
        return _right(tuple(_TRIALS))
    except (CrashError, GraphError):  # one op or its import failed: try each op separately
        alone = set[str]()
        for trial in _TRIALS:
            with contextlib.suppress(CrashError, GraphError):
                alone |= _right((trial,))
        return frozenset(alone)


def _op(trial: str) -> str:
    return trial.partition(" ")[0]


def _right(trials: tuple[str, ...]) -> frozenset[str]:
    """Return the trials, run in one child, with the expected result and none for an empty batch.

    The second node of each trial is for the empty batch, which may crash.
    """
    graph, names = Graph(), dict[str, tuple[str, str]]()
    for trial in trials:
        values, attrs, _ = _TRIALS[trial]
        (first, type_), *rest = values
        name = trial[1:].replace(" ", "_")
        names[trial] = name, f"{name}_without_rows"
        for node, read in zip(names[trial], (values, [(first[:0], type_), *rest]), strict=True):
            inputs = [f"{node}/{place}" for place in range(len(read))]
            for tensor, (value, kind) in zip(inputs, read, strict=True):
                graph.add(Node.constant(tensor, value, kind))
            graph.add(Node(node, _op(trial), tuple(inputs)).with_attrs(**attrs))
    content = b"".join(graph.serialized())
    fetches = [name for pair in names.values() for name in pair]
    arrays = call("deploykit.transforms.runtime.session:run_each", content, fetches)
    return frozenset(
        trial for trial, pair in names.items() if _gives(trial, *map(arrays.get, pair))
    )


def _gives(trial: str, value: Array | None, empty: Array | None) -> bool:
    """Return whether an op returned exactly the expected result; codes are records of one field."""
    if value is None or empty is None or empty.size:
        return False
    fields, expected = value.dtype.names, _TRIALS[trial][2]
    numbers = [*expected] if isinstance(expected, tuple) else [expected]
    return bool((value[fields[0]] if fields else value).ravel().tolist() == numbers)
