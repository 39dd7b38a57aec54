"""What transform, optimize and quantize share: rewrite, compare, then write one file."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploykit.freezing.graph_files import save_graph
from deploykit.freezing.open_model import OpenedModel, path_of
from deploykit.freezing.sidecar import about, check_graph_output
from deploykit.rewriting.bisect import failed, first_failure
from deploykit.rewriting.dump import Dump, check_folder
from deploykit.rewriting.step_report import StepReport
from deploykit.rewriting.transform import run_steps
from deploykit.text.progress import Work
from deploykit.transforms.core.errors import VerificationError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.pipeline import Result
from deploykit.verification.verify import Verification

Compare = Callable[[Graph, Graph], Verification]
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

    def write(self, graph: Graph) -> int | None:
        """Write a graph and what is known of it; return the bytes of its file."""
        if self.output is None:
            return None
        return save_graph(graph, self.output, force=self.force, as_text=self.as_text)


@dataclass(frozen=True)
class Rewriting:
    """How a graph was made of another one."""

    model: OpenedModel
    nodes: int | None
    """Of the graph before; None: a file of Keras holds layers instead."""
    steps: tuple[StepReport, ...] = ()
    verification: Verification | None = None
    """None: nothing was compared."""
    dump: tuple[Path, ...] = ()
    bytes: int | None = None
    """Of the file that was written."""


def rewrite(
    model: OpenedModel,
    graph: Graph,
    transforms: str,
    target: OutputFiles,
    work: Work,
    compare: Compare | None = None,
) -> Graph:
    """Transform a model's graph, compare it with what it was, write it, and return it.

    Its `report` is a `Rewriting`.
    VerificationError: the result is below the bar. It names the first step that breaks it; the
    output is not written, and of the dump only the graphs before that step are kept.
    """
    dumped = None if target.dump is None else Dump(Path(target.dump))

    def on_step(step: Result, count: int) -> None:
        work(step.transform, count)
        if dumped is not None:
            dumped.add(step.transform, step.graph)

    result, steps = run_steps(graph, transforms, on_step)
    verification = None if compare is None else compare(graph, result)
    if compare is not None and verification is not None and failed(verification):
        place, found = first_failure(graph, transforms, compare, verification)
        raise VerificationError(
            f"{model.source}: step {place + 1} of {len(steps)}, {steps[place].transform}, breaks "
            f"the bar: {found.reason}; {_kept(dumped, place, target)}"
        )
    result = result.copy() if result is graph else result
    result.about = about(graph).renamed(graph, result)
    count = target.write(result)
    files = () if dumped is None else tuple(dumped.files)
    result.report = Rewriting(model, len(graph), tuple(steps), verification, files, count)
    return result


def _kept(dump: Dump | None, place: int, target: OutputFiles) -> str:
    """Drop the graphs of a dump from a step on, and say what is left."""
    if dump is None:
        return "nothing was written"
    dump.drop_from(place)
    before = dump.files[-1] if dump.files else "the input"
    written = "" if target.output is None else f"{target.output} was not written, "
    return f"{written}the graph before it is {before}"
