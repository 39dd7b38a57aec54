"""The main job on the embedded models: freeze, optimize, quantize, verify, and what came of it.

    python models/fashion/demo.py

Writes to `.demo/` in the current folder.
"""

import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import deploykit
from deploykit.rendering.templates import size
from deploykit.storage.arrays import load_data
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.verify import Verification, verify

HERE = Path(__file__).parent
OUTPUT = Path(".demo")
SOURCES = {"TF1 checkpoint": HERE / "tf1" / "model.ckpt", "Keras 3 file": HERE / "fashion.keras"}


def row(table: Table, act: str, seconds: float, path: Path, graph: Graph, found: Verification):
    """Add a line that compares a result with the frozen graph."""
    accuracy = f"{100 * found.accuracy[1]:.1f} %" if found.accuracy else "-"
    difference = "-" if act == "frozen" else f"{found.max_relative_error:.1e}"
    megabytes = size(path.stat().st_size)
    table.add_row(act, f"{seconds:.1f} s", megabytes, str(len(graph)), accuracy, difference)


def run(console: Console, title: str, source: Path) -> None:
    """Take one trained model through the main job and print a table of it."""
    table = Table(title=f"{title}: {source.name}", box=box.SIMPLE_HEAD, title_justify="left")
    columns = ("graph", "time", "file", "nodes", "accuracy", "largest difference")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    data = load_data(HERE / "test_1000.npz")
    acts = {
        "frozen": lambda graph: deploykit.freeze(source),
        "optimized": deploykit.optimize,
        "quantized": lambda graph: deploykit.quantize(graph, data=data),
    }
    frozen = graph = Graph()
    for act, step in acts.items():
        with console.status(f"{title}: {act}"):
            start = time.perf_counter()
            graph = step(graph)
            seconds = time.perf_counter() - start
            frozen = graph if act == "frozen" else frozen
            path = OUTPUT / f"{source.stem}.{act}.pb"
            deploykit.save_graph(graph, path, force=True)
            row(table, act, seconds, path, graph, verify(frozen, graph, data=data, min_sqnr=15))
    console.print(table)


def main() -> None:
    """Run both models and explain the columns."""
    console = Console(highlight=False)
    OUTPUT.mkdir(exist_ok=True)
    for title, source in SOURCES.items():
        run(console, title, source)
    console.print(
        f"The files are in {OUTPUT}/. Accuracy: on 1,000 test photos that the network never saw.\n"
        "Largest difference: to the frozen graph's outputs, relative to their largest value.\n"
        "The time of `quantized` includes running both graphs on all photos to verify it.\n"
        f"Next: .venv/bin/deploykit inspect {OUTPUT}/fashion.quantized.pb",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
