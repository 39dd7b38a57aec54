"""What only Keras or TensorFlow's loader can open is saved again, and read like any SavedModel.

A child process loads the model and writes it as a SavedModel into a folder of its own, so that
variables, tables and functions have one way into a frozen graph, whatever kept them.
"""

import contextlib
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.freezing.checkpoints import Checkpoint
from deploykit.freezing.initializers import Initialisers
from deploykit.freezing.interface import Interface
from deploykit.freezing.meta_graphs import DEFAULT_SIGNATURE, answering_graph, whole_graph
from deploykit.freezing.saved_models import parse_saved_model
from deploykit.freezing.xla_convolutions import mark_convolutions
from deploykit.transforms.add_default_attributes import add_default_attributes
from deploykit.transforms.core.errors import FileError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.protos import MetaGraphDef
from deploykit.transforms.core.renaming import rename
from deploykit.transforms.core.running.child import call
from deploykit.transforms.inline_functions import inline_functions
from deploykit.transforms.remove_unused_functions import remove_unused_functions

logger = logging.getLogger("deploykit")

_ILLEGAL = re.compile(r"[^A-Za-z0-9_.\\/-]")
_CALLS = re.compile(r"(StatefulPartitionedCall(_\d+)?/)+")  # what TensorFlow calls a signature's


@dataclass(frozen=True)
class Resaved:
    """A model that was written as a SavedModel, as its users know it."""

    inputs: Sequence[str]
    """Names in the user's order; those of the signature are numbered."""
    outputs: Sequence[str]
    notes: Sequence[str] = ()
    """What users should know of it, each in one line."""


@contextlib.contextmanager
def saved_again(function: str, *arguments: Any) -> Iterator[tuple[Graph, Initialisers]]:
    """Yield a model's graph without calls, and what gives its variables and tables their contents.

    `function` ("package.module:name") is run in a child process: it takes a folder to write into
    and the arguments, and returns a `Resaved`.
    """
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        forced = {"KERAS_BACKEND": "tensorflow"}
        written = call(function, folder, *arguments, forced=forced, kept=True)
        yield read_again(folder, written)


def read_again(folder: str, written: Resaved) -> tuple[Graph, Initialisers]:
    """Return what `saved_again` yields, of a folder that was written.

    The folder is read once more when the variables are filled.
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
    add_default_attributes(graph)  # which SavedModels leave out, and graphs of Keras have
    _shorten_names(graph)
    checkpoint = Checkpoint(Path(folder) / "variables", "variables")
    return graph, Initialisers.of(meta, whole, checkpoint, Path(folder))


@contextlib.contextmanager
def writing(folder: str) -> Iterator[None]:
    """Turn what TensorFlow raises where it cannot write into a FileError; for child processes."""
    import tensorflow as tf

    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        text = str(getattr(error, "message", error)).splitlines()[0].rpartition("; ")[2][:200]
        raise FileError("model-not-resaved", source=folder, reason=text) from None


def input_name(place: int) -> str:
    """Return the name of an input in the signature that a child writes."""
    return f"input_{place}"


def named_outputs(tensors: Iterable[Any]) -> dict[str, Any]:
    """Return the outputs by their names in the signature that a child writes."""
    return {f"output_{place}": tensor for place, tensor in enumerate(tensors)}


def _legal(names: Sequence[str]) -> list[str]:
    """Return names that nodes can bear, no two of them alike: `x`, `x_1`, ..."""
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
    """Let the signature have the user's names in place of those that a child writes."""
    signature = meta.signature_def[DEFAULT_SIGNATURE]
    for infos, names, prefix in (
        (signature.inputs, interface.inputs, "input"),
        (signature.outputs, interface.outputs, "output"),
    ):
        found = [infos[f"{prefix}_{place}"].SerializeToString() for place in range(len(names))]
        infos.clear()
        for name, content in zip(names, found, strict=True):
            infos[name].MergeFromString(content)


def _shorten_names(graph: Graph) -> None:
    """Take the calls of the signature off the names of the nodes where that leaves them unlike."""
    names: dict[str, str] = {}
    taken = {node.name for node in graph}
    for node in graph:
        short = _CALLS.sub("", node.name, count=1) if _CALLS.match(node.name) else ""
        if short and short not in taken:
            taken.add(short)
            names[node.name] = short
    rename(graph, names)
