"""The metadata file `X.pb.json` of a frozen graph `X.pb`."""

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploykit.importers.image_range import expected_from, expected_ranges
from deploykit.storage.files import check_output
from deploykit.storage.resume_file import digest
from deploykit.transforms.common.documents import FORMAT, converted, document, head
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.engines.engines import EngineUse
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import producer_name
from deploykit.transforms.untrusted.files import read_json

logger = logging.getLogger("deploykit")

KIND = "model"
PREDICT = "tensorflow/serving/predict"


@dataclass(frozen=True)
class SignatureNames:
    """A signature of a model: tensors of its graph by the aliases that clients use."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    method: str = PREDICT

    def within(self, graph: Graph) -> "SignatureNames":
        """Return it without tensors that are not inputs or outputs of the graph."""
        inputs, outputs = frozenset(graph.inputs), frozenset(graph.outputs)
        return replace(
            self,
            inputs={k: v for k, v in self.inputs.items() if v in inputs},
            outputs={k: v for k, v in self.outputs.items() if v in outputs},
        )

    def renamed(self, names: Mapping[str, str]) -> "SignatureNames":
        """Return it with renamed tensors."""
        return replace(
            self,
            inputs={k: names.get(v, v) for k, v in self.inputs.items()},
            outputs={k: names.get(v, v) for k, v in self.outputs.items()},
        )


@dataclass(frozen=True)
class About:
    """Metadata of a model besides its nodes, inputs and outputs."""

    signatures: Mapping[str, SignatureNames] = field(default_factory=dict)
    preprocessing: Mapping[str, Any] | None = None
    """Preprocessing of the inputs, as a document in the format of `--preprocess`."""
    labels: Sequence[str] = ()
    """Class names in the order of the scores."""
    photos: Mapping[str, str] = field(default_factory=dict)
    """Expected pixel range of image inputs before the graph was rewritten, such as `0..255
    (the model divides by 255 itself)`; "" if unknown."""
    engine: EngineUse | None = None
    """The engine that the graph was verified with and should run in; see `with_engine`."""
    engine_graph: str = ""
    """Digest of the graph verified with that engine, including its inputs and outputs."""

    def renamed(self, before: Graph, after: Graph) -> "About":
        """Return the metadata for a graph whose inputs and outputs were renamed."""
        names: dict[str, str] = {}
        for old, new in ((before.inputs, after.inputs), (before.outputs, after.outputs)):
            if len(old) == len(new):
                names |= {a: b for a, b in zip(old, new, strict=True) if a != b}
        if not names:
            return self
        signatures = {k: v.renamed(names) for k, v in self.signatures.items()}
        steps = self.preprocessing
        if steps is not None and isinstance(steps.get("inputs"), Mapping):
            inputs = {names.get(name, name): item for name, item in steps["inputs"].items()}
            steps = {**steps, "inputs": inputs}
        # An input that was an inner node before does not receive original images.
        moved = {t for t, new in names.items() if producer_name(new) in before}
        photos = {names.get(t, t): text for t, text in self.photos.items() if t not in moved}
        return replace(self, signatures=signatures, preprocessing=steps, photos=photos)


def about(graph: Graph) -> About:
    """Return the metadata of a graph, restricted to its current inputs and outputs.

    Stored pixel ranges are retained; those of other inputs are derived from the graph. The engine
    is retained only if exactly this graph, with its inputs and outputs, was verified with it.
    """
    known: About = graph.about or About()
    within = {name: item.within(graph) for name, item in known.signatures.items()}
    photos = {tensor: text for tensor, text in known.photos.items() if tensor in graph.inputs}
    photos |= expected_ranges(graph, [tensor for tensor in graph.inputs if tensor not in photos])
    if known.engine is not None and known.engine_graph != _identity(graph):
        known = replace(known, engine=None, engine_graph="")
    return replace(
        known,
        signatures={name: item for name, item in within.items() if item.outputs},
        photos=photos,
    )


def with_engine(graph: Graph, use: EngineUse) -> About:
    """Return the metadata of a graph with the engine that it was verified with."""
    return replace(about(graph), engine=use, engine_graph=_identity(graph))


def sidecar_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a graph's metadata file: `X.pb.json` for `X.pb`."""
    path = Path(path)
    return path.with_name(f"{path.name}.json")


def check_graph_output(path: str | os.PathLike[str], force: bool, *sources: str) -> None:
    """Raise FileError before a long run if its graph could not be written afterwards.

    An existing metadata file is only replaced if deploykit wrote it.
    """
    check_output(path, force, *sources)
    beside = sidecar_path(path)
    if beside.is_dir():
        raise FileError("folder-given", source=beside)
    if not force and beside.exists() and _document(beside) is None:
        raise FileError("sidecar-exists", source=beside)


def sidecar(graph: Graph, sha256: str) -> Iterable[bytes]:
    """Return the contents of the metadata file; `sha256` is that of the graph's file."""
    plain = {
        **head(KIND),
        "sha256": sha256,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        **document(about(graph)),
    }
    return [f"{json.dumps(plain, indent=2)}\n".encode()]


def load_sidecar(path: Path, sha256: str | None) -> tuple[list[str], list[str], About] | None:
    """Read the inputs, outputs and other metadata of a graph's file with this SHA-256.

    The result is None if the metadata file is missing.

    Metadata of other contents of the graph's file is ignored, with a warning. A metadata file
    without a SHA-256 is used, with a warning.
    GraphError: deploykit did not write it in this format.
    """
    beside = sidecar_path(path)
    plain = _document(beside) if beside.is_file() else None
    if plain is None:
        return None
    if plain.get("format") != FORMAT:
        raise GraphError("format-unsupported", source=beside, got=plain.get("format"), known=FORMAT)
    if "sha256" not in plain:
        logger.warning("%s contains no SHA-256, so it may belong to another graph than %s; write "
                       "the graph again", beside, path)  # fmt: skip
    elif plain["sha256"] != sha256:
        logger.warning("%s was written for another %s and is ignored", beside, path)
        return None
    try:
        inputs, outputs = (converted(plain.get(side), list[str]) for side in ("inputs", "outputs"))
        known = converted(plain, About)
        if not all(text == "" or expected_from(text) for text in known.photos.values()):
            raise GraphError("sidecar-invalid", source=beside, name=path.name)
        unique = list(dict.fromkeys(inputs))  # hand-written files may repeat one very often
        return unique, outputs, replace(known, labels=tuple(known.labels))
    except GraphError:
        raise GraphError("sidecar-invalid", source=beside, name=path.name) from None


def _identity(graph: Graph) -> str:
    """Return a digest of a graph with its inputs and outputs."""
    ends = (f"{input_}\n".encode() for input_ in (*graph.inputs, "", *graph.outputs, ""))
    return digest((*ends, *graph.serialized()))


def _document(path: Path) -> dict[str, Any] | None:
    """Return a JSON document of the kind `model`; None for any other file."""
    try:
        plain = read_json(path, "description of a graph")
    except (FileError, GraphError):
        return None
    is_ours = isinstance(plain, dict) and plain.get("kind") == KIND
    return plain if is_ours else None
