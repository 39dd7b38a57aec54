"""Photos in front of a model: what it takes is computed from files or pixels, unless it is fed."""

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

MOST_PIXELS = 50_000_000
"""Of an image that is decoded, by default: more than most cameras make, 150 MB."""
_FEATURE = "photo"


@dataclass(frozen=True)
class PhotoSides:
    """What signatures take instead of a model's inputs, by alias, and what becomes of it."""

    files: Mapping[str, Tensor]
    pixels: Mapping[str, Tensor]
    steps: Mapping[str, Steps]
    """Of each input that takes photos, by the model's own alias."""
    renamed: Mapping[str, str]
    """The alias that takes files instead of an own one."""
    fed: Mapping[str, str]
    """What becomes of the photos of each input, in words."""


def photos_in_front(
    callee: NamedModel, graph: Graph, declared: Preprocessing, most_pixels: int
) -> PhotoSides | None:
    """Let the inputs that take photos be computed from them; None: no input does.

    Args:
        callee: the model, whose graph is changed.
        graph: its inputs by alias, and what is known of them.
        declared: what becomes of photos.
        most_pixels: an image of more is refused before it is decoded.

    GraphError: what becomes of the photos is not known, or does not fit the input.
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
    """Return the inputs of a model that take photos, by what is declared of them."""
    return [input_ for input_ in callee.inputs if _takes_photos(input_, callee.inputs, declared)]


def _takes_photos(alias: str, inputs: Mapping[str, Tensor], declared: Preprocessing) -> bool:
    """Say whether an input takes photos: as it is declared, or else as it looks."""
    tensor, steps = inputs[alias], declared.inputs.get(alias, Steps())
    if tensor.dtype in ("string", "bool") or steps.split is not None or steps.length is not None:
        return False
    if tensor.shape is None:
        return alias in declared.inputs or len(inputs) == 1
    fits = len(tensor.shape) == 4 and tensor.shape[3] in (-1, 1, 3)
    return fits and (alias in declared.inputs or declared.range is not None or not declared.inputs)


def _planned(alias: str, graph: Graph, declared: Preprocessing) -> Planned:
    """Return the steps of an input, with nothing left open."""
    alone = Graph([graph[alias]], [alias], [alias])
    alone.about = graph.about
    steps = {k: replace(v, feature=_FEATURE) for k, v in declared.inputs.items() if k == alias}
    data = Data("--preprocess", "images", (), {_FEATURE: FILE})
    return plan(data, alone, replace(declared, inputs=steps, columns=None))[alias]


def _said(planned: Planned) -> str:
    return f"photos -> {', '.join(changes(planned.steps)) or 'as they are'}"


def _of_batch(tensor: Tensor, batch: int | None) -> Tensor:
    """Return a tensor with the number of photos that a model demands."""
    if batch is None or tensor.shape is None:
        return tensor
    return replace(tensor, shape=(batch, *tensor.shape[1:]))


def _check(callee: NamedModel, alias: str) -> None:
    """Raise GraphError where nothing can be put in front of an input."""
    node = callee.graph.producer(callee.inputs[alias].name)
    if node.op not in FEEDABLE_OPS or node.data_inputs:
        raise GraphError("input-not-placeholder", name=alias, op=node.op, what="photos")


def _free_scope(graph: Graph) -> str:
    """Return a scope that no name of a node or function begins with."""
    used = {node.name.split("/")[0] for node in graph}
    functions = tuple(item.signature.name for item in graph.library.function)
    for number in itertools.count():
        scope = f"{SCOPE}_{number}" if number else SCOPE
        if scope not in used and not any(name.startswith(scope) for name in functions):
            return scope
    raise AssertionError


def _join(callee: NamedModel, inputs: Sequence[PhotoInput], most_pixels: int) -> None:
    """Add what is in front to the graph; what takes tensors now takes these by default."""
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
    """Return what callers call what takes photos: `bytes`, or of several, `left_bytes`."""
    results = {alias: name if len(aliases) == 1 else f"{alias}_{name}" for alias in aliases}
    for result in results.values():
        if result in callee.inputs and result not in aliases:
            raise GraphError("input-exists", name=result)
    return results
