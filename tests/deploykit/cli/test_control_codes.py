"""Control codes in names never reach the terminal, whoever prints them."""

import json

import numpy as np
import pytest

from deploykit.importers.graph_files import save_graph
from deploykit.importers.metadata_file import SignatureNames, about
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType

ODD = "a\x1b[31mb\x07\x9b\u202e"
FLOAT = DType("float32")


@pytest.fixture
def odd(tmp_path):
    """Return the path of a model whose file, signature and classes have such names."""
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=FLOAT, shape=(2, 3)),
        Node("y", "Relu", ("x",)).with_attrs(T=FLOAT),
    ]
    graph = Graph(nodes, inputs=("x",), outputs=("y",))
    known = about(graph)
    signatures = {ODD: SignatureNames({ODD: "x"}, {ODD: "y"})}
    graph.about = type(known)(signatures, labels=(ODD, "b", "c"))
    path = tmp_path / f"{ODD}.pb"
    save_graph(graph, path)
    return path


COMMANDS = {
    "inspect": ["inspect", "{model}"],
    "check": ["check", "{model}"],
    "optimize": ["optimize", "{model}", "-o", "{out}"],
    "transform": [
        "transform",
        "--in_graph",
        "{model}",
        "--out_graph",
        "{out}",
        "--transforms",
        "sort_by_execution_order",
    ],
    "diff": ["diff", "{model}", "{model}2"],
    "export": ["export", "{model}", "{folder}"],
    "no such node": ["inspect", "{model}", "--outputs", ODD],
    "no such file": ["inspect", "{model}2"],
    "no such transform": [
        "transform",
        "--in_graph",
        "{model}",
        "--out_graph",
        "{out}",
        "--transforms",
        f"{ODD}(a=1)",
    ],
    "no such option": ["inspect", f"--{ODD}"],
    "other model": ["inspect", "{other}"],
    "data": ["verify", "{model}", "{model}", "--data", "{npz}"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_control_code_is_printed(command, odd, tmp_path, deploykit):
    other = odd.with_name(f"other{ODD}.pb")
    other.write_bytes(odd.read_bytes())
    document = json.loads(odd.with_name(f"{odd.name}.json").read_text())
    other.with_name(f"{other.name}.json").write_text(json.dumps(document | {"sha256": "0" * 64}))
    data = tmp_path / f"{ODD}.npz"
    np.savez(data, **{ODD: np.ones((2, 3), np.float32)})
    names = {"model": odd, "out": tmp_path / f"out{ODD}.pb", "other": other, "npz": data,
             "folder": tmp_path / f"served{ODD}"}  # fmt: skip
    outcome = deploykit(*(word.format(**names) for word in command))
    shown = outcome.stdout + outcome.stderr
    assert all(c.isprintable() or c == "\n" for c in shown), shown
    assert "\\x1b" in shown
