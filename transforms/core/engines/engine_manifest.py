"""What is written of a graph that an engine computes, as values and as plain data."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deploykit.transforms.core.engines.engines import EngineUse
from deploykit.transforms.core.engines.proof import Bars
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.node import split
from deploykit.transforms.core.protos import GraphDef
from deploykit.transforms.core.running.differences import QualityBar
from deploykit.transforms.core.tensors import Array, type_number, type_of


@dataclass(frozen=True)
class EngineTensor:
    """A tensor of graph.pb; a size of -1 is open, and so is a shape of None."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None

    def takes(self, array: Array) -> bool:
        """Say whether an array has its type and shape."""
        sizes = self.shape
        return type_of(array) == self.dtype and (
            sizes is None
            or (
                array.ndim == len(sizes)
                and all(s < 0 or s == n for s, n in zip(sizes, array.shape, strict=True))
            )
        )


@dataclass(frozen=True)
class EngineSignature:
    """A signature that the engine computes: tensors by the names that callers know."""

    inputs: Mapping[str, EngineTensor]
    outputs: Mapping[str, EngineTensor]


@dataclass(frozen=True)
class EngineAnswer:
    """What TensorFlow gives for a batch, by the names that callers of a signature know."""

    signature: str
    batch: int
    feeds: Mapping[str, Array]
    expected: Mapping[str, Array]


@dataclass(frozen=True)
class EngineFolder:
    """All that the folder holds."""

    use: EngineUse
    graph_def: bytes
    signatures: Mapping[str, EngineSignature]
    answers: Sequence[EngineAnswer]
    """Of each signature some, of batches 0, 1 and 3 where the model takes them."""
    bars: Mapping[str, Bars]
    """By signature, how near each output has to come to TensorFlow's answers."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Why TensorFlow computes the other signatures of the version."""
    takes_empty: bool = True
    """Whether the engine takes empty batches; else a row has to take the place of one."""
    is_bound: bool = True
    """Whether the manifest holds the SHA-256 of the version's files; those of 0.1 do not."""


def document_of(content: EngineFolder, name_of: Callable[[Array], str]) -> dict[str, Any]:
    """Return all but the graph as plain data, with names in the place of arrays."""
    return {
        "use": content.use.document(),
        "signatures": {
            name: {side: _tensors(getattr(each, side)) for side in ("inputs", "outputs")}
            for name, each in content.signatures.items()
        },
        "left_to_tensorflow": dict(content.left),
        "takes_empty": content.takes_empty,
        "bars": {name: _bars(each) for name, each in content.bars.items()},
        "answers": [
            {
                "signature": each.signature,
                "batch": each.batch,
                "feeds": {alias: name_of(array) for alias, array in each.feeds.items()},
                "expected": {alias: name_of(array) for alias, array in each.expected.items()},
            }
            for each in content.answers
        ],
    }


def parsed(
    document: Mapping[str, Any], graph_def: bytes, constants: Mapping[str, Array]
) -> EngineFolder:
    """Return what a document says; what it lacks raises whatever it may.

    Args:
        document: what `document_of` returned.
        graph_def: the graph.
        constants: the arrays by the names that it gives them.
    """
    signatures = {
        name: EngineSignature(_read_tensors(each["inputs"]), _read_tensors(each["outputs"]))
        for name, each in document["signatures"].items()
    }
    answers = [
        EngineAnswer(
            each["signature"],
            each["batch"],
            {alias: constants[name] for alias, name in each["feeds"].items()},
            {alias: constants[name] for alias, name in each["expected"].items()},
        )
        for each in document["answers"]
    ]
    bars = {
        name: {alias: _read_bar(bar) for alias, bar in each.items()}
        for name, each in document["bars"].items()
    }
    takes_empty = document["takes_empty"]
    if type(takes_empty) is not bool:
        raise TypeError
    left = {str(name): str(why) for name, why in document["left_to_tensorflow"].items()}
    return EngineFolder(
        EngineUse.of(document["use"]), graph_def, signatures, answers, bars, left, takes_empty
    )


def check_parts(found: EngineFolder, graph_def: GraphDef) -> None:
    """Raise GraphError where the parts of a folder do not fit each other."""
    nodes = {node.name for node in graph_def.node}
    if not found.signatures:
        raise GraphError("manifest-without-signature")
    for name, signature in found.signatures.items():
        for tensor in (*signature.inputs.values(), *signature.outputs.values()):
            if split(tensor.name)[0] not in nodes:
                raise GraphError("manifest-tensor-missing", name=name, tensor=tensor.name)
        if not signature.outputs or set(found.bars.get(name, ())) != set(signature.outputs):
            raise GraphError("manifest-lacks-outputs", name=name)
        if not any(each.signature == name and each.batch for each in found.answers):
            raise GraphError("manifest-lacks-answers", name=name)
    for each in found.answers:
        if each.signature not in found.signatures or type(each.batch) is not int:
            raise GraphError("manifest-answers-unknown", signature=each.signature)
        signature = found.signatures[each.signature]
        for sides, arrays in ((signature.inputs, each.feeds), (signature.outputs, each.expected)):
            if set(sides) != set(arrays):
                raise GraphError(
                    "manifest-answers-names",
                    signature=each.signature,
                    names=sorted(arrays),
                    expected=sorted(sides),
                )
            for alias, array in arrays.items():
                if not sides[alias].takes(array):
                    raise GraphError(
                        "manifest-answers-form",
                        signature=each.signature,
                        name=alias,
                        got_type=type_of(array),
                        got_shape=array.shape,
                        dtype=sides[alias].dtype,
                        shape=sides[alias].shape,
                    )


def _tensors(tensors: Mapping[str, EngineTensor]) -> dict[str, Any]:
    return {
        alias: {
            "name": each.name,
            "dtype": str(each.dtype),
            "shape": None if each.shape is None else list(each.shape),
        }
        for alias, each in tensors.items()
    }


def _read_tensors(document: Mapping[str, Any]) -> dict[str, EngineTensor]:
    found = {}
    for alias, each in document.items():
        shape = None if each["shape"] is None else tuple(each["shape"])
        type_number(each["dtype"])
        split(each["name"])
        if not all(type(size) is int and size >= -1 for size in shape or ()):
            raise ValueError
        found[alias] = EngineTensor(each["name"], each["dtype"], shape)
    return found


def _bars(bars: Bars) -> dict[str, Any]:
    return {alias: None if bar is None else asdict(bar) for alias, bar in bars.items()}


def _read_bar(document: Any) -> QualityBar | None:
    if document is None:
        return None
    numbers = document["tolerance"], document["min_sqnr"]
    given = [each for each in numbers if each is not None]
    if len(given) != 1 or not all(0 < float(each) < math.inf for each in given):
        raise ValueError
    return QualityBar(*numbers, of_logarithm=document["of_logarithm"] is True)
