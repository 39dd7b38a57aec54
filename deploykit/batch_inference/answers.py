"""Converts the outputs of a batch into columns: the outputs, or the best classes."""

from collections.abc import Mapping, Sequence

import numpy as np

from deploykit.batch_inference.formats.part_table import (
    FILE,
    ROW,
    SHAPE_END,
    TOP_CLASSES,
    TOP_LABELS,
    TOP_SCORES,
)
from deploykit.batch_inference.infer_task import InferTask
from deploykit.importers.metadata_file import about
from deploykit.importers.open_model import OpenedModel
from deploykit.records.examples import Feature
from deploykit.storage.image_files import check_labels
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal, split
from deploykit.transforms.ir.ops import op_defs, output_types
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.shapes.static_shapes import Shapes
from deploykit.verification.synthetic.sample_inputs import demanded_batch, takes_scalars

_DEFAULT = "serving_default"


class UnrankedError(GraphError):
    """Some rows of a batch have NaN scores, so they have no best class."""

    def __init__(self, code: str = "", /, *, rows: tuple[int, ...] = (), **fields: object) -> None:
        """Store the indices of these rows in the batch."""
        super().__init__(code, **fields)
        self.rows = rows


def answer_columns(task: InferTask, outputs: Mapping[str, Array], rows: int) -> dict[str, Array]:
    """Return the outputs of a number of rows as columns, or the best classes.

    With `task.top`, the columns are `top_classes` int64 and `top_scores` float32, [rows, K], best
    first, with equal scores in class order. With labels, there is `top_labels` as UTF-8. K is at
    most the number of classes. The first output must contain a score per class; axes of size 1
    between rows and classes are ignored.

    UnrankedError: some rows have NaN scores. GraphError: an output does not have one row for each
    input row, or the first output has no class scores, or the number of labels differs.
    """
    columns = {name: np.asarray(value) for name, value in outputs.items()}
    for name, value in columns.items():
        if value.shape[:1] != (rows,):
            text = _said(value.dtype.name, value.shape)
            raise GraphError("output-lacks-rows", name=name, got=text, rows=rows)
    if task.top is None:
        return columns
    name = next(iter(columns))
    scores = _scores(name, columns[name])
    check_labels(task.labels, scores.shape[1], name)
    classes = _best(scores, task.top)
    results = {
        TOP_CLASSES: classes,
        TOP_SCORES: np.take_along_axis(scores, classes, 1).astype(np.float32),
    }
    if task.labels:
        texts = np.array([label.encode() for label in task.labels], object)
        results[TOP_LABELS] = texts[classes]
    return results


def _scores(name: str, values: Array) -> Array:
    """Return scores as sortable numbers, [rows, classes]."""
    scores = values.reshape(len(values), _classes(name, values.dtype.name, values.shape))
    if scores.dtype.itemsize < 4 or scores.dtype.kind == "V":  # bfloat16 and smaller ones
        scores = scores.astype(np.float32)
    bad = np.flatnonzero(np.isnan(scores).any(1)) if scores.dtype.kind == "f" else np.array([], int)
    if bad.size:
        raise UnrankedError("class-scores-nan", rows=tuple(bad.tolist()), name=name)
    return scores


def _classes(name: str, dtype: str, shape: Sequence[int]) -> int:
    """Return the number of classes in an output, or -1; unknown sizes may be 1."""
    sizes = [size for size in shape[1:] if size != 1]
    is_number = dtype not in ("object", "string", "bool") and not dtype.startswith("complex")
    known = [size for size in sizes if size > 0]
    if not is_number or not sizes or 0 in sizes or len(known) > 1:
        raise GraphError("output-not-scores-each-class", name=name, got=_said(dtype, shape))
    return known[0] if len(sizes) == 1 and known else -1


def _best(scores: Array, top: int) -> Array:
    """Return the classes with the highest scores, int64 [rows, top]; ties in class order."""
    # A stable sort of the reversed classes keeps ties in class order.
    order = np.argsort(scores[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return np.asarray(scores.shape[1] - 1 - order[:, :top], np.int64)


def _said(dtype: str, shape: Sequence[int]) -> str:
    sizes = ", ".join("?" if size < 0 else str(size) for size in shape)
    return f"{'texts' if dtype in ('object', 'string') else dtype} [{sizes}]"


def expected_columns(
    model: OpenedModel, columns: Mapping[str, str], top: int | None, labels: Sequence[str]
) -> dict[str, Feature]:
    """Return dtype and shape of a row in each column, as far as the graph determines them.

    It raises the errors of `answer_columns` early, if the shapes in the graph are known.
    """
    graph, forms = model.frozen, {}
    shapes, batch = Shapes(graph), demanded_batch(graph)
    row = (-1,) if takes_scalars(graph) else ()
    for name, tensor in columns.items():
        if (known := shapes.shape(tensor)) is None:
            continue
        dtype, shape = forms[name] = _dtype(graph, tensor), (*row, *known)
        if not shape or shape[0] not in (-1, batch):
            got, rows = _said(dtype, shape), batch or "any number of"
            raise GraphError("output-lacks-rows", name=name, got=got, rows=rows)
    if top is None:
        return {
            name: Feature(dtype, tuple(None if size < 0 else size for size in shape[1:]))
            for name, (dtype, shape) in forms.items()
            if dtype
        }
    first = next(iter(columns))
    if first not in forms or (classes := _classes(first, *forms[first])) < 0:
        return {}
    check_labels(labels, classes, first)
    best = (min(top, classes),)
    features = {TOP_CLASSES: Feature("int64", best), TOP_SCORES: Feature("float32", best)}
    return features | ({TOP_LABELS: Feature("string", best)} if labels else {})


def _dtype(graph: Graph, tensor: str) -> str:
    node, port = graph.producer(tensor), split(tensor)[1]
    types = output_types(node) if node.op in op_defs() else None
    return "" if types is None or port >= len(types) else types[port]


def column_names(model: OpenedModel, taken: Sequence[str] = ()) -> dict[str, str]:
    """Return the output tensors of a model, by column name.

    A column has the name of the output in the signature, or else of the tensor without `:0`. Names
    are made unique, also against the other columns: the `taken` ones are copied from the data.
    """
    graph = model.frozen
    signatures = about(graph).signatures
    callers: dict[str, str] = {}
    for key in sorted(signatures, key=lambda key: key != _DEFAULT):
        for alias, tensor in signatures[key].outputs.items():
            callers.setdefault(normal(tensor), alias)
    names: dict[str, str] = {}
    for tensor in dict.fromkeys(map(normal, graph.outputs)):
        name = callers.get(tensor, tensor).removesuffix(":0")
        names[_free(name, {FILE, ROW, *taken, *names})] = tensor
    shapes = {f"{name}{SHAPE_END}" for name in names}
    if not shapes & names.keys():
        return names
    used = {FILE, ROW, *taken, *names, *shapes}
    return {_free(n, used) if n in shapes else n: tensor for n, tensor in names.items()}


def _free(name: str, used: set[str]) -> str:
    """Return a name, or the first unused one of `NAME_2`, `NAME_3` and so on."""
    count, free = 1, name
    while free in used:
        count += 1
        free = f"{name}_{count}"
    return free
