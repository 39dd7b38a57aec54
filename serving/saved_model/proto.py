"""Serializes a frozen graph and its signatures as a `saved_model.pb`, without TensorFlow.

For the Classify and Regress requests, it adds parsing of tf.Examples to the graph.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from deploykit.serving.protocol.protos import Example
from deploykit.serving.protocol.signatures import SERVE, Tensor
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import TENSORFLOW, version_of
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, delimited, split, tensor_name
from deploykit.transforms.ir.ops import (
    FEEDABLE_OPS,
    LAST_VERSION_WITHOUT_SCALARS,
    op_defs,
    output_types,
)
from deploykit.transforms.ir.protos import MetaGraphDef, SavedModel, SignatureDef, TensorInfo
from deploykit.transforms.ir.tensors import Array, DType, numpy_type, type_number
from deploykit.transforms.shapes.static_shapes import static_shapes

MAX_BYTES = 2 << 30  # protobuf cannot parse messages above 2 GiB


def tensors_of(graph: Graph, names: Iterable[str]) -> dict[str, Tensor]:
    """Return dtype and shape of tensors by name; unknown sizes are -1, and unknown ranks None.

    GraphError: a dtype is unknown.
    """
    names = list(names)
    shapes = static_shapes(graph, names)
    return {
        name: Tensor(
            "{}:{}".format(*split(name)), _type(graph, name), _shape(graph, name, shapes[name])
        )
        for name in names
    }


def _type(graph: Graph, tensor: str) -> str:
    node, port = graph.producer(tensor), split(tensor)[1]
    types = output_types(node) if node.op in op_defs() else None
    if types is None or port >= len(types):
        raise GraphError("tensor-type-unknown", name=tensor_name(node.name, port))
    return types[port]


def _shape(graph: Graph, tensor: str, shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    node = graph.producer(tensor)
    old = graph.versions.producer <= LAST_VERSION_WITHOUT_SCALARS
    return None if shape == () and old and node.op in FEEDABLE_OPS else shape


def signature_def(
    method: str, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]
) -> SignatureDef:
    """Return a SignatureDef of a method with tensors by alias."""
    signature = SignatureDef(method_name=method)
    for side, tensors in ((signature.inputs, inputs), (signature.outputs, outputs)):
        for alias, tensor in tensors.items():
            side[alias].CopyFrom(_tensor_info(tensor))
    return signature


def _tensor_info(tensor: Tensor) -> TensorInfo:
    info = TensorInfo(name=tensor.name, dtype=type_number(tensor.dtype))
    if tensor.shape is None:
        info.tensor_shape.unknown_rank = True
    else:
        info.tensor_shape.SetInParent()
        for size in tensor.shape:
            info.tensor_shape.dim.add(size=size)
    return info


def saved_model(graph: Graph, signatures: Mapping[str, SignatureDef]) -> list[bytes]:
    """Return the bytes of a SavedModel in pieces; they are deterministic.

    It has one MetaGraphDef with the tag `serve`. GraphError: it exceeds protobuf's 2 GiB limit.
    """
    about = MetaGraphDef.MetaInfoDef(tags=[SERVE], tensorflow_version=version_of(TENSORFLOW))
    rest = MetaGraphDef(signature_def=signatures)
    meta = [  # fields 1, 2 and 5 in pieces, so that the graph is not copied
        *delimited(1, [about.SerializeToString(deterministic=True)]),
        *delimited(2, list(graph.serialized())),
        rest.SerializeToString(deterministic=True),
    ]
    pieces = [SavedModel(saved_model_schema_version=1).SerializeToString(), *delimited(2, meta)]
    if sum(map(len, pieces)) > MAX_BYTES:
        raise GraphError("graph-too-large", container="SavedModel without variables")
    return pieces


_PARSER = "parse_examples"


def parse_in_front(graph: Graph, inputs: Mapping[str, Tensor]) -> str:
    """Parse the inputs from tf.Examples unless they are fed; return the name of the new input.

    Each input is the feature named like its alias, with one value per example. GraphError: an
    input is not a placeholder, or no feature can have its dtype or shape.
    """
    for alias, tensor in inputs.items():
        _check(graph, alias, tensor)
    examples = _examples(graph, inputs)
    kinds = [DType(_kind(tensor.dtype)) for tensor in inputs.values()]
    shapes = [tuple(tensor.shape or ())[1:] for tensor in inputs.values()]
    none = _constant(graph, "none", np.array([], object))
    keys = _constant(graph, "keys", np.array([alias.encode() for alias in inputs], object))
    defaults = [
        _constant(graph, f"default_{n}", np.zeros(1 if -1 in shape else 0, numpy_type(kind)), kind)
        for n, (kind, shape) in enumerate(zip(kinds, shapes, strict=True))
    ]
    read = (examples.name, none, none, keys, none, *defaults)
    parser = Node(graph.unique_name(_PARSER), "ParseExampleV2", read)
    graph.add(
        parser.with_attrs(
            Tdense=kinds,
            dense_shapes=shapes,
            num_sparse=0,
            sparse_types=[],
            ragged_value_types=[],
            ragged_split_types=[],
        )
    )
    for port, tensor in enumerate(inputs.values()):
        value = f"{parser.name}:{port}" if port else parser.name
        if tensor.dtype != kinds[port]:
            cast = Node(graph.unique_name(f"{parser.name}/cast"), "Cast", (value,))
            value = graph.add(cast.with_attrs(SrcT=kinds[port], DstT=DType(tensor.dtype))).name
        placeholder = graph[split(tensor.name)[0]]
        parsed = Node(placeholder.name, "PlaceholderWithDefault", (value,))
        graph.replace(placeholder, parsed.with_attrs(dtype=DType(tensor.dtype), shape=tensor.shape))
    graph.inputs = (*graph.inputs, examples.name)
    graph.sort()
    return examples.name


def _examples(graph: Graph, inputs: Mapping[str, Tensor]) -> Node:
    """Return the placeholder of tf.Examples; it defaults to none if inputs have defaults."""
    name = graph.unique_name("examples")
    waits: tuple[str, ...] = ()
    if any(_default_of(graph, tensor) for tensor in inputs.values()):
        waits = (_constant(graph, "no_examples", np.array([], object)),)
    op = "PlaceholderWithDefault" if waits else "Placeholder"
    return graph.add(Node(name, op, waits).with_attrs(dtype=DType("string"), shape=(-1,)))


def _default_of(graph: Graph, tensor: Tensor) -> bool:
    """Return whether an input has a constant default."""
    inputs = graph.producer(tensor.name).data_inputs
    return len(inputs) == 1 and graph.constant(inputs[0]) is not None


def example(sample: Mapping[str, Array]) -> Example:
    """Return one example, an array per alias, as a tf.Example; shapes are ignored."""
    result = Example()
    for alias, array in sample.items():
        feature = result.features.feature[alias]
        kind = _kind("string" if array.dtype.kind in "OSU" else array.dtype.name)
        values = array.reshape(-1)
        if kind == "string":
            feature.bytes_list.value.extend(
                item if isinstance(item, bytes) else str(item).encode() for item in values.tolist()
            )
        elif kind == "int64":
            feature.int64_list.value.extend(values.astype(np.int64).tolist())
        else:
            feature.float_list.value.extend(values.astype(np.float32).tolist())
    return result


def _check(graph: Graph, alias: str, tensor: Tensor) -> None:
    node = graph.producer(tensor.name)
    if node.op not in FEEDABLE_OPS or (node.data_inputs and not _default_of(graph, tensor)):
        raise GraphError("input-not-placeholder", name=alias, op=node.op, what="parsed tf.Examples")
    _kind(tensor.dtype)
    shape = tensor.shape
    if not shape or shape[0] >= 0 or -1 in shape[2:]:
        known = "unknown" if shape is None else [None if s < 0 else s for s in shape]
        raise GraphError("examples-shape", name=alias, shape=known)


def _kind(dtype: str) -> str:
    """Return the feature type for values of a dtype."""
    if dtype == "string":
        return "string"
    if dtype.startswith(("float", "bfloat")):
        return "float32"
    if dtype.startswith(("int", "uint", "bool")):
        return "int64"
    raise GraphError("examples-type", dtype=dtype)


def _constant(graph: Graph, name: str, array: Array, dtype: str | None = None) -> str:
    node = Node.constant(graph.unique_name(f"{_PARSER}/{name}"), array, dtype)
    return graph.add(node).name
