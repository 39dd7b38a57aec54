"""The manifest of a graph for an engine, as values and as plain data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from deploykit.transforms.common.documents import converted, document
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import EngineUse
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array, type_number, type_of
from deploykit.transforms.runtime.differences import Bars, QualityBar


@dataclass(frozen=True)
class EngineTensor:
    """A tensor of graph.pb; a size of -1 or a shape of None is unknown."""

    name: str
    dtype: str
    shape: tuple[Annotated[int, Meta(ge=-1)], ...] | None

    def takes(self, array: Array) -> bool:
        """Return whether an array has its type and shape."""
        sizes = array.shape if self.shape is None else self.shape
        has_rank = type_of(array) == self.dtype and array.ndim == len(sizes)
        return has_rank and all(s in (-1, n) for s, n in zip(sizes, array.shape, strict=True))


@dataclass(frozen=True)
class EngineSignature:
    """A signature that the engine runs: tensors by their aliases."""

    inputs: Mapping[str, EngineTensor]
    outputs: Mapping[str, EngineTensor]


@dataclass(frozen=True)
class EngineAnswer:
    """TensorFlow's outputs for a batch, by the aliases of a signature."""

    signature: str
    batch: int
    feeds: Mapping[str, Array]
    expected: Mapping[str, Array]


@dataclass(frozen=True)
class EngineFolder:
    """The contents of the engine folder."""

    use: EngineUse
    graph_def: bytes
    signatures: Mapping[str, EngineSignature]
    answers: Sequence[EngineAnswer]
    """Some for each signature, at batches 0, 1 and 3 where the model takes them."""
    bars: Mapping[str, Bars]
    """For each signature, the tolerance of each output compared with TensorFlow's."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Why TensorFlow runs the other signatures of the version."""
    takes_empty: bool = True
    """Whether the engine takes empty batches; otherwise a row has to replace one."""
    is_bound: bool = True
    """Whether the manifest has the SHA-256 of the version's files; those of 0.1 do not."""


@dataclass(frozen=True)
class AnswerNames:
    """An `EngineAnswer` with the names of constants in place of arrays."""

    signature: str
    batch: int
    feeds: Mapping[str, str]
    expected: Mapping[str, str]


@dataclass(frozen=True)
class EngineManifest:
    """The engine folder without its graph and arrays, as the manifest stores it."""

    use: EngineUse
    signatures: Mapping[str, EngineSignature]
    left_to_tensorflow: Mapping[str, str]
    takes_empty: bool
    bars: Mapping[str, Mapping[str, QualityBar | None]]
    answers: tuple[AnswerNames, ...]


def document_of(content: EngineFolder, name_of: Callable[[Array], str]) -> dict[str, Any]:
    """Return the folder without its graph as plain data, with names in place of arrays."""

    def names(arrays: Mapping[str, Array]) -> dict[str, str]:
        return {alias: name_of(array) for alias, array in arrays.items()}

    answers = tuple(
        AnswerNames(answer.signature, answer.batch, names(answer.feeds), names(answer.expected))
        for answer in content.answers
    )
    results: dict[str, Any] = document(
        EngineManifest(content.use, content.signatures, content.left, content.takes_empty,
                       content.bars, answers)
    )  # fmt: skip
    return results


def parsed(plain: Any, graph_def: bytes, constants: Mapping[str, Array]) -> EngineFolder:
    """Return the contents of a manifest, given the arrays by their names in it.

    GraphError, KeyError, ValueError: it lacks something.
    """
    try:
        result = converted(plain, EngineManifest)
    except GraphError as error:
        raise GraphError("manifest-unexpected", reason=error) from None
    for item in result.signatures.values():
        for tensor in (*item.inputs.values(), *item.outputs.values()):
            type_number(tensor.dtype)
            split(tensor.name)
    for bar in (bar for bars in result.bars.values() for bar in bars.values()):
        if bar is not None and (bar.tolerance is None) == (bar.min_sqnr is None):
            raise ValueError
    answers = [
        EngineAnswer(
            answer.signature,
            answer.batch,
            {alias: constants[name] for alias, name in answer.feeds.items()},
            {alias: constants[name] for alias, name in answer.expected.items()},
        )
        for answer in result.answers
    ]
    return EngineFolder(result.use, graph_def, result.signatures, answers, result.bars,
                        result.left_to_tensorflow, result.takes_empty)  # fmt: skip


def check_parts(engine_folder: EngineFolder, graph_def: GraphDef) -> None:
    """Raise GraphError if the parts of a folder do not fit each other."""
    nodes = {node.name for node in graph_def.node}
    if not engine_folder.signatures:
        raise GraphError("manifest-without-signature")
    for name, signature in engine_folder.signatures.items():
        for tensor in (*signature.inputs.values(), *signature.outputs.values()):
            if split(tensor.name)[0] not in nodes:
                raise GraphError("manifest-tensor-missing", name=name, tensor=tensor.name)
        if not signature.outputs or set(engine_folder.bars.get(name, ())) != set(signature.outputs):
            raise GraphError("manifest-lacks-outputs", name=name)
        if not any(answer.signature == name and answer.batch for answer in engine_folder.answers):
            raise GraphError("manifest-lacks-answers", name=name)
    for answer in engine_folder.answers:
        if answer.signature not in engine_folder.signatures or type(answer.batch) is not int:
            raise GraphError("manifest-answers-unknown", signature=answer.signature)
        signature = engine_folder.signatures[answer.signature]
        for sides, arrays in (
            (signature.inputs, answer.feeds),
            (signature.outputs, answer.expected),
        ):
            if set(sides) != set(arrays):
                raise GraphError(
                    "manifest-answers-names",
                    signature=answer.signature,
                    names=sorted(arrays),
                    expected=sorted(sides),
                )
            for alias, array in arrays.items():
                if not sides[alias].takes(array):
                    raise GraphError(
                        "manifest-answers-form",
                        signature=answer.signature,
                        name=alias,
                        got_type=type_of(array),
                        got_shape=array.shape,
                        dtype=sides[alias].dtype,
                        shape=sides[alias].shape,
                    )
