"""Image preprocessing in front of a model: inputs are computed from files or pixels by default."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deploykit.data.data import Data
from deploykit.data.pipeline import changes
from deploykit.data.preprocessing import Preprocessing, Steps
from deploykit.data.preprocessing_plan import Planned, plan
from deploykit.exporting.named_model import NamedModel
from deploykit.exporting.photo_graph import FILE, PhotoInput
from deploykit.serving.protocol.signatures import BYTES, PIXELS, READY, SCOPE, Tensor
from deploykit.serving.saved_model.proto import tensors_of
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.runtime.child_process import call

MAX_PIXELS = 50_000_000
"""Default pixel limit of images: larger than most cameras' images; 150 MB when decoded."""
_FEATURE = "photo"


@dataclass(frozen=True)
class PhotoSides:
    """Inputs of signatures for image files and pixels, by alias, and their preprocessing."""

    files: Mapping[str, Tensor]
    pixels: Mapping[str, Tensor]
    steps: Mapping[str, Steps]
    """Preprocessing of each image input, by the model's alias."""
    renamed: Mapping[str, str]
    """Alias of the input for image files, by the model's alias."""
    fed: Mapping[str, str]
    """Description of the image preprocessing, by the model's alias."""


def photos_in_front(
    callee: NamedModel, graph: Graph, declared: Preprocessing, most_pixels: int
) -> PhotoSides | None:
    """Add image preprocessing in front of image inputs; None: the model has no such input.

    Args:
        callee: the model, whose graph is modified.
        graph: its inputs by alias, with metadata.
        declared: the declared preprocessing.
        most_pixels: the pixel limit; larger images are rejected before decoding.

    GraphError: the preprocessing is unknown or does not fit the input.
    """
    declared = declared.among(graph)
    aliases = photo_aliases(callee, declared)
    if not aliases:
        return None
    planned = {alias: _planned(alias, graph, declared) for alias in aliases}
    inputs = []
    for number, alias in enumerate(aliases):
        _check(callee, alias)
        scope = _free_scope(callee.graph) + (f"/{number}" if len(aliases) > 1 else "")
        sizes = callee.inputs[alias].shape
        batch = sizes[0] if sizes and sizes[0] > 0 else None
        inputs.append(PhotoInput(alias, scope, planned[alias].steps, batch))
    _join(callee, inputs, most_pixels)
    names = {name: _names(aliases, name, callee) for name in (BYTES, PIXELS)}
    tensors = tensors_of(callee.graph, [f"{i.scope}/{n}" for i in inputs for n in names])
    sides = {
        name: {
            names[name][input_.alias]: _of_batch(tensors[f"{input_.scope}/{name}"], input_.batch)
            for input_ in inputs
        }
        | {alias: own for alias, own in callee.inputs.items() if alias not in aliases}
        for name in names
    }
    fed = {alias: f"{_said(item)} ({item.why})" for alias, item in planned.items()}
    steps = {alias: item.steps for alias, item in planned.items()}
    return PhotoSides(sides[BYTES], sides[PIXELS], steps, names[BYTES], fed)


def photo_aliases(callee: NamedModel, declared: Preprocessing) -> list[str]:
    """Return the aliases of a model's image inputs, from their declarations and shapes."""
    return [input_ for input_ in callee.inputs if _takes_photos(input_, callee.inputs, declared)]


def _takes_photos(alias: str, inputs: Mapping[str, Tensor], declared: Preprocessing) -> bool:
    """Return whether an input is an image, by its declaration or else by its dtype and shape."""
    tensor, steps = inputs[alias], declared.inputs.get(alias, Steps())
    if tensor.dtype in ("string", "bool") or steps.split is not None or steps.length is not None:
        return False
    if tensor.shape is None:
        return alias in declared.inputs or len(inputs) == 1
    fits = len(tensor.shape) == 4 and tensor.shape[3] in (-1, 1, 3)
    return fits and (alias in declared.inputs or declared.range is not None or not declared.inputs)


def _planned(alias: str, graph: Graph, declared: Preprocessing) -> Planned:
    """Return the fully specified preprocessing steps of an input."""
    alone = Graph([graph[alias]], [alias], [alias])
    alone.about = graph.about
    steps = {k: replace(v, feature=_FEATURE) for k, v in declared.inputs.items() if k == alias}
    data = Data("--preprocess", "images", (), {_FEATURE: FILE})
    return plan(data, alone, replace(declared, inputs=steps, columns=None))[alias]


def _said(planned: Planned) -> str:
    return f"images -> {', '.join(changes(planned.steps)) or 'unchanged'}"


def _of_batch(tensor: Tensor, batch: int | None) -> Tensor:
    """Return a tensor with the fixed batch size of a model, if it has one."""
    if batch is None or tensor.shape is None:
        return tensor
    return replace(tensor, shape=(batch, *tensor.shape[1:]))


def _check(callee: NamedModel, alias: str) -> None:
    """Raise GraphError if an input is not a placeholder that can be replaced."""
    node = callee.graph.producer(callee.inputs[alias].name)
    if node.op not in FEEDABLE_OPS or node.data_inputs:
        raise GraphError("input-not-placeholder", name=alias, op=node.op, what="photos")


def _free_scope(graph: Graph) -> str:
    """Return a scope that is not a prefix of any node or function name."""
    used = {node.name.split("/")[0] for node in graph}
    functions = tuple(item.signature.name for item in graph.library.function)
    for number in itertools.count():
        scope = f"{SCOPE}_{number}" if number else SCOPE
        if scope not in used and not any(name.startswith(scope) for name in functions):
            return scope
    raise AssertionError


def _join(callee: NamedModel, inputs: Sequence[PhotoInput], most_pixels: int) -> None:
    """Add the preprocessing to the graph, as the default of the model's placeholders."""
    result = call("deploykit.exporting.photo_graph:photo_graph", list(inputs), most_pixels)
    made, graph = Graph.from_graph_def(GraphDef.FromString(result)), callee.graph
    for node in made:
        graph.add(node)
    graph.library.MergeFrom(made.library)
    graph.versions.producer = max(graph.versions.producer, made.versions.producer)
    for input_ in inputs:
        tensor = callee.inputs[input_.alias]
        placeholder = graph[split(tensor.name)[0]]
        replacing = Node(placeholder.name, "PlaceholderWithDefault", (f"{input_.scope}/{READY}",))
        replacing = replacing.with_attrs(dtype=DType(tensor.dtype), shape=tensor.shape)
        graph.replace(placeholder, replacing)
        graph.inputs = (*graph.inputs, *(f"{input_.scope}/{name}" for name in (BYTES, PIXELS)))
    graph.sort()


def _names(aliases: Sequence[str], name: str, callee: NamedModel) -> dict[str, str]:
    """Return aliases for image inputs: `bytes`, or `left_bytes` if there are several."""
    results = {alias: name if len(aliases) == 1 else f"{alias}_{name}" for alias in aliases}
    for result in results.values():
        if result in callee.inputs and result not in aliases:
            raise GraphError("input-exists", name=result)
    return results
