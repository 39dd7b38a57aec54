"""SavedModels of all TensorFlow versions: the proto is read without TensorFlow's loaders."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from deploykit.importers.meta_graphs import functions, read_meta_graph, signatures, tags_of
from deploykit.storage.files import read_bytes
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import MetaGraphDef, SavedModel
from deploykit.transforms.untrusted.wire import binary_form, check_growth, fields

logger = logging.getLogger("deploykit")

CALL = "__call__"
_SERVE = "serve"
_SERVING = frozenset({_SERVE})
_UNUSABLE = ("tpu", "train")  # tags of graphs that do not run here or that train; worst first
_NOT_FOR_SERVING = frozenset({*_UNUSABLE, "eval"})

_META_GRAPHS = 2  # the field of a SavedModel


def meta_graph_bytes(path: Path) -> list[bytes]:
    """Return the serialized MetaGraphDefs of a `saved_model.pb` or `.pbtxt`.

    GraphError: the file is damaged, or too large once decoded.
    """
    content = read_bytes(path)
    try:
        if path.suffix == ".pbtxt":
            content = binary_form(content, SavedModel)
        check_growth(content, SavedModel)
    except GraphError as error:
        raise GraphError("not-a", what="a SavedModel", reason=error) from None
    metas = [content[begin:end] for _, begin, end in fields(content, _META_GRAPHS)]
    if not metas:
        raise GraphError("saved-model-without-graph")
    return metas


def parse_saved_model(path: Path, tags: Sequence[str] = ()) -> MetaGraphDef:
    """Return the MetaGraphDef with exactly these tags from a `saved_model.pb` or `.pbtxt`.

    An empty tag selects the graph without tags. The default is the graph tagged `serve`, or the
    only one that can run here, which is logged. If several have the same tags, the first one is
    used with a warning, as in TensorFlow.
    GraphError: the file is damaged, or no MetaGraphDef has the tags; it lists the existing tags.
    """
    by_tags: dict[frozenset[str], list[bytes]] = {}
    for meta in meta_graph_bytes(path):
        by_tags.setdefault(frozenset(tags_of(meta)), []).append(meta)
    expected = frozenset(filter(None, tags)) if tags else _default_tags(list(by_tags))
    if expected not in by_tags:
        raise GraphError(
            "saved-model-tags-missing", wanted=_shown(expected), known=_listed(by_tags)
        )
    first, *others = by_tags[expected]
    if others:
        logger.warning(
            "the SavedModel has %d graphs with %s: using the first one, as TensorFlow does",
            len(others) + 1,
            _shown(expected),
        )
    return read_meta_graph(first)


def _default_tags(known: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the tags of the graph to use if the caller specifies none.

    Graphs with `serve` among their tags are preferred. TF1 Hub modules have one graph without tags
    and one tagged `train`. GraphError: several graphs remain.
    """
    if _SERVING in known:
        return _SERVING
    left = [tags for tags in known if tags >= _SERVING] or list(known)
    for unusable in _UNUSABLE:
        left = [tags for tags in left if unusable not in tags] or left
    if len(left) > 1:
        raise GraphError("saved-model-tags-ambiguous", tag=_SERVE, known=_listed(known))
    chosen = ",".join(sorted(left[0]))
    unfit = ", ".join(sorted(left[0] & _NOT_FOR_SERVING))
    logger.log(
        logging.WARNING if unfit else logging.INFO,
        "no graph has exactly the tag '%s': using the one %s%s (--tags \"%s\")",
        _SERVE,
        f"tagged '{chosen}'" if chosen else "without tags",
        f", though graphs for {unfit} may give other outputs, or fail" if unfit else "",
        chosen,
    )
    return left[0]


def _shown(tags: Iterable[str]) -> str:
    names = ",".join(sorted(tags))
    return f"the tags {names}" if names else "no tags"


def _listed(known: Iterable[frozenset[str]]) -> list[str]:
    """Return the tags of each graph, with the option that selects a graph without tags."""
    return [",".join(sorted(item)) or '(none: --tags "")' for item in known]


def function_to_load(meta: MetaGraphDef, name: str | None) -> str | None:
    """Return the function that needs TensorFlow's loader, or None if a signature is used.

    It is the requested function; without signatures, `__call__` or the only function.
    """
    known = functions(meta)
    if name is not None:
        return name if name in known and name not in signatures(meta) else None
    if signatures(meta):
        return None
    if len(known) > 1 and CALL not in known:
        return None
    return CALL if CALL in known else next(iter(known), None)
