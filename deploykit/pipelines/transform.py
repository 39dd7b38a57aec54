"""Runs transform strings step by step, dumps the graph after each step, and bisects failures."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from deploykit.importers.graph_files import write_graph
from deploykit.importers.open_model import OpenedModel
from deploykit.transforms.common.documents import Written
from deploykit.transforms.common.errors import FileError, cannot_be
from deploykit.transforms.int8.ranges import check_ranges
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph, no_collection
from deploykit.verification.verify import Verification

OPTIMIZE = """
inline_functions
remove_unused_functions
strip_unused_nodes
pin_training_switches
remove_nodes(op=Identity, op=CheckNumerics, op=StopGradient)
fold_constants(ignore_errors=true)
remove_idle_dropout
fold_batch_norms
merge_duplicate_nodes
sort_by_execution_order
"""

PREPARE_LAYERS = f"""{OPTIMIZE}
flatten_products
sink_reshapes
merge_duplicate_nodes
sort_by_execution_order
"""
"""Steps before quantizing layers: all kinds of matrix products become MatMul, next to its bias."""


def quantize_string(
    minimum_size: int = 1024, skip: Iterable[str] = (), nodes: bool = False, ranges: str = ""
) -> str:
    """Return the optimizing steps with 8-bit weights; with `nodes`, also quantize_nodes.

    quantize_nodes writes the 8-bit ops of the Graph Transform Tool. With a file of `ranges` of the
    optimized graph, biases compensate the mean error of rounded weights.
    """
    options = [f"minimum_size={minimum_size}", *(f'skip="{name}"' for name in skip)]
    options += [f'ranges="{ranges}"'] if ranges else []
    options += [] if nodes else ["keep_sums=true"]
    more = "quantize_nodes strip_unused_nodes" if nodes else ""
    return f"{OPTIMIZE} quantize_weights({', '.join(options)}) {more} sort_by_execution_order"


@dataclass(frozen=True)
class StepReport:
    """Report of one transform: seconds, nodes of the result, and what it skipped and why."""

    transform: str
    seconds: Annotated[float, Written(digits=4)]
    nodes: int
    skipped: tuple[str, ...]


_FILE = re.compile(rf"\d\d+-({'|'.join(pipeline.names())}|[\w.]+:\w+)\.pb")


@dataclass
class Dump:
    """The folder, and the files written so far, in the order of the steps."""

    folder: Path
    force: bool = False
    """Whether to replace the files of an earlier dump."""
    files: list[Path] = field(default_factory=list)

    def add(self, transform: str, graph: Graph) -> None:
        """Write the graph after one more step."""
        if not self.files:
            self._prepare()
        path = self.folder / f"{len(self.files) + 1:02}-{transform}.pb"
        write_graph(graph, path, force=self.force)
        self.files.append(path)

    def drop_from(self, step: int) -> None:
        """Remove the graphs from this step on (0 is the first step)."""
        for path in self.files[step:]:
            path.unlink(missing_ok=True)
        del self.files[step:]

    def _prepare(self) -> None:
        """Create the folder, or remove the files of an earlier dump."""
        try:
            self.folder.mkdir(exist_ok=True)
            for path in _dumped(self.folder) if self.force else ():
                path.unlink()
        except OSError as error:
            raise cannot_be("written", self.folder, error) from None


def check_folder(path: str, force: bool, source: str | None = None) -> None:
    """Raise FileError now for a folder that could not be written to after a long run."""
    folder = Path(path)
    if not folder.exists():
        parent = folder.absolute().parent
        if not (parent.is_dir() and os.access(parent, os.W_OK)):
            raise FileError(
                "folder-missing", source=folder, folder=parent, more=" or is not writable"
            )
        return
    if not folder.is_dir():
        raise FileError("dump-is-file", source=folder)
    if any(folder.iterdir()) and not force:
        raise FileError("dump-not-empty", source=folder)
    if not os.access(folder, os.W_OK):
        raise FileError("folder-not-writable", source=folder, folder=path)
    if source and any(os.path.samefile(path, source) for path in _dumped(folder)):
        raise FileError("dump-holds-input", source=source)


def _dumped(folder: Path) -> Sequence[Path]:
    """Return the files of a dump in a folder; other files are ignored."""
    return [path for path in folder.iterdir() if _FILE.fullmatch(path.name) and path.is_file()]


def check_ranges_of(transforms: str, model: OpenedModel) -> None:
    """Raise MismatchError if a step uses ranges of another model.

    PipelineError: the string does not parse. FileError, GraphError: as `load_ranges`.
    """
    given = (
        step.arguments.get("ranges") for step in pipeline.parse(transforms) if ":" not in step.name
    )
    for path in dict.fromkeys(filter(None, given)):
        check_ranges(path, model.source, model.sha256)


def run_steps(
    graph: Graph,
    transforms: str,
    on_step: Callable[[pipeline.Result, int], object] = lambda result, count: None,
) -> tuple[Graph, list[StepReport]]:
    """Return the graph after the steps of a transform string, and a report of each.

    `on_step` is called after each step with its result and the number of all steps.
    """
    steps = pipeline.parse(transforms)
    reports = []
    with no_collection():
        for result in pipeline.run(graph, steps):
            graph = result.graph
            skipped = result.skipped if result.error is None else (result.error, *result.skipped)
            reports.append(StepReport(result.transform, result.seconds, len(graph), skipped))
            on_step(result, len(steps))
    return graph, reports


def first_failure(
    graph: Graph,
    transforms: str,
    compare: Callable[[Graph, Graph], Verification],
    last: Verification,
) -> tuple[int, Verification]:
    """Return the index of the first step that fails verification, and the verification after it.

    `last` is the failed verification after the last step. The steps are bisected, assuming that no
    later step repairs an earlier failure.
    """
    results = list(pipeline.run(graph, pipeline.parse(transforms)))
    sound, broken = -1, len(results) - 1
    while broken - sound > 1:
        middle = (sound + broken) // 2
        result = compare(graph, results[middle].graph)
        if result.differs:
            broken, last = middle, result
        else:
            sound = middle
    return broken, last
