"""Graphs of 100,000 nodes through the default pipeline: quick, and linear in the nodes.

Also whole commands on a chain of 1,000,000 nodes: `check`, and `optimize`, which runs no graph so
large.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import deploykit
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import deploykit as command
from tests.benchmarks.measuring import in_turn

NODES, MANY = 100_000, 1_000_000
SECONDS = 3.0
MOST = {"check": (15.0, 1500), "optimize": (40.0, 3000)}  # seconds and MB on a chain of MANY
LINEAR = 2.5  # what twice the nodes may take; quadratic would be 4
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


def fan_in(count: int) -> Graph:
    """Return `count` nodes: activations of one placeholder, which one node adds up."""
    nodes = [Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(2, 3))]
    for i in range(count):
        nodes.append(Node(f"n{i}", ("Relu", "Tanh")[i % 2], ("x",)).with_attrs(**FLOAT))
    added = tuple(node.name for node in nodes[1:])
    nodes.append(Node("sum", "AddN", added).with_attrs(N=count, **FLOAT))
    return Graph(nodes, ["x"], ["sum"])


GRAPHS = {"chain": chain, "fan_out": fan_out, "fan_in": fan_in}


def figures() -> list[Figure]:
    """Measure each graph at two sizes in turn, each time in a process of its own."""
    commands = {
        f"{name} {count}": [sys.executable, "-m", __name__, name, str(count)]
        for name in GRAPHS
        for count in (NODES // 2, NODES)
    }
    seconds = {
        name: [float(run.output) for run in runs] for name, runs in in_turn(commands).items()
    }
    found = []
    for name in GRAPHS:
        half, whole = seconds[f"{name} {NODES // 2}"], seconds[f"{name} {NODES}"]
        found += [
            Figure(f"optimize a {name} of {NODES:,} nodes", "s", whole, at_most=SECONDS),
            Figure(f"... against one of {NODES // 2:,}", "s", whole, half, at_most_ratio=LINEAR),
        ]
    return [*found, *_whole_commands()]


def _whole_commands() -> list[Figure]:
    """Measure commands on a chain of MANY nodes, the time and the memory of their processes."""
    with tempfile.TemporaryDirectory() as folder:
        model, result = str(Path(folder, "chain.pb")), str(Path(folder, "out.pb"))
        deploykit.save_graph(chain(MANY), model)
        commands = {
            "check": command("check", model),
            "optimize": command("optimize", model, "-o", result, "--force"),
        }
        runs = in_turn(commands, rounds=3)
    found = []
    for name, (seconds, megabytes) in MOST.items():
        memory = [run.mebibytes * 1.048576 for run in runs[name]]
        found += [
            Figure(
                f"{name} a chain of {MANY:,} nodes",
                "s",
                [run.seconds for run in runs[name]],
                at_most=seconds,
            ),
            Figure("... its peak memory", "MB", memory, at_most=megabytes),
        ]
    return found


if __name__ == "__main__":
    graph = GRAPHS[sys.argv[1]](int(sys.argv[2]))
    start = time.perf_counter()
    deploykit.optimize(graph)
    print(time.perf_counter() - start)
