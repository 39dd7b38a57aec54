"""Models that only the loaders of Keras or TensorFlow open, saved again as a SavedModel."""

import contextlib
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploykit.importers.initializers import Initialisers
from deploykit.importers.meta_graphs import DEFAULT_SIGNATURE, answering_graph, whole_graph
from deploykit.importers.model_files import parse_saved_model
from deploykit.importers.model_path import Checkpoint
from deploykit.importers.model_source import Interface
from deploykit.importers.unusual_ops import mark_convolutions
from deploykit.transforms.add_default_attributes import add_default_attributes
from deploykit.transforms.common.errors import FileError, GraphError, failed
from deploykit.transforms.inline_functions import inline_functions
from deploykit.transforms.ir.functions import rename
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.remove_unused_functions import remove_unused_functions
from deploykit.transforms.runtime.child_process import call

logger = logging.getLogger("deploykit")

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.\\/-]")
_CALLS = re.compile(r"(StatefulPartitionedCall(_\d+)?/)+")  # prefix of node names in signatures


@dataclass(frozen=True)
class Resaved:
    """A model that was written as a SavedModel, with the names that users expect."""

    inputs: Sequence[str]
    """Original input names in order; the SavedModel's signature numbers them instead."""
    outputs: Sequence[str]
    notes: Sequence[str] = ()
    """Messages for the user, one line each."""


@contextlib.contextmanager
def saved_again(function: str, *arguments: Any) -> Iterator[tuple[Graph, Initialisers]]:
    """Yield a model's graph without function calls, and its initializers.

    `function` ("package.module:name") runs in a child process with a folder to write into and the
    arguments, and returns a `Resaved`.
    """
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        forced = {"KERAS_BACKEND": "tensorflow"}
        written = call(function, folder, *arguments, forced=forced, kept=True)
        yield read_again(folder, written)


def read_again(folder: str, written: Resaved) -> tuple[Graph, Initialisers]:
    """Return the values of `saved_again` for a folder that is already written.

    The folder is read again when the variables are filled.
    """
    for note in written.notes:
        logger.info("%s", note)
    meta = parse_saved_model(Path(folder) / "saved_model.pb")
    names = _legal([*written.inputs, *written.outputs])
    count = len(written.inputs)
    interface = Interface(tuple(names[:count]), tuple(names[count:]))
    _give_names(meta, interface)
    whole = whole_graph(meta)
    graph = answering_graph(whole, meta, interface)
    mark_convolutions(graph)
    inline_functions(graph)
    remove_unused_functions(graph)
    add_default_attributes(graph)  # SavedModels omit them
    _shorten_names(graph)
    checkpoint = Checkpoint(Path(folder) / "variables", "variables")
    return graph, Initialisers.of(meta, whole, checkpoint, Path(folder))


@contextlib.contextmanager
def writing(folder: str) -> Iterator[None]:
    """Convert TensorFlow's write errors to FileError; for child processes."""
    import tensorflow as tf

    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        text = str(getattr(error, "message", error)).splitlines()[0].rpartition("; ")[2][:200]
        raise FileError("model-not-resaved", source=folder, reason=text) from None


def input_name(place: int) -> str:
    """Return the name of an input in the signature that a child process writes."""
    return f"input_{place}"


def named_outputs(tensors: Iterable[Any]) -> dict[str, Any]:
    """Return the outputs by their names in the signature that a child process writes."""
    return {f"output_{place}": tensor for place, tensor in enumerate(tensors)}


def _legal(names: Sequence[str]) -> list[str]:
    """Return valid, unique node names: `x`, `x_1`, ..."""
    legal: dict[str, None] = {}
    for name in names:
        base = _ILLEGAL.sub("_", name).lstrip("_\\/-") or "tensor"
        candidate, number = base, 0
        while candidate in legal:
            number += 1
            candidate = f"{base}_{number}"
        legal[candidate] = None
    return list(legal)


def _give_names(meta: MetaGraphDef, interface: Interface) -> None:
    """Replace the generated names in the signature by the user's names."""
    signature = meta.signature_def[DEFAULT_SIGNATURE]
    for infos, names, prefix in (
        (signature.inputs, interface.inputs, "input"),
        (signature.outputs, interface.outputs, "output"),
    ):
        serialize_to_strings = [
            infos[f"{prefix}_{place}"].SerializeToString() for place in range(len(names))
        ]
        infos.clear()
        for name, content in zip(names, serialize_to_strings, strict=True):
            infos[name].MergeFromString(content)


def _shorten_names(graph: Graph) -> None:
    """Remove the signature's call prefix from node names if they stay unique."""
    names: dict[str, str] = {}
    used = {node.name for node in graph}
    for node in graph:
        short = _CALLS.sub("", node.name, count=1) if _CALLS.match(node.name) else ""
        if short and short not in used:
            used.add(short)
            names[node.name] = short
    rename(graph, names)


def resave(folder: str, path: str, tags: list[str], name: str) -> Resaved:
    """Write a function of a SavedModel as a separate SavedModel.

    It runs in a child process.
    GraphError: it cannot be loaded, or has no unique form with tensor inputs.
    """
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(path, tags)
        function = getattr(loaded, name)
    except Exception as error:  # damaged files may raise any exception
        message = " ".join(str(error).split())[:300] or type(error).__name__
        raise failed(
            "runtime-failed", error, runtime="TensorFlow", action="load it", reason=message
        ) from None
    traced, notes = _inference(name, function.concrete_functions)
    return replace(write_function(folder, traced, loaded), notes=notes)


def write_function(folder: str, traced: Any, retained: Any) -> Resaved:
    """Write a concrete function as a SavedModel.

    `retained` are the variables and tables that it reads, or an object that owns them.
    """
    import tensorflow as tf

    structure = traced.structured_input_signature
    leaves = tf.nest.flatten(structure, expand_composites=True)
    specs = [leaf for leaf in leaves if isinstance(leaf, tf.TensorSpec)]

    def answer(*tensors: Any) -> dict[str, Any]:
        given = iter(tensors)
        filled = [next(given) if isinstance(leaf, tf.TensorSpec) else leaf for leaf in leaves]
        args, kwargs = tf.nest.pack_sequence_as(structure, filled, expand_composites=True)
        answers = tf.nest.flatten(traced(*args, **kwargs), expand_composites=True)
        return named_outputs(map(tf.identity, answers))

    module = tf.Module()
    module.kept = retained  # tracked, so that it is saved
    module.serve = tf.function(
        answer,
        input_signature=[
            tf.TensorSpec(spec.shape, spec.dtype, input_name(place))
            for place, spec in enumerate(specs)
        ],
        autograph=False,
    )
    with writing(folder):
        tf.saved_model.save(module, folder, signatures=module.serve)
    inputs = [spec.name or input_name(place) for place, spec in enumerate(specs)]
    outputs = traced.structured_outputs
    flat = tf.nest.flatten(outputs, expand_composites=True)
    keys = sorted(outputs) if isinstance(outputs, dict) and len(outputs) == len(flat) else None
    return Resaved(inputs, keys or list(named_outputs(flat)))


def _inference(name: str, traced: Sequence[Any]) -> tuple[Any, list[str]]:
    """Return the concrete function for inference, and a note if others take more inputs.

    It has training turned off, the fewest inputs, and the most general shapes. GraphError: several
    such functions take different inputs.
    """
    answering = [item for item in traced if not any(leaf is True for leaf in _leaves(item))]
    fewest = min((len(_specs(item)) for item in answering), default=0)
    least = [item for item in answering if len(_specs(item)) == fewest]
    results = [item for item in least if all(_takes(item, other) for other in least)]
    if not results:
        shown = "; ".join(map(_shown, answering[:4]))
        raise GraphError("function-traced-often", name=name, count=len(traced), signatures=shown)
    larger = list(dict.fromkeys(_shown(item) for item in answering if item not in least))
    if not larger:
        return results[0], []
    others = "; ".join(f"({item})" for item in larger[:4])
    return results[0], [
        f"function '{name}' is traced with different inputs: using the form with the fewest, "
        f"({_shown(results[0])}); other forms: {others} (save the model with one of these as its "
        "signature to use it)"
    ]


def _leaves(traced: Any) -> list[Any]:
    """Return the tensor specs and Python values that a concrete function was traced with."""
    import tensorflow as tf

    return list(tf.nest.flatten(traced.structured_input_signature, expand_composites=True))


def _specs(traced: Any) -> list[Any]:
    import tensorflow as tf

    return [leaf for leaf in _leaves(traced) if isinstance(leaf, tf.TensorSpec)]


def _shown(traced: Any) -> str:
    """Return the inputs of a concrete function as a text."""
    return ", ".join(
        f"{spec.name or 'tensor'}: {spec.dtype.name} {spec.shape}" for spec in _specs(traced)
    )


def _takes(wide: Any, narrow: Any) -> bool:
    """Return whether a concrete function accepts all inputs of another one."""
    ours, others = _leaves(wide), _leaves(narrow)
    return len(ours) == len(others) and all(map(_covers, ours, others))


def _covers(wide: Any, narrow: Any) -> bool:
    """Return whether an argument spec accepts all values of another one."""
    import tensorflow as tf

    if isinstance(wide, tf.TensorSpec) and isinstance(narrow, tf.TensorSpec):
        return wide.dtype == narrow.dtype and bool(narrow.shape.is_subtype_of(wide.shape))
    return not isinstance(wide, tf.TensorSpec) and not isinstance(narrow, tf.TensorSpec)
