"""Control codes in names never reach the terminal, whoever prints them."""

import json

import numpy as np
import pytest

from deploykit.importers.graph_files import save_graph
from deploykit.importers.metadata_file import SignatureNames, about
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType

ODD = "a\n::error::c\x1b[31mb\x07\x9b\u202e##vso[d"
PLAIN = "plain"
FLOAT = DType("float32")


def saved(folder, name):
    """Return the path of a model whose file, signature and classes have this name."""
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=FLOAT, shape=(2, 3)),
        Node("y", "Relu", ("x",)).with_attrs(T=FLOAT),
    ]
    graph = Graph(nodes, inputs=("x",), outputs=("y",))
    known = about(graph)
    signatures = {name: SignatureNames({name: "x"}, {name: "y"})}
    graph.about = type(known)(signatures, labels=(name, "b", "c"))
    path = folder / f"{name}.pb"
    save_graph(graph, path)
    return path


COMMANDS = {
    "inspect": "inspect {model}",
    "check": "check {model}",
    "optimize": "optimize {model} -o {out}",
    "transform": "transform --in_graph {model} --out_graph {out} --transforms remove_nodes(op=Abs)",
    "verify": "verify {model} {other} --data {npz}",
    "benchmark": "benchmark {model} {other} --runs=3",
    "calibrate": "calibrate {model} --data {npz} -o {json}",
    "export": "export {model} {folder} --name m",
    "infer": "infer {model} {npz} {folder}",
    "gate": "gate {other} {model} --data {npz} --junit {md} {off}",
    "another candidate": "gate {model} {other} --data {npz} {off}",
    "no such node": "inspect {model} --outputs {name}",
    "no such file": "inspect {model}2",
    "no such transform": "transform --in_graph {model} --out_graph {out} --transforms {name}(a=1)",
    "no such option": "inspect --{name}",
    "other metadata": "inspect {wrong}",
}


UNTIMED = "--max-latency-increase off --max-memory-increase off --budget 1"
COSTLY = ("infer", "another candidate", "benchmark", "export")  # for the slow tests
CHANGING = ("benchmark",)  # lines depend on the load of the machine


@pytest.fixture
def run(tmp_path, deploykit, monkeypatch):
    """Run a command on files of a name, without wrapping its tables."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def command(line, name):
        folder = tmp_path / name
        folder.mkdir()
        model = saved(folder, name)
        metadata = model.with_name(f"{model.name}.json")
        other, wrong = (folder / f"{kind}{name}.pb" for kind in ("other", "wrong"))
        for copied in (other, wrong):
            copied.write_bytes(model.read_bytes())
            copied.with_name(f"{copied.name}.json").write_bytes(metadata.read_bytes())
        document = json.loads(metadata.read_text()) | {"sha256": "0" * 64}
        wrong.with_name(f"{wrong.name}.json").write_text(json.dumps(document))
        paths = {kind: folder / f"{kind}{name}.{kind}" for kind in ("npz", "json", "md")}
        np.savez(paths["npz"], **{name: np.ones((2, 3), np.float32)})
        paths |= {
            "model": model, "other": other,
            "wrong": wrong, "folder": folder / "folder", "out": folder / f"out{name}.pb",
            "name": name,
        }  # fmt: skip
        outcome = deploykit(*(w.format(**paths) for w in line.replace("{off}", UNTIMED).split()))
        written = [path.read_text() for path in (paths["md"],) if path.exists()]
        return outcome.status, [outcome.stdout, outcome.stderr, *written]

    return command


@pytest.mark.sampled
@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=pytest.mark.slow if name in COSTLY else ()) for name, line in
     COMMANDS.items()],
    ids=COMMANDS,
)  # fmt: skip
def test_a_name_adds_no_line_and_no_command(line, run):
    (status, texts), (expected_status, expected) = run(line, ODD), run(line, PLAIN)
    assert status == expected_status
    if not line.startswith(CHANGING):
        assert [text.count("\n") for text in texts] == [text.count("\n") for text in expected]
    shown = "".join(texts)
    assert all(c.isprintable() or c == "\n" for c in shown), shown
    assert "\\x1b" in shown
    assert "##vso[" not in shown
    assert not [text for text in shown.split("\n") if text.startswith("::") and "::c" in text[:20]]
