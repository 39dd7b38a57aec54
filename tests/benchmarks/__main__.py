"""Time the answers a user waits for, interleaved: `make bench`.

Each row is the median of several whole runs, taken in turn so that a drift of the machine hits all.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import deploykit
from transforms.core.graph import Graph
from transforms.core.node import Node
from transforms.core.tensors import DType

ROUNDS = 5
RESULTS = Path("benchmark-results")
FASHION = Path(__file__).parents[2] / "models" / "fashion"
FLOAT = {"T": DType("float32")}


def chain(count: int) -> Graph:
    """Return a placeholder and `count` nodes in a row."""
    nodes = [Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(2, 3))]
    for number in range(count):
        nodes.append(Node(f"n{number}", "Relu", (nodes[-1].name,)).with_attrs(**FLOAT))
    return Graph(nodes, ["x"], [nodes[-1].name])


def fan_out(count: int) -> Graph:
    """Return `count` nodes: identities of one placeholder plus negatives of one constant."""
    nodes = [Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(2, 3))]
    nodes.append(Node.constant("c", np.ones((2, 3), np.float32)))
    for i in range(count // 4):
        nodes.append(Node(f"i{i}", "Identity", ("x",)).with_attrs(**FLOAT))
        nodes.append(Node(f"d{i}", "Neg", ("c",)).with_attrs(**FLOAT))
        nodes.append(Node(f"a{i}", "AddV2", (f"i{i}", f"d{i}")).with_attrs(**FLOAT))
        nodes.append(Node(f"n{i}", "Relu", (f"a{i}",)).with_attrs(**FLOAT))
    return Graph(nodes, ["x"], [node.name for node in nodes if node.op == "Relu"])


def command(*arguments: str) -> Callable[[], object]:
    """Return a call of the command line as a process of its own."""
    line = [sys.executable, "-m", "deploykit.cli", *arguments]
    return lambda: subprocess.run(line, capture_output=True, check=False)


def cases(folder: str) -> dict[str, Callable[[], object]]:
    """Return what is timed, by name."""
    graphs = {
        f"{make.__name__} of {count:,} nodes, default pipeline": make(count)
        for make in (chain, fan_out)
        for count in (50_000, 100_000)
    }
    result: dict[str, Callable[[], object]] = {
        name: lambda graph=graph: deploykit.optimize(graph) for name, graph in graphs.items()
    }
    output = str(Path(folder, "out.pb"))
    result["deploykit --help"] = command("--help")
    result["a typo in --transforms"] = command(
        "transform", "--in_graph=a", "--out_graph=b", "--transforms=fold_constant"
    )
    checkpoint = str(FASHION / "tf1" / "model.ckpt")
    result["quantize the TF1 Fashion checkpoint"] = command(
        "quantize", checkpoint, "-o", output, "--force"
    )
    return result


def main() -> None:
    """Measure all cases in turn, print a table and write the raw figures."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        timed = cases(folder)
        for round_ in range(ROUNDS + 1):
            for name, act in timed.items():
                start = time.perf_counter()
                act()
                if round_:  # the first round warms up
                    seconds.setdefault(name, []).append(time.perf_counter() - start)
    table = Table("what", "median", "fastest", "slowest")
    for name, values in seconds.items():
        shown = (statistics.median(values), min(values), max(values))
        table.add_row(name, *(f"{value:.2f} s" for value in shown))
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    machine = {"cpus": os.cpu_count(), "processor": platform.processor(), "rounds": ROUNDS}
    path = RESULTS / "pipeline.json"
    path.write_text(json.dumps({"machine": machine, "seconds": seconds}, indent=2))
    print(f"raw figures: {path}")


if __name__ == "__main__":
    main()
