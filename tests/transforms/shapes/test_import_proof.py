"""What is proven to be importable, TensorFlow imports, and infers no more of its shapes."""

import random

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError, LoadError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.protos import AttrValue, GraphDef
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.shapes import import_check
from deploykit.transforms.shapes.import_check import PROVEN, check_import, prove_import
from deploykit.transforms.untrusted.validate import validate
from tests import pairwise
from tests.support import raises, tf
from tests.transforms.runtime.test_importing import SHAPES, SOUND, chained, made, relu

TRIED, IMPORTED = 6000, 40  # graphs of each op, and how many of the proven ones are imported
FLOAT, INT32, BOOL = 1, 3, 10
SIZES = (-1, 0, 1, 1, 2, 2, 3, 4)
VERSIONS = (0, 21, 22, 1882)  # of the graph's producer
NUMBERS = (-2, -1, 0, 1, 1, 1, 1, 2, 3)
NOTED = 0.15  # of the nodes have `_output_shapes`


def shape_like(chance, before, slides=False):
    """Return a random shape, often one that fits the shapes before it."""
    kind = chance.random()
    if slides and kind < 0.8:
        channels = chance.choice(before[0]) if before and before[0] else chance.choice(SIZES)
        return (*(chance.choice(SIZES[1:]) for _ in "ab"), channels, chance.choice(SIZES[2:]))
    if before and kind < 0.35:
        return chance.choice(before)
    if before and kind < 0.6 and before[0]:
        return (chance.choice(before[0]),)
    if kind < 0.7:
        return ()
    rank = chance.choice((0, 1, 2, 2, 3, 4, 4, 4, 4, 5))
    return tuple(chance.choice(SIZES) for _ in range(rank))


def sizes_like(chance, rank):
    """Return an array that may hold axes, sizes or paddings."""
    kind = chance.random()
    if kind < 0.3:
        return np.int32(chance.choice((-2, -1, 0, 1, 2, 3)))
    if kind < 0.45:
        return np.array(chance.sample(range(rank), rank), np.int32)
    if kind < 0.7:
        return np.array(
            [
                [chance.choice((0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, -1)) for _ in "ab"]
                for _ in range(rank)
            ],
            np.int32,
        )
    count = chance.choice((0, 1, 1, 2, 2, 3, rank, rank, rank))
    return np.array([chance.choice((-1, 0, 1, 2, 3, 4, 6, 8)) for _ in range(count)], np.int32)


def attributes(chance, op_def):
    """Return random attributes of a node, which its op may or may not take."""
    attrs = {}
    for attr in op_def.attr:
        if attr.HasField("default_value") and chance.random() < 0.4:
            continue
        if attr.type == "type":
            allowed = attr.allowed_values.list.type
            index = attr.name in ("Tidx", "Tperm", "Tpaddings", "Tshape", "Taxis", "Tdim", "Index")
            kind = INT32 if index or (allowed and FLOAT not in allowed) else FLOAT
            attrs[attr.name] = AttrValue(type=kind if BOOL not in allowed[:1] else BOOL)
        elif attr.type == "int":
            attrs[attr.name] = AttrValue(i=chance.choice(NUMBERS))
        elif attr.type == "bool":
            attrs[attr.name] = AttrValue(b=chance.random() < 0.3)
        elif attr.type == "float":
            attrs[attr.name] = AttrValue(f=0.5)
        elif attr.type == "string":
            texts = attr.allowed_values.list.s or [b"x", b""]
            attrs[attr.name] = AttrValue(s=chance.choice(texts))
        elif attr.type == "list(int)":
            attrs[attr.name] = numbers(chance, attr.name)
        elif attr.type == "shape":
            attrs[attr.name] = AttrValue(
                shape={"dim": [{"size": n} for n in shape_like(chance, [])]}
            )
    return attrs


def numbers(chance, name):
    if chance.random() < 0.2:
        listed = [chance.choice(NUMBERS) for _ in range(chance.choice((0, 1, 3, 4, 5, 8)))]
    elif name in ("squeeze_dims", "explicit_paddings"):
        listed = [chance.choice((-1, 0, 1, 2, 3)) for _ in range(chance.choice((0, 0, 1, 2)))]
    else:
        listed = [1, chance.choice(NUMBERS), chance.choice(NUMBERS), 1]
    return AttrValue(list={"i": listed})


def candidate(chance, op):
    """Return a graph around a node `y` of an op, right or wrong."""
    op_def = op_defs()[op]
    attrs = attributes(chance, op_def)
    nodes, shapes = [], []
    has_vectors, axis = chance.random() < 0.3, chance.choice((1, -1))
    for arg in op_def.input_arg:
        count = attrs[arg.number_attr].i if arg.number_attr else 1
        kind = attrs.get(arg.type_attr, AttrValue(type=arg.type or FLOAT)).type
        for _ in range(min(max(count, 0), 4)):
            name = f"in{len(nodes)}"
            if kind == INT32 and chance.random() < 0.9:
                nodes.append(
                    Node.constant(name, sizes_like(chance, len(shapes[0]) if shapes else 2))
                )
                continue
            if has_vectors and shapes and len(shapes[0]) > 1:
                shapes.append((shapes[0][axis],))
            else:
                shapes.append(shape_like(chance, shapes, "strides" in attrs))
            dtype = DType({FLOAT: "float32", INT32: "int32"}.get(kind, "bool"))
            nodes.append(Node(name, "Placeholder").with_attrs(dtype=dtype, shape=shapes[-1]))
    inputs = tuple(node.name for node in nodes)
    node = Node("y", op, inputs, attrs)
    if op == "Const":
        node = Node.constant("y", np.zeros([max(size, 0) for size in shape_like(chance, [])]))
    if chance.random() < NOTED:
        noted = [shape_like(chance, shapes) for _ in op_def.output_arg]
        node = node.with_attrs(_output_shapes=noted)
    graph = Graph([*nodes, node])
    graph.versions.producer = chance.choice(VERSIONS)
    return graph


def inferred(graph):
    """Return the shape that TensorFlow infers of each node's first output. ValueError: none."""
    content = GraphDef.FromString(b"".join(graph.serialized()))
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString(content.SerializeToString()), name="")
    first = {each.name: each.outputs[0].shape for each in imported.get_operations() if each.outputs}
    return {
        name: shape.as_list() if shape.rank is not None else None for name, shape in first.items()
    }


def assert_importable(graph, shapes):
    try:
        found = inferred(graph)
    except ValueError as error:
        pytest.fail(f"{graph}: {error}")
    for name, theirs in found.items():
        ours = shapes[name]
        if theirs is not None:
            assert len(ours) == len(theirs), (graph, ours, theirs)
            assert all(a in (None, b) for a, b in zip(theirs, ours, strict=True)), (
                graph,
                ours,
                theirs,
            )


@pytest.mark.sampled
@pytest.mark.parametrize("op", pairwise.drawn(__name__, sorted(PROVEN), 40))
def test_tensorflow_imports_what_is_proven(op):
    chance = random.Random(op)
    proven = refused = 0
    for _ in range(TRIED):
        graph = candidate(chance, op)
        try:
            validate(graph)
        except GraphError:
            continue
        shapes, doubt = prove_import(graph)
        refused += bool(doubt)
        if not doubt:
            proven += 1
            assert_importable(graph, shapes)
        if proven == IMPORTED:
            break
    assert proven >= 3, refused


def test_no_proven_op_is_deprecated():
    assert not [op for op in PROVEN if op_defs()[op].HasField("deprecation")]


@pytest.mark.parametrize("add", SHAPES.values(), ids=SHAPES)
def test_what_tensorflow_refuses_is_refused_with_its_message(add):
    graph = Graph.from_graph_def(chained(made(add)))
    with raises(LoadError, "runtime-failed", runtime="TensorFlow", action="load the graph"):
        check_import(graph, is_validated=True)


@pytest.mark.sampled
@pytest.mark.parametrize("add", SOUND.values(), ids=SOUND)
def test_what_tensorflow_imports_is_accepted(add):
    check_import(Graph.from_graph_def(made(add)), is_validated=True)


def test_tensorflow_does_not_start_for_a_proven_graph_but_for_an_invalid_one(monkeypatch):
    def start():
        raise AssertionError

    monkeypatch.setattr(import_check, "ImportCheck", start)
    graph = Graph.from_graph_def(made(relu))
    check_import(graph, is_validated=False)
    graph.replace(graph["y"], graph["y"].with_attrs(T=None))
    with pytest.raises(AssertionError):
        check_import(graph, is_validated=False)
