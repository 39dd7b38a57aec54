"""Two models side by side: what `deploykit diff` sees, what it does not mind, and how it ends."""

import numpy as np
import pytest

from deploykit.inspection.diff import differences, lines, summary
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import FunctionDef, GraphDef
from deploykit.transforms.ir.tensors import DType
from tests.support import Containing, assert_golden, because, random, showing, transform

FLOAT = DType("float32")


def graph(*more: Node) -> Graph:
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=FLOAT, shape=(-1, 4)),
        Node("w", "Const").with_attrs(**dict(constant("w").attrs)),
        Node("a", "MatMul", ("x", "w")).with_attrs(T=FLOAT, transpose_a=False, transpose_b=False),
        Node("b", "Relu", ("a", "^x", "^w")).with_attrs(T=FLOAT),
    ]
    return Graph([*nodes, *more])


def constant(name: str) -> Node:
    return Node.constant(name, random(4, 4))


def edited(name: str, **changes: object) -> Graph:
    """Return the graph with one node that has another op, other inputs or another device."""
    result = graph()
    node = result[name]
    values = {"op": node.op, "inputs": node.inputs, "device": node.device, **changes}
    result.replace(node, Node(name, attrs=node.attrs, **values))
    return result


def with_attrs(name: str, **attrs: object) -> Graph:
    result = graph()
    result.replace(result[name], result[name].with_attrs(**attrs))
    return result


def reverse(graph_def: GraphDef) -> None:
    kept = GraphDef(node=list(graph_def.node)[::-1])
    graph_def.ClearField("node")
    graph_def.node.extend(kept.node)


def spell_port_0(graph_def: GraphDef) -> None:
    graph_def.node[3].input[0] = "a:0"


def reorder_control_inputs(graph_def: GraphDef) -> None:
    graph_def.node[3].input[1:] = ["^w", "^x"]


def spell_values_singly(graph_def: GraphDef) -> None:
    tensor = graph_def.node[1].attr["value"].tensor
    tensor.float_val.extend(np.frombuffer(tensor.tensor_content, np.float32))
    tensor.tensor_content = b""


def hint(graph_def: GraphDef) -> None:
    graph_def.node[2].attr["_output_shapes"].list.SetInParent()


def grow_old(graph_def: GraphDef) -> None:
    graph_def.versions.producer = 21


SAME = [reverse, spell_port_0, reorder_control_inputs, spell_values_singly, hint, grow_old]


@pytest.mark.parametrize("change", SAME, ids=lambda change: change.__name__)
def test_what_makes_no_difference(change):
    graph_def = graph().to_graph_def()
    change(graph_def)
    assert graph_def != graph().to_graph_def()
    facts = differences(graph(), Graph.from_graph_def(graph_def))
    assert facts["equal"], facts


def test_nan_is_itself():
    nan = np.array([np.nan, 1, 2, 3, 4], np.float32)
    pair = [graph(Node.constant("c", nan)), graph(Node.constant("c", nan))]
    pair[1].replace(pair[1]["c"], pair[1]["c"].with_attrs(_hint=1))
    assert differences(*pair)["equal"]


CHANGES = {
    "op": (edited("b", op="Relu6"), {"op": ["Relu", "Relu6"]}),
    "device": (edited("b", device="/cpu:0"), {"device": ["", "/cpu:0"]}),
    "inputs": (
        edited("b", inputs=("x", "^x", "^w")),
        {"inputs": [["a", "^x", "^w"], ["x", "^x", "^w"]]},
    ),
    "port": (
        edited("b", inputs=("a:1", "^x", "^w")),
        {"inputs": [["a", "^x", "^w"], ["a:1", "^x", "^w"]]},
    ),
    "control": (
        edited("b", inputs=("a", "^x")),
        {"inputs": [["a", "^x", "^w"], ["a", "^x"]]},
    ),
    "attribute": (
        with_attrs("a", transpose_b=True),
        {"attributes": {"transpose_b": ["False", "True"]}},
    ),
    "lost attribute": (
        with_attrs("a", transpose_b=None),
        {"attributes": {"transpose_b": ["False", None]}},
    ),
    "new attribute": (with_attrs("b", more=1), {"attributes": {"more": [None, "1"]}}),
    "values": (
        with_attrs("w", value=random(4, 4) + np.eye(4, dtype=np.float32)),
        {
            "attributes": {
                "value": [
                    "float32[4, 4]",
                    showing("values-differ-at-most", count=4, every=16, most=1),
                ]
            }
        },
    ),
    "shape": (
        with_attrs("w", value=random(4, 5)),
        {"attributes": {"value": ["float32[4, 4]", "float32[4, 5]"]}},
    ),
    "type": (
        with_attrs("w", value=random(4, 4).astype(np.float64)),
        {"attributes": {"value": ["float32[4, 4]", "float64[4, 4]"]}},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_makes_one(name):
    other, expected = CHANGES[name]
    facts = differences(graph(), other)
    assert not facts["equal"]
    (change,) = facts["changed"]
    del change["node"]
    assert change == expected
    assert summary(facts) == because("one-node-changed", count=1)


def test_values_of_every_kind_are_compared():
    strings = np.array([b"a", b"b", b"c", b"d", b"e"], object)
    arrays = [strings, np.arange(5), np.arange(5) > 2, np.arange(5) * 1j]
    for array in arrays:
        other = array.copy()
        other[0], other[1] = array[3], array[4]
        pair = [graph(Node.constant("c", a)) for a in (array, other)]
        assert differences(pair[0], pair[0])["equal"]
        (change,) = differences(*pair)["changed"]
        assert because("values-differ", count=2, every=5) in change["attributes"]["value"][1]
    infinite = [graph(Node.constant("c", np.array([0, value]))) for value in (np.inf, -np.inf)]
    (change,) = differences(*infinite)["changed"]
    apart = because("values-differ", count=1, every=2)
    assert change["attributes"]["value"][1] == f"[0.0, -inf] ({apart})"
    half = Node.constant("c", random(5), "bfloat16")
    zero = Node.constant("c", np.zeros(5, np.float32), "bfloat16")
    assert not differences(graph(half), graph(zero))["equal"]


def test_functions_count():
    pair = [graph(), graph()]
    pair[0].library.function.append(FunctionDef(signature={"name": "f"}))
    assert differences(*pair)["functions"] == [{"function": "f", "change": "removed"}]
    pair[1].library.function.append(FunctionDef(signature={"name": "f", "is_stateful": True}))
    facts = differences(*pair)
    assert facts["functions"] == [{"function": "f", "change": "changed"}]
    assert summary(facts) == because("one-function-differs")
    pair[0].library.function[0].signature.is_stateful = True
    assert differences(*pair)["equal"]


@pytest.mark.golden("diff")
def test_a_difference_in_words(small_bytes):
    before = Graph.from_graph_def(GraphDef.FromString(small_bytes), ["x"], ["out"])
    after = transform(before, "fold_batch_norms remove_nodes(op=Identity)")
    after.replace(after["out"], Node("out", "Softmax", ("add_1",), after["out"].attrs, "/cpu:0"))
    after.versions.producer = 26
    before.versions.producer = 2474
    facts = differences(before, after)
    assert_golden("\n".join(lines(facts, before, after)) + "\n")


def test_the_command(deploykit, small):
    other = small.parent / "other.pb"
    assert deploykit("optimize", small, "-o", other).status == 0
    same = deploykit("diff", small, small)
    assert (same.status, same.stdout) == (0, showing("graphs-equal", nodes=16))
    found = deploykit("diff", small, other)
    assert found.status == 5
    lines = found.stdout.splitlines()
    assert lines[0].startswith("Graphs differ: ")
    assert [each.split(":")[0] for each in lines[1:5]] == ["nodes", "ops", "weights", "signature"]
    assert lines[lines.index("") + 1].startswith("- ")
    assert "error" not in found.stderr
    document = deploykit("diff", small, other, "--json").document
    assert document["command"] == "diff"
    assert document["equal"] is False
    assert "logits" in document["removed"]
    assert (document["nodes_in"], document["input_file"]) == (16, str(small))
    assert document["nodes_out"] < 16
    summed = document["summary"]
    assert summed["nodes"] == [16, document["nodes_out"]]
    assert sum(b - a for a, b in summed["ops"].values()) == document["nodes_out"] - 16


def test_the_summary_names_the_changed_signature():
    pair = [graph(), graph(Node("c", "Relu", ("b",)).with_attrs(T=FLOAT))]
    for each, output in zip(pair, ("b", "c"), strict=True):
        each.inputs, each.outputs = ("x",), (output,)
    found = list(lines(differences(*pair), *pair))
    assert "nodes:     4 -> 5" in found
    assert "ops:       Relu 1 -> 2" in found
    assert Containing("weights:", "16 ", "64 B") in found
    start = found.index("signature: differs")
    assert found[start + 1 : start + 3] == ["  - output b float32", "  + output c float32"]


def test_a_graph_needs_no_output(deploykit, tmp_path):
    paths = [tmp_path / name for name in ("a.pb", "b.pb")]
    for value, path in enumerate(paths):
        node = Node.constant("c", np.float32(value))
        path.write_bytes(b"".join(Graph([node]).serialized()))
    found = deploykit("diff", *paths)
    assert found.status == 5
    assert found.stdout == Containing("~ c: ", "0.0 -> 1.0", "1 of 1", " 1")
