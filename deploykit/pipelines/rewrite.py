"""The common part of transform, optimize and quantize: rewrite, verify, advise, and write one
file.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from deploykit.importers.graph_files import save_graph
from deploykit.importers.metadata_file import about, check_graph_output
from deploykit.importers.open_model import OpenedModel, path_of
from deploykit.pipelines.transform import Dump, StepReport, check_folder, first_failure, run_steps
from deploykit.pipelines.written_file import Proof
from deploykit.rendering.progress import Work
from deploykit.transforms.common.documents import Documented, Flat, Hidden, IfSet, Written, written
from deploykit.transforms.common.errors import CrashError, LoadError, StepError
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.pipeline import Result
from deploykit.transforms.layers.layers import LAYER_OPS
from deploykit.transforms.shapes.import_check import check_import
from deploykit.verification.verify import Verification

SLOW = (
    "quantize_nodes makes a graph five to eight times slower than float on today's processors; "
    "the fast way to 8 bits is deploykit quantize --calibration DATA"
)
_READING_OPS = frozenset({"IteratorGetNext", "ReadFile"})


def advice(before: Graph, after: Graph, transforms: str, inputs_given: bool) -> Iterator[str]:
    """Yield what to tell of a graph that this transform string has changed."""
    if not inputs_given:
        for node in after:
            if _decodes(node):
                yield _stays(before, node)
                break
    if any(step.name == "quantize_nodes" for step in pipeline.parse(transforms)):
        yield SLOW


def _decodes(node: Node) -> bool:
    """Say whether a node decodes or parses what lies in files, as samples do."""
    return node.op.startswith(("Decode", "Parse", "Reader")) or node.op in _READING_OPS


def _stays(before: Graph, node: Node) -> str:
    layer = _first_layer(before, node.name)
    example = "NAME" if layer is None else layer.data_inputs[0]
    return (
        f"node '{node.name}' ({node.op}) stays in front of the model, as no --inputs are given; "
        f"with --inputs {example}, the tensor that the model is to be fed, strip_unused_nodes cuts "
        "it off"
    )


def _first_layer(graph: Graph, decoder: str) -> Node | None:
    """Return the first layer that computes on what a node decodes."""
    below = graph.descendants([decoder], control=False) if decoder in graph else set()
    layers = (graph[name] for name in graph.order() if name in below)
    return next((node for node in layers if node.op in LAYER_OPS), None)


PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class OutputFiles:
    """Where a graph is written, if anywhere."""

    output: PathLike | None = None
    force: bool = False
    as_text: bool = False
    dump: PathLike | None = None
    """A folder for the graph after each step."""

    def check(self, model: object) -> None:
        """Raise FileError now for what could not be written after a long run."""
        sources = path_of(model)
        if self.dump is not None:
            check_folder(os.fspath(self.dump), self.force, *sources)
        if self.output is not None:
            check_graph_output(self.output, self.force, *sources)

    def write(
        self, graph: Graph, check: Callable[[Path | None], Verification] | None = None
    ) -> tuple[int | None, Verification | None]:
        """Write a graph and what is known of it; return the bytes of its file, and what was found.

        `check` is called with the path of the file before it takes its name, or with None where no
        file is written; where it raises, nothing is left.
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
    """How a graph was made of another one."""

    model: Hidden[OpenedModel]
    nodes: Annotated[int | None, Written("nodes_in")]
    """Of the graph before; None: a file of Keras holds layers instead."""
    steps: IfSet[tuple[StepReport, ...]] = ()
    verification: Flat[Verification | None] = None
    """None: nothing was compared."""
    dump: IfSet[tuple[Path, ...]] = ()
    bytes: Annotated[int | None, Written("bytes_out")] = None
    """Size of the file that was written; None: none was written."""
    before: Hidden[Graph | None] = None
    """What was rewritten; None: the frozen model."""
    nodes_out: int | None = None
    """Nodes of the result."""

    @property
    def rewriting(self) -> "Rewriting":
        """Itself, as `Quantized` has one."""
        return self

    @property
    @written()
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors that are fed."""
        return (self.before or self.model.frozen).inputs

    @property
    @written()
    def outputs(self) -> tuple[str, ...]:
        """Names of the tensors that are computed."""
        return (self.before or self.model.frozen).outputs

    @property
    @written()
    def bytes_in(self) -> int | None:
        """Size of the model's files; None: it is in memory."""
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

    `require` raises for a result that is not to be written. Its `report` is a `Rewriting`.
    VerificationError: the result is below the bar. It names the first step that breaks it; the
    output is not written, and of the dump only the graphs before that step are kept.
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
            what = f"step {place + 1} of {len(steps)}, {step}," if step else "freezing it"
            raise StepError(
                "step-differs",
                source=model.source,
                step=step,
                reason=f"{what} breaks the bar: {broken.reason}",
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
    """Raise LoadError where TensorFlow's importer refuses what was made of a model.

    A graph with ops of the user's own, of which a warning tells, is imported only where they are.
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
    """Return the place of the first step that broke the bar, and how; -1: freezing did."""

    def compare(_: Graph, result: Graph) -> Verification:
        return proof.compare(proof.reference, result)

    if graph is not proof.reference and (before := compare(graph, graph)).differs:
        return -1, before
    return first_failure(graph, transforms, compare, verification)


def _kept(dump: Dump | None, place: int, target: OutputFiles) -> str:
    """Drop the graphs of a dump from a step on, and say what is left."""
    if dump is None:
        return "nothing was written"
    dump.drop_from(place)
    before = dump.files[-1] if dump.files else "the input"
    written = "" if target.output is None else f"{target.output} was not written, "
    return f"{written}the graph before it is {before}"
