"""SavedModels of every age: the proto is read as it stands, so neither loader has to like it."""

from collections.abc import Sequence
from pathlib import Path

from deploykit.files import read_bytes
from deploykit.keras_files import frozen_function
from deploykit.meta_graphs import functions, signatures
from transforms.core.child import call
from transforms.core.errors import GraphError
from transforms.core.graph import Graph
from transforms.core.protos import GraphDef, MetaGraphDef, SavedModel

_SERVE = "serve"


def parse_saved_model(path: Path, tags: Sequence[str] = ()) -> MetaGraphDef:
    """Return the MetaGraphDef of a `saved_model.pb` or `.pbtxt` that has exactly these tags.

    Without tags: the one for `serve`, or the only one.
    GraphError: the file is damaged, or no MetaGraphDef has the tags; it lists those there are.
    """
    from google.protobuf import message, text_format

    content = read_bytes(path)
    try:
        if path.suffix == ".pbtxt":
            model = text_format.Parse(content.decode(), SavedModel())
        else:
            model = SavedModel.FromString(content)
    except (message.DecodeError, UnicodeDecodeError, text_format.ParseError):
        raise GraphError("its saved_model file is no SavedModel; it may be cut short") from None
    if not model.meta_graphs:
        raise GraphError("its saved_model file holds no graph; it may be cut short")
    by_tags = {frozenset(meta.meta_info_def.tags): meta for meta in model.meta_graphs}
    if tags or len(by_tags) > 1:
        wanted = frozenset(tags or [_SERVE])
        if wanted not in by_tags:
            there = "; ".join(",".join(sorted(each)) or "(none)" for each in by_tags)
            asked = ",".join(sorted(wanted))
            raise GraphError(f"it has no graph with the tags {asked}; its graphs have: {there}")
        return by_tags[wanted]
    return next(iter(by_tags.values()))


def is_function(meta: MetaGraphDef, name: str | None) -> bool:
    """Say whether a name is that of a function which is no signature: a loader must find it."""
    return name is not None and name in functions(meta) and name not in signatures(meta)


def read_function(path: Path, meta: MetaGraphDef, name: str) -> Graph:
    """Return a function of a SavedModel that is no signature, as a frozen graph."""
    content, fed, fetched = call(
        "deploykit.saved_models:freeze_function", str(path), list(meta.meta_info_def.tags), name
    )
    return Graph.from_graph_def(GraphDef.FromString(content), fed, fetched)


def freeze_function(path: str, tags: list[str], name: str) -> tuple[bytes, list[str], list[str]]:
    """Return a function as GraphDef bytes, inputs and outputs; this is done in a child process.

    GraphError: it cannot be loaded, or is not one function of tensors.
    """
    import tensorflow as tf

    try:
        model = tf.saved_model.load(path, tags)  # its variables live as long as it does
        function = getattr(model, name)
    except Exception as error:  # TensorFlow raises whatever the damage happens to cause
        raise GraphError(f"TensorFlow cannot load it: {str(error).splitlines()[0]}") from None
    traced = function.concrete_functions
    if len(traced) != 1:
        raise GraphError(f"its function '{name}' is traced for {len(traced)} kinds of inputs")
    return frozen_function(traced[0])
