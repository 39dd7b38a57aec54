"""Serializes a frozen graph and its signatures as a `saved_model.pb`, without TensorFlow."""

from collections.abc import Iterable, Mapping

from deploykit.serving.protocol.signatures import SERVE, Tensor
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import TENSORFLOW, version_of
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import delimited, split, tensor_name
from deploykit.transforms.ir.ops import (
    FEEDABLE_OPS,
    LAST_VERSION_WITHOUT_SCALARS,
    op_defs,
    output_types,
)
from deploykit.transforms.ir.protos import MetaGraphDef, SavedModel, SignatureDef, TensorInfo
from deploykit.transforms.ir.tensors import type_number
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
    about = MetaGraphDef.MetaInfoDef(
        tags=[SERVE],
        tensorflow_version=version_of(TENSORFLOW),
    )
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
