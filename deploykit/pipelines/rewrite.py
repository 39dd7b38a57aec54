"""The common part of transform, optimize and quantize: rewrite, verify, write one file."""

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

from deploykit.importers.graph_files import save_graph, write_graph
from deploykit.importers.metadata_file import about, check_graph_output
from deploykit.importers.open_model import OpenedModel, path_of
from deploykit.pipelines.transform import Dump, StepReport, check_folder, first_failure, run_steps
from deploykit.rendering.progress import Work
from deploykit.transforms.common.documents import Documented, Flat, Hidden, IfSet, Written, written
from deploykit.transforms.common.errors import (
    CrashError,
    GraphError,
    LimitError,
    LoadError,
    StepError,
    UnverifiedError,
    VerificationError,
)
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.pipeline import Result
from deploykit.transforms.layers.layers import LAYER_OPS
from deploykit.transforms.shapes.import_check import check_import
from deploykit.verification.class_order import ClassOrderError
from deploykit.verification.synthetic.sample_inputs import type_and_shape, without_shape_option
from deploykit.verification.verify import CHANGES, IN_MEMORY, Stored, Verification

logger = logging.getLogger("deploykit")


class Compare(Protocol):
    """Compares two graphs."""

    def __call__(self, reference: Graph, result: Graph, stored: Stored = IN_MEMORY) -> Verification:
        """Return the verification; with `stored`, the files are run instead."""


def by_calibration(error: UnverifiedError, *, has_shape: bool = True) -> UnverifiedError:
    """Return an error that names --calibration instead of --data.

    `has_shape` is whether the command has the option --shape.
    """
    if not has_shape and "advice" in error.fields:
        advice = without_shape_option(str(error.fields["advice"]))
        error.fields = {**error.fields, "advice": advice}
    error.fields = {
        name: value.replace("--data", "--calibration") if isinstance(value, str) else value
        for name, value in error.fields.items()
    }
    return error


@dataclass(frozen=True)
class Proof:
    """How a graph is compared with the model that it was made from, and when it is written."""

    model: OpenedModel
    reference: Graph
    """The model as it was read, or the closest graph that can run."""
    compare: Compare
    allow_unverified: bool = False
    """Whether a graph is also written if it could not be compared."""
    stops_at_doubt: bool = False
    """Whether to write nothing if the model's predictions on given samples cannot be right."""
    is_same: bool = False
    """Whether the written graph is the reference, which then needs no separate file."""

    def of(self, result: Graph, path: Path | None = None) -> Verification:
        """Compare a graph, or its file, with the model as it was read.

        UnverifiedError: nothing was compared, or the model's predictions cannot be right.
        LimitError: the comparison took too much time or memory.
        """
        try:
            verification = self._compared(result, path)
        except LimitError as error:
            if not self.allow_unverified:
                raise LimitError(
                    "not-compared-limit", source=self.model.source, reason=error
                ) from None
            verification = Verification(False, False, "", str(error), not_possible=str(error))
        except GraphError as error:
            if not self.allow_unverified or isinstance(error, LoadError | ClassOrderError):
                raise
            verification = Verification(False, False, "", str(error), not_possible=str(error))
        if not verification.verified:
            self._tell(verification)
        elif verification.doubt:
            self._doubt(verification)
        return verification

    def _compared(self, result: Graph, path: Path | None) -> Verification:
        """Run the reference, from its file or a new one, and the graph or its file."""
        if path is None:
            return self.compare(self.reference, result)
        if self.is_same and self.model.original is not None:
            try:
                value = self.compare(self.reference, result, Stored(self.model.original, str(path)))
                if not value.not_possible:
                    return value
            except ClassOrderError:
                raise
            except GraphError:
                pass
        file = str(path) if self.is_same else self.model.file_of(self.reference)
        with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
            if file is None:  # a file, as memory already contains the model once
                file = str(Path(folder, "reference.pb"))
                write_graph(self.reference, file)
            return self.compare(self.reference, result, Stored(file, str(path)))

    def checked(self, result: Graph, path: Path | None = None) -> Verification:
        """Compare as `of` does. VerificationError: the result differs from the model."""
        value = self.of(result, path)
        if value.differs:
            raise VerificationError("result-differs", source=self.model.source, reason=value.reason)
        return value

    def _tell(self, verification: Verification) -> None:
        """Warn that nothing was compared, or raise UnverifiedError."""
        reason = verification.reason
        if not self.allow_unverified:
            advice = self._pins() if reason == CHANGES else verification.advice
            scalars = [
                t for t in self.reference.inputs if type_and_shape(self.reference, t)[1] == ()
            ]
            if scalars and reason != CHANGES:
                pins = " ".join(
                    f"--pin {tensor.removesuffix(':0')}=VALUE" for tensor in scalars[:3]
                )
                advice = f"Replace inputs of one value by constants that fit ({pins}). {advice}"
            raise UnverifiedError(
                "not-verified-unwritten", source=self.model.source, reason=reason, advice=advice
            )
        logger.warning("%s: not verified: %s", self.model.source, reason)

    def _pins(self) -> str:
        """Return advice for a model that draws random numbers."""
        graph = self.reference
        switches = [
            node.name
            for node in graph
            if node.op == "PlaceholderWithDefault" and not graph.is_input(node.name)
        ]
        pins = ", ".join(f"--pin {name}=VALUE" for name in switches[:3])
        pinned = f"Turn its random ops off ({pins}), or accept" if pins else "Accept"
        if not pins and os.path.isdir(str(self.model.source)):
            pinned = (
                "If Keras exported it with augmentation layers, freeze the .keras file of the "
                "model instead: they are off there. Otherwise accept"
            )
        return f"{pinned} an unverified result with --allow-unverified."

    def _doubt(self, verification: Verification) -> None:
        """Warn that the model's predictions cannot be right, or raise UnverifiedError."""
        if self.stops_at_doubt and verification.is_classifier:
            raise UnverifiedError(
                "outputs-doubtful", source=self.model.source, doubt=verification.doubt[:-1]
            )
        logger.warning("%s: %s", self.model.source, verification.doubt)


SLOW = (
    "quantize_nodes makes a graph 5 to 8 times slower than float32 on current CPUs; for a fast "
    "int8 graph, use deploykit quantize --calibration DATA"
)
_READING_OPS = frozenset({"IteratorGetNext", "ReadFile"})


def advice(before: Graph, after: Graph, transforms: str, inputs_given: bool) -> Iterator[str]:
    """Yield advice on the result of a transform string."""
    if not inputs_given:
        for node in after:
            if _decodes(node):
                yield _stays(before, node)
                break
    if any(step.name == "quantize_nodes" for step in pipeline.parse(transforms)):
        yield SLOW


def _decodes(node: Node) -> bool:
    """Return whether a node reads, decodes or parses files or records."""
    return node.op.startswith(("Decode", "Parse", "Reader")) or node.op in _READING_OPS


def _stays(before: Graph, node: Node) -> str:
    layer = _first_layer(before, node.name)
    example = "NAME" if layer is None else layer.data_inputs[0]
    return (
        f"node '{node.name}' ({node.op}) is kept in front of the model, as no --inputs are given; "
        f"with --inputs {example}, the tensor to feed, strip_unused_nodes removes it"
    )


def _first_layer(graph: Graph, decoder: str) -> Node | None:
    """Return the first layer that depends on the output of a decoder."""
    below = graph.descendants([decoder], control=False) if decoder in graph else set()
    layers = (graph[name] for name in graph.order() if name in below)
    return next((node for node in layers if node.op in LAYER_OPS), None)


PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class OutputFiles:
    """The files and folders to write a graph to."""

    output: PathLike | None = None
    force: bool = False
    as_text: bool = False
    dump: PathLike | None = None
    """A folder for the graph after each step."""

    def check(self, model: object) -> None:
        """Raise FileError now for a path that could not be written after a long run."""
        sources = path_of(model)
        if self.dump is not None:
            check_folder(os.fspath(self.dump), self.force, *sources)
        if self.output is not None:
            check_graph_output(self.output, self.force, *sources)

    def write(
        self, graph: Graph, check: Callable[[Path | None], Verification] | None = None
    ) -> tuple[int | None, Verification | None]:
        """Write a graph and its metadata; return the bytes of the file, and the verification.

        `check` is called with the temporary path of the file before it is renamed, or with None if
        no file is written. If it raises, no file is left.
        """
        verifications: list[Verification] = []

        def checked(path: Path | None) -> None:
            if check is not None:
                verifications.append(check(path))

        if self.output is None:
            checked(None)
            return None, verifications[0] if verifications else None
        count = save_graph(
            graph, self.output, force=self.force, as_text=self.as_text, check=checked
        )
        return count, verifications[0] if verifications else None


@dataclass(frozen=True)
class Rewriting(Documented):
    """How a graph was made from another one."""

    model: Hidden[OpenedModel]
    nodes: Annotated[int | None, Written("nodes_in")]
    """Number of nodes of the graph before; None: a Keras file, which contains layers instead."""
    steps: IfSet[tuple[StepReport, ...]] = ()
    verification: Flat[Verification | None] = None
    """Comparison of the result with the model; None: not compared."""
    dump: IfSet[tuple[Path, ...]] = ()
    bytes: Annotated[int | None, Written("bytes_out")] = None
    """Size of the written file; None: no file was written."""
    before: Hidden[Graph | None] = None
    """The graph that was rewritten; None: the frozen model."""
    nodes_out: int | None = None
    """Number of nodes of the result."""

    @property
    def rewriting(self) -> "Rewriting":
        """The result itself, as `Quantized` has this property."""
        return self

    @property
    @written()
    def inputs(self) -> tuple[str, ...]:
        """Names of the input tensors."""
        return (self.before or self.model.frozen).inputs

    @property
    @written()
    def outputs(self) -> tuple[str, ...]:
        """Names of the output tensors."""
        return (self.before or self.model.frozen).outputs

    @property
    @written()
    def bytes_in(self) -> int | None:
        """Size of the model's files in bytes; None: the model is in memory."""
        return self.model.bytes

    @property
    @written("fed", if_set=True)
    def fed(self) -> Mapping[str, str]:
        """Preprocessing of the samples by input, in words."""
        return {} if self.verification is None else self.verification.fed


def rewrite(
    model: OpenedModel,
    graph: Graph,
    transforms: str,
    target: OutputFiles,
    work: Work,
    proof: Proof | None = None,
    require: Callable[[Graph], object] = lambda result: None,
) -> Graph:
    """Transform a model's graph, compare it with the model, write it, and return it.

    `require` raises for a result that must not be written. The graph's `report` is a `Rewriting`.
    VerificationError: the result is outside the tolerance. The error names the first step that
    fails; the output is not written, and the dump keeps only the graphs before that step.
    """
    dumped = None if target.dump is None else Dump(Path(target.dump), target.force)

    def on_step(step: Result, count: int) -> None:
        work(step.transform, count)
        if dumped is not None:
            dumped.add(step.transform, step.graph)

    result, steps = run_steps(graph, transforms, on_step)
    result = result.copy() if result is graph else result
    result.about = about(graph).renamed(graph, result)
    require(result)
    if target.output is not None and proof is None:  # otherwise the file is loaded and run
        _check_import(model, result)

    def check(path: Path | None) -> Verification:
        assert proof is not None
        work("compare", 0)
        value = proof.of(result, path)
        if value.differs:
            place, broken = _blame(proof, graph, transforms, value)
            step = "" if place < 0 else steps[place].transform
            what = f"step {place + 1} of {len(steps)}, {step}," if step else "freezing"
            raise StepError(
                "step-differs",
                source=model.source,
                step=step,
                reason=f"{what} fails verification: {broken.reason}",
                kept=_kept(dumped, max(place, 0), target),
            )
        return value

    count, verification = target.write(result, None if proof is None else check)
    files = () if dumped is None else tuple(dumped.files)
    result.report = Rewriting(
        model, len(graph), tuple(steps), verification, files, count, graph, len(result)
    )
    return result


def _check_import(model: OpenedModel, result: Graph) -> None:
    """Raise LoadError if TensorFlow's importer refuses the result of a model.

    A graph with custom ops is not checked, as only a process with these ops can import it.
    """
    if any(node.op not in op_defs() for node in result):
        return
    try:
        check_import(result, is_validated=False)
    except (LoadError, CrashError) as error:
        raise LoadError("transforms-not-importable", source=model.source, reason=error) from None


def _blame(
    proof: Proof, graph: Graph, transforms: str, verification: Verification
) -> tuple[int, Verification]:
    """Return the index of the first step that fails verification, and how; -1: freezing."""

    def compare(_: Graph, result: Graph) -> Verification:
        return proof.compare(proof.reference, result)

    if graph is not proof.reference and (before := compare(graph, graph)).differs:
        return -1, before
    return first_failure(graph, transforms, compare, verification)


def _kept(dump: Dump | None, place: int, target: OutputFiles) -> str:
    """Drop the graphs of a dump from a step on, and return what is left in words."""
    if dump is None:
        return "nothing was written"
    dump.drop_from(place)
    before = dump.files[-1] if dump.files else "the input"
    written = "" if target.output is None else f"{target.output} was not written, "
    return f"{written}the graph before it is {before}"
