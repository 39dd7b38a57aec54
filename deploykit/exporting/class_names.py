"""The best classes of a model by name, as outputs: `classes` and `scores`, best first."""

from collections.abc import Sequence

import numpy as np

from deploykit.exporting.named_model import NamedModel
from deploykit.photos.class_names import check_labels
from deploykit.serving.protocol.signatures import CLASSES, SCORES, Tensor
from deploykit.serving.saved_model.proto import tensors_of
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.node import Node, normal
from deploykit.transforms.core.tensors import Array, DType

MOST = 5
"""Classes that are answered, at most."""
LABELS = "assets.extra/labels.txt"

_INT = DType("int32")


def best_classes(callee: NamedModel, scores: Tensor, labels: Sequence[str]) -> dict[str, Tensor]:
    """Return outputs with the names and scores of the best classes, [batch, at most 5].

    They are added to the graph. GraphError: there are more names or fewer than scores, or the model
    names its classes itself.
    """
    if CLASSES in callee.outputs:
        raise GraphError("output-exists", name=CLASSES)
    count = scores.shape[1] if scores.shape is not None else -1
    if count != -1:
        check_labels(labels, count, scores.name)
    graph = callee.graph
    scope = graph.unique_name("best_classes")

    def add(name: str, op: str, inputs: Sequence[str], **attrs: object) -> str:
        return graph.add(Node(f"{scope}/{name}", op, tuple(inputs)).with_attrs(**attrs)).name

    def constant(name: str, value: Array) -> str:
        return graph.add(Node.constant(f"{scope}/{name}", value)).name

    float_ = DType("float32")
    most = constant("most", np.array(min(MOST, len(labels)), np.int32))
    best = add("best", "TopKV2", [normal(scores.name), most], T=float_, Tk=_INT, sorted=True,
               index_type=_INT)  # fmt: skip
    names = constant("labels", np.array([label.encode() for label in labels], object))
    axis = constant("axis", np.array(0, np.int32))
    found = add("names", "GatherV2", [names, f"{best}:1", axis], Tparams=DType("string"),
                Tindices=_INT, Taxis=_INT, batch_dims=0)  # fmt: skip
    tensors = tensors_of(graph, [found, best])
    return {CLASSES: tensors[found], SCORES: tensors[best]}
