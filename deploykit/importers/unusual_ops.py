"""Ops that need special handling: unknown ones, switches between training and inference, and
convolutions that Keras compiles with XLA.
"""

import logging
import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.control_flow import CASE_OPS, IF_OPS
from deploykit.transforms.ir.functions import Library, names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import SWITCH_OPS, Node, producer_name, tensor_name
from deploykit.transforms.ir.ops import FEEDABLE_OPS, op_defs
from deploykit.transforms.ir.protos import NodeDef
from deploykit.transforms.ir.tensors import DType, type_name
from deploykit.transforms.layers.affine import BATCH_NORM_OPS
from deploykit.transforms.layers.layers import channels_first
from deploykit.transforms.remove_unused_functions import remove_unused_functions
from deploykit.transforms.shapes.static_shapes import static_shapes
from deploykit.transforms.strip_unused_nodes import strip_unused_nodes
from deploykit.transforms.untrusted.side_effects import cut_off, inputs_behind
from deploykit.transforms.untrusted.validate import validate

logger = logging.getLogger("deploykit")


def leave_out_unknown_ops(graph: Graph) -> bool:
    """Prune a graph to what its outputs need if it contains ops that TensorFlow does not have.

    Return whether it was pruned. A graph without outputs cannot run and is not changed.

    GraphError: the outputs need such an op; the message contains workarounds.
    """
    unknown = unknown_ops(graph)
    if not unknown or not graph.outputs:
        return False
    graph.prune()
    remove_unused_functions(graph)
    if unknown_ops(graph):
        strip_unused_nodes(graph)  # cuts at fed inputs
        remove_unused_functions(graph)
    left = unknown_ops(graph)
    if left:
        try:
            validate(graph)
        except GraphError as error:
            behind = inputs_behind(graph, {name for name, _ in left})
            such = f", such as {cut_off(behind)}" if behind else ""
            raise GraphError("unknown-op-in-graph", reason=error, such=such) from None
    name, op = unknown[0]
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    logger.info(
        "TensorFlow has no op '%s' (node '%s'%s): no output needs it, so it is dropped",
        op,
        name,
        more,
    )
    return True


def unknown_ops(graph: Graph) -> list[tuple[str, str]]:
    """Return (node, op) for each op that neither TensorFlow nor the function library has."""
    library = graph.library.function
    known = op_defs().keys() | {function.signature.name for function in library}
    results = []
    if not graph.ops <= known:  # skips the scan of up to millions of nodes
        results = [(node.name, node.op) for node in graph if node.op not in known]
    for function in library:
        name = function.signature.name
        results += [(f"{name}/{n.name}", n.op) for n in function.node_def if n.op not in known]
    return results


_TRAINING = re.compile(r"(^|_)(is_)?(train|training|trainable|learning_phase)(_|$)|istrain")
_INFERENCE = re.compile(r"infer|test|eval|predict|determin|frozen")
_LOGIC_OPS = frozenset({"Identity", "LogicalAnd", "LogicalNot", "LogicalOr", "Cast", "Reshape"})
_OF_BATCH_NORMS = BATCH_NORM_OPS | {"Rsqrt"}


def is_training_switch(node: Node) -> bool:
    """Return whether a node is a boolean placeholder with a name like `is_training`."""
    return _is_switch(node) and _TRAINING.search(_last(node)) is not None


def has_boolean_placeholder(nodes: Iterable[NodeDef]) -> bool:
    """Return whether the nodes of a GraphDef contain a boolean placeholder."""
    fed = (node for node in nodes if node.op in FEEDABLE_OPS)
    return any(type_name(node.attr["dtype"].type) == "bool" for node in fed)


def tell_what_hides_batch_norms(graph: Graph) -> None:
    """Log each boolean placeholder that prevents folding of batch norms, and how to pin it."""
    library = Library(graph)
    for node in graph:
        if _is_switch(node) and _hides_batch_norms(graph, library, node):
            value = "true" if _INFERENCE.search(_last(node)) else "false"
            logger.info(
                "placeholder '%s' keeps batch norms in branches, where they do not fold; if it is "
                "%s in use, pin it (--pin %s=%s)",
                node.name,
                value,
                node.name,
                value,
            )


def _is_switch(node: Node) -> bool:
    return node.op in FEEDABLE_OPS and node.attr("dtype") == "bool"


def _last(node: Node) -> str:
    return node.name.rsplit("/", 1)[-1].lower()


def _hides_batch_norms(graph: Graph, library: Library, placeholder: Node) -> bool:
    """Return whether a branch that a placeholder selects contains part of a batch norm."""
    conditions, switches = {placeholder.name}, set[str]()
    functions: set[str] = set()
    waiting = [placeholder.name]
    while waiting:
        name = waiting.pop()
        for reader in graph.readers(name):
            if reader.op in SWITCH_OPS and producer_name(reader.data_inputs[1]) == name:
                switches.add(reader.name)
            elif reader.op in IF_OPS | CASE_OPS and producer_name(reader.data_inputs[0]) == name:
                functions.update(names_in(reader.attrs.values()))
            elif reader.op in _LOGIC_OPS and reader.name not in conditions:
                conditions.add(reader.name)
                waiting.append(reader.name)
    below = graph.descendants(switches, control=False) if switches else set()
    called = library.below(library[name].signature.name for name in functions)
    ops = {graph[name].op for name in below}
    ops |= {proto.op for name in called for proto in library[name].node_def}
    return not ops.isdisjoint(_OF_BATCH_NORMS)


_COMPILED = "_XlaMustCompile"
_MARK = "_deploykit_xla"
_CONVOLUTIONS = {"Conv2D": "NHWC", "Conv3D": "NDHWC"}


def mark_convolutions(graph: Graph) -> None:
    """Mark convolutions in functions that XLA compiles, as inlining loses this information."""
    library = Library(graph)
    compiled = [name for name, item in library.functions.items() if item.attr[_COMPILED].b]
    for node in graph:
        if _COMPILED in node.attrs and node.attr(_COMPILED):
            compiled += [*names_in(node.attrs.values()), node.op]
    for name in library.below(compiled):
        for proto in library[name].node_def:
            if proto.op in _CONVOLUTIONS:
                proto.attr[_MARK].b = True


def rewrite_convolutions(graph: Graph) -> None:
    """Rewrite the marked convolutions: channels last, and one Conv3D per group.

    GraphError: the numbers of channels are unknown.
    """
    marked = [node for node in graph if _MARK in node.attrs]
    if not marked:
        return
    shapes = static_shapes(graph, {tensor for node in marked for tensor in node.data_inputs})
    for node in marked:
        image, weights = (shapes[tensor] for tensor in node.data_inputs)
        node = graph.replace(node, node.with_attrs(_output_shapes=None, **{_MARK: None}))
        axis = 1 if channels_first(node) else -1
        if not image or not weights or min(image[axis], weights[-2]) < 0:
            raise GraphError("xla-channels-unknown", node=node.name, op=node.op)
        groups = image[axis] // weights[-2]
        if axis == 1:
            node = _channels_last(graph, node)
        if groups > 1 and node.op == "Conv3D":
            _split(graph, node, groups)


def _channels_last(graph: Graph, node: Node) -> Node:
    """Convert a convolution to channels last, between two transpositions; return it."""
    rank = len(_CONVOLUTIONS[node.op])
    last = [0, *range(2, rank), 1]  # new axis -> old axis
    first = [0, rank - 1, *range(1, rank - 1)]
    attrs: dict[str, object] = {"data_format": _CONVOLUTIONS[node.op]}
    for name in ("strides", "dilations"):
        if node.attr(name):
            attrs[name] = [node.attr(name)[axis] for axis in last]
    if node.attr("explicit_paddings"):
        pairs = np.reshape(node.attr("explicit_paddings"), (rank, 2))
        attrs["explicit_paddings"] = pairs[last].reshape(-1).tolist()
    image, weights = node.data_inputs
    turned = _transposed(graph, f"{node.name}/channels_last", image, last, node)
    inner = replace(node, name=graph.unique_name(f"{node.name}/convolution"))
    inner = inner.with_data_inputs(turned, weights).with_attrs(**attrs)
    graph.add(inner)
    back = _transposed(graph, f"{node.name}/channels_first", inner.name, first, node)
    graph.replace(node, graph[back])
    graph.remove(graph[back])
    return inner


def _transposed(graph: Graph, name: str, tensor: str, order: list[int], like: Node) -> str:
    name = graph.unique_name(name)
    axes = graph.constant_beside(like, np.array(order, np.int32), f"{name}/axes")
    node = Node(name, "Transpose", (tensor, axes.name), device=like.device)
    return graph.add(node.with_attrs(T=like.attrs["T"], Tperm=DType("int32"))).name


def _split(graph: Graph, node: Node, groups: int) -> None:
    """Replace a channels-last convolution by one convolution per group."""
    parts = []
    for tensor, name in zip(node.data_inputs, ("image", "weights"), strict=True):
        axis = graph.constant_beside(node, np.array(4, np.int32), f"{node.name}/{name}/axis")
        split = Node(graph.unique_name(f"{node.name}/{name}"), "Split", (axis.name, tensor))
        parts.append(graph.add(split.with_attrs(num_split=groups, T=node.attrs["T"])).name)
    results = []
    for group in range(groups):
        inner = replace(node, name=graph.unique_name(f"{node.name}/group_{group}"))
        inputs = (tensor_name(part, group) for part in parts)
        results.append(graph.add(inner.with_data_inputs(*inputs)).name)
    axis = graph.constant_beside(node, np.array(4, np.int32), f"{node.name}/axis")
    joined = Node(node.name, "ConcatV2", (*results, axis.name), device=node.device)
    attrs = {"N": groups, "T": node.attrs["T"], "Tidx": DType("int32")}
    graph.replace(node, joined.with_attrs(**attrs))
