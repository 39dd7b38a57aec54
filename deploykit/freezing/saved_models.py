"""SavedModels of every age: the proto is read as it stands, so neither loader has to like it."""

from collections.abc import Sequence
from pathlib import Path

from deploykit.freezing.meta_graphs import functions, read_meta_graph, signatures, tags_of
from deploykit.storage.files import read_bytes
from deploykit.transforms.core.checks.text_form import binary_form
from deploykit.transforms.core.checks.wire import check_growth, fields
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.protos import MetaGraphDef, SavedModel

CALL = "__call__"
_SERVE = "serve"


_META_GRAPHS = 2  # the field of a SavedModel


def meta_graph_bytes(path: Path) -> list[bytes]:
    """Return the MetaGraphDefs of a `saved_model.pb` or `.pbtxt` in binary form.

    GraphError: the file is damaged, or huge once it is read.
    """
    content = read_bytes(path)
    try:
        if path.suffix == ".pbtxt":
            content = binary_form(content, SavedModel)
        check_growth(content, SavedModel)
    except GraphError as error:
        raise GraphError(f"its saved_model file is no SavedModel: {error}") from None
    metas = [content[begin:end] for _, begin, end in fields(content, _META_GRAPHS)]
    if not metas:
        raise GraphError("its saved_model file holds no graph; it may be cut short")
    return metas


def parse_saved_model(path: Path, tags: Sequence[str] = ()) -> MetaGraphDef:
    """Return the MetaGraphDef of a `saved_model.pb` or `.pbtxt` that has exactly these tags.

    Without tags: the one for `serve`, or the only one.
    GraphError: the file is damaged, or no MetaGraphDef has the tags; it lists those there are.
    """
    by_tags = {frozenset(tags_of(meta)): meta for meta in meta_graph_bytes(path)}
    if tags or len(by_tags) > 1:
        wanted = frozenset(tags or [_SERVE])
        if wanted not in by_tags:
            there = "; ".join(",".join(sorted(each)) or "(none)" for each in by_tags)
            asked = ",".join(sorted(wanted))
            raise GraphError(f"it has no graph with the tags {asked}; its graphs have: {there}")
        return read_meta_graph(by_tags[wanted])
    return read_meta_graph(next(iter(by_tags.values())))


def function_to_load(meta: MetaGraphDef, name: str | None) -> str | None:
    """Return the function that only TensorFlow's loader finds, or None where a signature answers.

    It is the one that is named, or where there are no signatures the only one, or `__call__`.
    """
    known = functions(meta)
    if name is not None:
        return name if name in known and name not in signatures(meta) else None
    if signatures(meta):
        return None
    if len(known) > 1 and CALL not in known:
        return None
    return CALL if CALL in known else next(iter(known), None)
