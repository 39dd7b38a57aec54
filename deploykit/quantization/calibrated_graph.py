"""A float graph made ready for 8 bits: shifted to start at zero, and calibrated as it is then."""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from deploykit.benchmarking.measuring import Advance
from deploykit.quantization.calibration import calibrate
from deploykit.storage.resume_file import State
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.tensors import Array
from deploykit.transforms.shift_activations import shift_activations


def prepare(
    graph: Graph,
    feeds: Iterable[Mapping[str, Array]],
    path: str,
    *,
    state: State | None = None,
    advance: Advance = lambda name, count: None,
) -> tuple[Graph, list[str]]:
    """Return the shifted graph and notes on it, and write its ranges to a file.

    Args:
        graph: an optimized float graph.
        feeds: arrays by input name, batch by batch; gone through twice.
        path: of the file of ranges.
        state: what an interrupted run has found, and where findings are kept.
        advance: as in `calibrate`.

    GraphError: as in `calibrate`.
    """
    state = State(None, "", {}) if state is None else state
    notes: list[str] = []

    def write_ranges(name: str, graph: Graph) -> None:
        if name not in state.found:
            found = calibrate(graph, feeds, advance=advance)
            state.keep(name, {"text": found.ranges.text(), "notes": list(found.notes)})
        Path(path).write_text(state.found[name]["text"])
        notes.extend(state.found[name]["notes"])

    write_ranges("ranges before shifting", graph)
    shifted = graph.copy()
    with contextlib.suppress(GraphError):  # where there is nothing to shift
        shift_activations(shifted, ranges=path)
    shifted.prune()
    write_ranges("ranges", shifted)
    return shifted, list(dict.fromkeys(notes))
