"""The MetaGraphDef of a checkpoint or SavedModel, pruned to its inference graph."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from deploykit.importers.model_source import Interface
from deploykit.importers.signature import check_outputs, guess_inputs, guess_outputs
from deploykit.importers.unusual_ops import leave_out_unknown_ops
from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.ir.functions import Library
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name, split
from deploykit.transforms.ir.ops import FEEDABLE_OPS, output_types
from deploykit.transforms.ir.protos import MetaGraphDef, VariableDef
from deploykit.transforms.remove_device import remove_device
from deploykit.transforms.remove_unused_functions import remove_unused_functions
from deploykit.transforms.untrusted.validate import GraphParts, survey, validate
from deploykit.transforms.untrusted.wire import decoded, field_bytes

logger = logging.getLogger("deploykit")

DEFAULT_SIGNATURE = "serving_default"
_HUB_SIGNATURE = "default"
_LEGAL_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/-]*")


_META_INFO, _GRAPH = 1, 2  # the fields of a MetaGraphDef


def tags_of(content: bytes) -> list[str]:
    """Return the tags of a serialized MetaGraphDef. GraphError: it is damaged."""
    return list(decoded(field_bytes(content, _META_INFO), MetaGraphDef.MetaInfoDef).tags)


def meta_graph_nodes(content: bytes) -> bytes:
    """Return the serialized GraphDef of a serialized MetaGraphDef."""
    return field_bytes(content, _GRAPH)


def read_meta_graph(content: bytes) -> MetaGraphDef:
    """Decode a MetaGraphDef in limited memory and check its nodes.

    It may contain custom ops, such as those of training; the inference graph is validated later.
    GraphError: it is damaged, or a node is invalid.
    """
    survey(GraphParts.read(meta_graph_nodes(content)))
    return decoded(content, MetaGraphDef)


def signatures(meta: MetaGraphDef) -> list[str]:
    """Return the names of the signatures for inference, sorted."""
    return sorted(name for name in meta.signature_def if not name.startswith("__saved_model_"))


def functions(meta: MetaGraphDef) -> list[str]:
    """Return the names of the functions of a SavedModel's root object."""
    nodes = meta.object_graph_def.nodes
    return sorted(
        child.local_name
        for child in (nodes[0].children if nodes else ())
        if nodes[child.node_id].function.concrete_functions
    )


def trained_variables(meta: MetaGraphDef) -> tuple[str, ...]:
    """Return the names of the trainable variables that the model contains."""
    packed = meta.collection_def["trainable_variables"].bytes_list.value
    names = [decoded(content, VariableDef).variable_name for content in packed]
    nodes = meta.object_graph_def.nodes
    names += [node.variable.name for node in nodes if node.variable.trainable]
    return tuple(dict.fromkeys(producer_name(name) for name in names if name))


def whole_graph(meta: MetaGraphDef) -> Graph:
    """Return the complete graph of a MetaGraphDef, including save, restore and training ops.

    Gradients in training graphs have `_output_shapes` that current TensorFlow rejects, so these
    are removed. Every subgraph is pruned before TensorFlow imports it.
    """
    for node in meta.graph_def.node:
        node.attr.pop("_output_shapes", None)
    return Graph.from_graph_def(meta.graph_def)


def answering_graph(whole: Graph, meta: MetaGraphDef, interface: Interface) -> Graph:
    """Return the validated subgraph from the inputs to the outputs, including variables.

    Inputs and outputs may be aliases of the signature or tensor names. They default to those of
    the signature; without a signature they are guessed.
    """
    graph = whole.copy()
    name = chosen_signature(meta, interface.signature)
    fed, fetched = signature_sides(meta, name)
    check_outputs(graph, (o for o in interface.outputs if o not in fetched), tuple(fetched))
    graph.outputs = tuple(fetched.get(o, o) for o in interface.outputs) or tuple(fetched.values())
    if not graph.outputs and meta.object_graph_def.nodes:
        raise GraphError(
            "signature-not-chosen", signatures=signatures(meta), functions=functions(meta)
        )
    if not graph.outputs:
        graph.outputs = guess_outputs(graph)
        logger.info("output guessed: %s (name others with --outputs)", ", ".join(graph.outputs))
    graph.inputs = tuple(fed.get(i, i) for i in interface.inputs)
    for tensor in (*graph.inputs, *graph.outputs, *fed.values()):
        graph.producer(tensor)
    graph.prune()
    leave_out_unknown_ops(graph)
    if not graph.inputs:
        present = tuple(tensor for tensor in fed.values() if producer_name(tensor) in graph)
        graph.inputs = present or guess_inputs(graph)
    remove_unused_functions(graph)
    validate(graph)
    remove_device(graph)
    _take_names(graph, name, fed, fetched)
    return graph


def chosen_signature(meta: MetaGraphDef, expected: str | None) -> str | None:
    """Return the signature to use: the requested, default or only one.

    The default signature of a TF1 Hub module is `default`.
    """
    known = signatures(meta)
    if expected is not None:
        if expected not in known:
            hint = nearest(expected, known)
            raise GraphError(
                "unknown-meta-signature",
                name=expected,
                hint=hint,
                signatures=known,
                functions=functions(meta),
            )
        return expected
    for default in (DEFAULT_SIGNATURE, _HUB_SIGNATURE):
        if default in known:
            return default
    if len(known) > 1:
        raise GraphError("signature-ambiguous", known=known)
    return known[0] if known else None


def signature_sides(
    meta: MetaGraphDef, signature: str | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the tensors of a signature's inputs and outputs, by alias."""
    if signature is None:
        return {}, {}
    chosen = meta.signature_def[signature]
    fed, fetched = (
        {
            name if len(tensors) == 1 else f"{name}/{part}": normal(tensor)
            for name, info in sorted(side.items())
            for tensors in [_tensors(info)]
            for part, tensor in tensors.items()
        }
        for side in (chosen.inputs, chosen.outputs)
    )
    return fed, fetched


def signature_tensors(meta: MetaGraphDef) -> list[str]:
    """Return the tensors of all signatures for inference."""
    sides = [side for name in signatures(meta) for side in signature_sides(meta, name)]
    return [tensor for side in sides for tensor in side.values()]


def inputs_by_alias(graph: Graph, fed: Mapping[str, str]) -> dict[str, str]:
    """Return the graph's inputs by alias; freezing renames some inputs to their alias."""
    results = {}
    for alias, tensor in fed.items():
        places = [item for item in (normal(tensor), alias) if _is_fed(graph, item)]
        if places:
            results[alias] = places[0]
    return results


def _is_fed(graph: Graph, tensor: str) -> bool:
    """Return whether a tensor is an input or another placeholder."""
    name = producer_name(tensor)
    return tensor in graph.inputs or (name in graph and graph[name].op in FEEDABLE_OPS)


def _tensors(info: Any) -> dict[str, str]:
    """Return the component tensors of a signature value: one, or several if sparse or ragged."""
    encoding = info.WhichOneof("encoding")
    if encoding == "composite_tensor":
        parts = info.composite_tensor.components
        return {str(place): part.name for place, part in enumerate(parts)}
    if encoding != "coo_sparse":
        return {"": info.name}
    sparse = info.coo_sparse
    return {
        "values": sparse.values_tensor_name,
        "indices": sparse.indices_tensor_name,
        "dense_shape": sparse.dense_shape_tensor_name,
    }


def _take_names(
    graph: Graph, signature: str | None, fed: Mapping[str, str], fetched: Mapping[str, str]
) -> None:
    """Rename inputs and outputs to their aliases if TensorFlow 2 generated other names.

    It names an input `serving_default_x` and the outputs `StatefulPartitionedCall:0`, `...:1`.
    A frozen graph has no signature, so its node names must identify them.
    """
    for name, tensor in fed.items():
        if tensor.startswith(f"{signature}_") and tensor in graph and _is_free(graph, name):
            graph.add(graph[tensor].with_name(name))
            graph.redirect({tensor: name, f"^{tensor}": f"^{name}"})
            graph.inputs = tuple(name if i == tensor else i for i in graph.inputs)
            graph.remove(graph[tensor])
    library = Library(graph)
    for name, tensor in fetched.items():
        if tensor in graph.outputs and _is_free(graph, name):
            call, port = graph.producer(tensor), split(tensor)[1]
            types = output_types(call, library.op_def(call.op)) if library.callee(call) else None
            if types is not None:
                graph.add(Node(name, "Identity", (tensor,)).with_attrs(T=types[port]))
                graph.outputs = tuple(name if o == tensor else o for o in graph.outputs)


def _is_free(graph: Graph, name: str) -> bool:
    return _LEGAL_NAME.fullmatch(name) is not None and name not in graph
