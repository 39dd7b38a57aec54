"""A hash table of the nonzero rows can replace a column of weights that are mostly zero."""

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.ops import REF_VARIABLE_OPS
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.session import check_restored, place_of

NEAR_ZERO = np.float64(1e-5)  # a float64 comparison, as in the original tool

_GATHER_OPS = frozenset({"Gather", "GatherV2"})
_KEY, _VALUE = DType("int64"), DType("float32")


def sparsify_gather(
    graph: Graph, *, input_checkpoint: str = "", group_init_node: str = "group_deps"
) -> None:
    """Replace a Gather from a mostly empty column of weights by a lookup in a hash table.

    It takes float32 weights of shape [N, 1] in a Const, or in a variable of TensorFlow 1 that the
    checkpoint contains. For partitioned variables, make this the first step, while the graph still
    has their restore ops. Weights nearer to zero than 1e-5 become zero, and a missing row is zero
    too, where Gather fails. The lookup itself waits for the node that fills the table, so no init
    op is necessary.

    Args:
        input_checkpoint: the prefix of the checkpoint with the values of variables.
        group_init_node: a NoOp that initializes the model; if it exists, it also fills the tables.
    """
    if group_init_node in graph and graph[group_init_node].op != "NoOp":
        raise GraphError("group-init-not-noop", node=group_init_node)
    gathers: dict[str, Node] = {}
    for node in graph:
        if node.op in _GATHER_OPS:
            weights = _weights(graph, node)
            if not graph.skip(node, _reason(graph, node, weights)) and weights is not None:
                gathers[node.name] = weights
    sources = {weights.name: weights for weights in gathers.values()}
    variables = [weights for weights in sources.values() if weights.op in REF_VARIABLE_OPS]
    restored = _restored(graph, variables, input_checkpoint)
    tables = {
        name: _add_table(graph, name, weights.value if weights.op == "Const" else restored[name])
        for name, weights in sources.items()
    }
    for name, weights in gathers.items():
        _look_up(graph, graph[name], *tables[weights.name])
    if group_init_node in graph:
        group = graph[group_init_node]
        filling = [f"^{filling}" for _, filling in tables.values()]
        graph.replace(group, group.with_control_inputs(*filling))


def _weights(graph: Graph, gather: Node) -> Node | None:
    """Return the Const or variable that a Gather reads, directly or through Identity nodes."""
    const = graph.constant(gather.inputs[0])
    if const is not None:
        return const
    tensor = graph.source(gather.inputs[0])
    node, port = graph.producer(tensor), split(tensor)[1]
    holds_weights = node.op in REF_VARIABLE_OPS and port == 0
    return node if holds_weights and not graph.is_input(node.name) else None


def _reason(graph: Graph, gather: Node, weights: Node | None) -> str:
    if graph.is_input(gather.name):
        return "it is an input of the graph"
    if weights is None:
        return "it reads neither a constant nor a variable"
    if weights.control_inputs:
        return f"its weights '{weights.name}' have control inputs, or are in a branch or loop"
    if weights.attr("dtype") != _VALUE:
        return f"its weights '{weights.name}' have type {weights.attr('dtype')}, not float32"
    shape = weights.shape if weights.op == "Const" else weights.attr("shape")
    if shape is None or len(shape) != 2 or shape[1] != 1:
        return f"its weights '{weights.name}' have the shape {shape and list(shape)}, not [N, 1]"
    if gather.op == "GatherV2":
        axis = graph.constant(gather.data_inputs[2])
        if axis is None or axis.value != 0:
            return "its axis is not 0"
    return "it gathers by batches" if gather.attr("batch_dims", 0) else ""


def _restored(graph: Graph, variables: list[Node], checkpoint: str) -> dict[str, Array]:
    """Return the values of variables; a TensorFlow child process reads them."""
    if not variables:
        return {}
    if not checkpoint:
        raise GraphError("variable-without-checkpoint", node=variables[0].name)
    places = {variable.name: _place(graph, variable) for variable in variables}
    restored: dict[str, Array] = call(
        "deploykit.transforms.runtime.session:read_checkpoint", checkpoint, places
    )
    for variable in variables:
        check_restored(variable, restored[variable.name])
    return restored


def _place(graph: Graph, variable: Node) -> tuple[str, str]:
    """Return the key and the slice of a variable in its checkpoint, from the restore op."""
    for reader in graph.readers(variable.name):
        if reader.op == "Assign" and reader.data_inputs[0] == variable.name:
            place = place_of(graph, reader.data_inputs[1])
            if place is not None:
                return place
    if variable.name.rpartition("/")[2].startswith("part_"):
        raise GraphError("variable-part", node=variable.name)
    return variable.name, ""


def _add_table(graph: Graph, name: str, weights: Array) -> tuple[str, str]:
    """Add a table and the node that fills it; return the names of both."""
    column = weights.reshape(-1)
    rows = np.flatnonzero(~(np.abs(column) < NEAR_ZERO))  # includes NaN
    retained = column[rows]
    if not rows.size:  # a table must not be empty
        rows, retained = np.zeros(1, np.int64), np.zeros(1, np.float32)
    types = {"key_dtype": _KEY, "value_dtype": _VALUE}
    table = graph.put(f"{name}/HashTable", "HashTable", like=None, **types)
    inputs = [
        graph.add(Node.constant(graph.unique_name(f"{name}/{part}"), array)).name
        for part, array in (("indices", rows.astype(np.int64)), ("values", retained))
    ]
    filling, types = f"{name}/InitializeTable", {"Tkey": _KEY, "Tval": _VALUE}
    return table, graph.put(filling, "InitializeTable", table, *inputs, like=None, **types)


def _look_up(graph: Graph, gather: Node, table: str, filling: str) -> None:
    """Replace a Gather by a lookup that adds a last axis of size 1."""

    def add(part: str, node: Node) -> str:
        return graph.add(node.with_name(graph.unique_name(f"{gather.name}/{part}"))).name

    ids = gather.data_inputs[1]
    if gather.attr("Tindices") == "int32":
        ids = add("ids", Node("", "Cast", (ids,)).with_attrs(SrcT=DType("int32"), DstT=_KEY))
    default = add("Const", Node.constant("", np.array(0, np.float32)))
    find = Node("", "LookupTableFind", (table, ids, default, f"^{filling}"))
    find = find.with_control_inputs(*gather.control_inputs).with_attrs(Tin=_KEY, Tout=_VALUE)
    inputs = (
        add("LookupTableFind", find),
        add("ExpandDims/Const", Node.constant("", np.array(-1, np.int32))),
    )
    graph.absorb([gather], into=Node(gather.name, "ExpandDims", inputs).with_attrs(T=_VALUE))
