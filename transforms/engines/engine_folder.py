"""The engine folder of a model version: its graph, signatures and expected outputs.

It is the folder `assets.extra/deploykit.engine` of a version, which TensorFlow Serving ignores:
`manifest.json`, `graph.pb` (a frozen GraphDef for the engine), and `answers.pb` (a GraphDef of
constants: inputs, and TensorFlow's outputs for them). A server thus compares the engine on its
machine with TensorFlow's outputs, without TensorFlow.

The manifest contains the SHA-256 of `saved_model.pb` and `variables/variables.index`. A folder
written for other files is not used: the version was replaced, or the folder copied.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploykit.transforms.common.errors import FileError, GraphError, MismatchError, cannot_be
from deploykit.transforms.engines.engine_manifest import (
    EngineFolder,
    check_parts,
    document_of,
    parsed,
)
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array, type_of
from deploykit.transforms.untrusted.file_locks import note
from deploykit.transforms.untrusted.files import read_bytes, read_json, sha256_of
from deploykit.transforms.untrusted.wire import check_growth, decoded

FOLDER = "assets.extra/deploykit.engine"
FORMAT = 1
KIND = "engine"
MAX_ANSWERS = 1 << 30
"""Maximum bytes of outputs; a batch of the largest images takes some ten megabytes."""
SAVED_MODEL, _VARIABLES = "saved_model.pb", "variables/variables.index"
_DESCRIPTION = "assets.extra/deploykit.json"
MANIFEST, _GRAPH, _ANSWERS = "manifest.json", "graph.pb", "answers.pb"
_MAX_TEXT = 16 << 20


def files(
    content: EngineFolder, saved_model: str | None, variables: str | None = None
) -> dict[str, list[bytes]]:
    """Return the chunks of each file by its path in a version's folder.

    `saved_model` and `variables` are the SHA-256 of the version's `saved_model.pb` and
    `variables.index`; None: it has no such file.
    """
    values = _Values()
    stated = document_of(content, values.named)
    answers = values.graph.SerializeToString(deterministic=True)
    digests = {"graph": _digest(content.graph_def), "answers_file": _digest(answers)}
    bound = {SAVED_MODEL: saved_model, _VARIABLES: variables}
    document = {"format": FORMAT, "kind": KIND, "version_files": bound, **digests, **stated}
    written = f"{json.dumps(document, indent=2)}\n".encode()
    results = {_GRAPH: content.graph_def, _ANSWERS: answers, MANIFEST: written}
    return {f"{FOLDER}/{name}": [item] for name, item in results.items()}


def write(version_folder: Path, content: EngineFolder) -> Path:
    """Write the engine folder of a version atomically, and return its path.

    FileError: it exists already, or cannot be written.
    """
    folder = version_folder / FOLDER
    partial = folder.with_name(f".tmp-{uuid.uuid4().hex}")
    note(partial)
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for path, pieces in files(content, *_version_digests(version_folder)).items():
                with (partial / Path(path).name).open("xb") as file:
                    file.writelines(pieces)
                    file.flush()
                    os.fsync(file.fileno())
            if os.path.lexists(folder):  # an empty one would be replaced
                raise FileError("never-replaced", source=folder)
            partial.rename(folder)
    except OSError as error:
        raise cannot_be("written", folder, error) from None
    return folder


def read(version_folder: Path) -> EngineFolder | None:
    """Return the engine folder of a version; None: TensorFlow runs all of the version.

    MismatchError: it was written for another version. GraphError: a file is missing or damaged, a
    newer deploykit wrote it, graph.pb is another file than at the export, or the stored outputs do
    not fit the signatures.
    """
    folder = version_folder / FOLDER
    if not os.path.lexists(folder):
        return None
    manifest = folder / MANIFEST
    try:
        document = read_json(manifest, "manifest of an engine", _MAX_TEXT)
        if not isinstance(document, dict) or document.get("kind") != KIND:
            raise GraphError("manifest-kind", source=manifest, kind=KIND)
        if document.get("format") != FORMAT:
            raise GraphError(
                "engine-format-unsupported",
                source=manifest,
                got=document.get("format"),
                known=FORMAT,
            )
        bound = document.get("version_files")
        if bound is not None:
            _check_bound(manifest, bound, version_folder)
        else:
            _check_exported(manifest, version_folder)
        graph_def = _checked(folder / _GRAPH, document.get("graph"))
        constants = _checked(folder / _ANSWERS, document.get("answers_file"), MAX_ANSWERS)
    except FileError as error:
        raise GraphError("engine-not-whole", reason=error) from None
    with _sound(manifest):
        result = parsed(document, graph_def, _constants(constants))
        check_parts(result, decoded(graph_def, GraphDef))
    return replace(result, is_bound=bound is not None)


def _version_digests(version_folder: Path) -> tuple[str | None, ...]:
    """Return the SHA-256 of the files that a manifest is bound to; None: the file is missing."""
    paths = (version_folder / name for name in (SAVED_MODEL, _VARIABLES))
    return tuple(sha256_of(path) if os.path.lexists(path) else None for path in paths)


def _check_bound(manifest: Path, bound: Any, version_folder: Path) -> None:
    """Raise MismatchError if a manifest was written for other files of a version."""
    for name, here in zip((SAVED_MODEL, _VARIABLES), _version_digests(version_folder), strict=True):
        if not isinstance(bound, Mapping) or name not in bound or bound[name] != here:
            raise MismatchError(
                "engine-for-other-version", manifest=manifest, file=version_folder / name
            )


def _check_exported(manifest: Path, version_folder: Path) -> None:
    """Raise MismatchError if the version was replaced after deploykit 0.1 exported it.

    The manifests of 0.1 have no SHA-256, but the description of the version has.
    """
    path = version_folder / _DESCRIPTION
    document = read_json(path, "description of a version") if path.is_file() else None
    known = document.get("saved_model") if isinstance(document, Mapping) else None
    if isinstance(known, Mapping):
        _check_bound(manifest, {SAVED_MODEL: known.get("sha256"), _VARIABLES: None}, version_folder)


@contextlib.contextmanager
def _sound(manifest: Path) -> Iterator[None]:
    """Convert errors of parsing into a GraphError that names the file."""
    try:
        yield
    except GraphError as error:
        raise error.within(manifest) from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise GraphError("manifest-incomplete", source=manifest) from None


def _checked(path: Path, stated: Any, most: int | None = None) -> bytes:
    """Return a file that the manifest was written with. GraphError: it is another one."""
    content = read_bytes(path) if most is None else read_bytes(path, most)
    if not isinstance(stated, Mapping) or stated.get("sha256") != _digest(content)["sha256"]:
        raise GraphError("engine-file-replaced", source=path)
    try:
        check_growth(content, GraphDef)
    except GraphError as error:
        raise error.within(path) from None
    return content


class _Values:
    """Arrays as the constants of a graph, each stored once."""

    def __init__(self) -> None:
        self.graph = GraphDef()
        self._names: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def named(self, array: Array) -> str:
        """Return the name of the constant with the value of an array."""
        is_text = array.dtype.kind in "OSU"
        content = repr(array.tolist()).encode() if is_text else array.tobytes()
        key = (type_of(array), array.shape, hashlib.sha256(content).digest())
        if key not in self._names:
            self._names[key] = f"value_{len(self._names)}"
            Node.constant(self._names[key], array).to_proto(into=self.graph.node.add())
        return self._names[key]


def _constants(content: bytes) -> dict[str, Array]:
    """Return arrays by name. GraphError: one is damaged, or all take too much memory."""
    nodes = [Node.from_proto(node) for node in decoded(content, GraphDef).node]
    sizes = [math.prod(node.shape) for node in nodes]
    if sum(sizes) > MAX_ANSWERS:  # a broadcast value may declare a huge size
        raise GraphError(
            "too-many",
            what="its file of answers",
            count=sum(sizes),
            unit="values",
            most=MAX_ANSWERS,
        )
    return {node.name: node.value for node in nodes}


def _digest(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
