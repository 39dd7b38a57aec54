"""The metadata file `X.pb.json` beside a frozen graph `X.pb`."""

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploykit.importers.image_range import wanted_from, wanted_ranges
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
    """A way to call a model: tensors of its graph, by the names that callers know."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    method: str = PREDICT

    def within(self, graph: Graph) -> "SignatureNames":
        """Return what of it the inputs and outputs of a graph still offer."""
        inputs, outputs = frozenset(graph.inputs), frozenset(graph.outputs)
        return replace(
            self,
            inputs={k: v for k, v in self.inputs.items() if v in inputs},
            outputs={k: v for k, v in self.outputs.items() if v in outputs},
        )

    def renamed(self, names: Mapping[str, str]) -> "SignatureNames":
        """Return it with other names of tensors."""
        return replace(
            self,
            inputs={k: names.get(v, v) for k, v in self.inputs.items()},
            outputs={k: names.get(v, v) for k, v in self.outputs.items()},
        )


@dataclass(frozen=True)
class About:
    """What is known of a model besides its nodes, inputs and outputs."""

    signatures: Mapping[str, SignatureNames] = field(default_factory=dict)
    preprocessing: Mapping[str, Any] | None = None
    """What becomes of data before they are fed: a document as `--preprocess` reads it."""
    labels: Sequence[str] = ()
    """What the classes are called, in the order of the scores."""
    photos: Mapping[str, str] = field(default_factory=dict)
    """In which range the graph wanted photos before it was rewritten, by input, such as `0..255
    (the model divides by 255 itself)`; "" where it did not say."""
    engine: EngineUse | None = None
    """The engine that is to compute the graph, and was found to do it right; see `with_engine`."""
    engine_graph: str = ""
    """Digest of the graph that was found right in it, with its inputs and outputs."""

    def renamed(self, before: Graph, after: Graph) -> "About":
        """Return it for a graph whose inputs and outputs have changed their names."""
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
        # An input that was a node before has moved: there, photos are something else already.
        moved = {t for t, new in names.items() if producer_name(new) in before}
        photos = {names.get(t, t): said for t, said in self.photos.items() if t not in moved}
        return replace(self, signatures=signatures, preprocessing=steps, photos=photos)


def about(graph: Graph) -> About:
    """Return what is known of a graph, as far as it has such inputs and outputs.

    What it was known to want of photos stands; the graph itself is asked about other inputs. An
    engine is known only where this very graph, inputs and outputs included, was found right in it.
    """
    known: About = graph.about or About()
    within = {name: item.within(graph) for name, item in known.signatures.items()}
    photos = {tensor: said for tensor, said in known.photos.items() if tensor in graph.inputs}
    photos |= wanted_ranges(graph, [tensor for tensor in graph.inputs if tensor not in photos])
    if known.engine is not None and known.engine_graph != _identity(graph):
        known = replace(known, engine=None, engine_graph="")
    return replace(
        known,
        signatures={name: item for name, item in within.items() if item.outputs},
        photos=photos,
    )


def with_engine(graph: Graph, use: EngineUse) -> About:
    """Return what is known of a graph and that an engine, which computes it right, is to do so."""
    return replace(about(graph), engine=use, engine_graph=_identity(graph))


def sidecar_path(path: str | os.PathLike[str]) -> Path:
    """Return the file beside a graph's: `X.pb.json` for `X.pb`."""
    path = Path(path)
    return path.with_name(f"{path.name}.json")


def check_graph_output(path: str | os.PathLike[str], force: bool, *sources: str) -> None:
    """Raise FileError now for a graph that could not be written after a long run.

    What lies beside it under the sidecar's name is replaced only where deploykit wrote it.
    """
    check_output(path, force, *sources)
    beside = sidecar_path(path)
    if not force and beside.exists() and _document(beside) is None:
        raise FileError("sidecar-exists", source=beside)


def sidecar(graph: Graph, sha256: str) -> Iterable[bytes]:
    """Return the file that belongs to a graph whose own file has this SHA-256."""
    plain = {
        **head(KIND),
        "sha256": sha256,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        **document(about(graph)),
    }
    return [f"{json.dumps(plain, indent=2)}\n".encode()]


@dataclass(frozen=True)
class _Ends:
    """What of a graph's own is read beside it."""

    inputs: list[str]
    outputs: list[str]


def load_sidecar(path: Path, sha256: str | None) -> tuple[list[str], list[str], About] | None:
    """Return inputs, outputs and what else is known of a graph's file with this SHA-256, if given.

    None: nothing is known.

    What was written for other contents of the graph's file is ignored, with a warning. A file
    without a SHA-256 is used, with a warning.
    GraphError: it cannot be read as what deploykit writes.
    """
    beside = sidecar_path(path)
    plain = _document(beside) if beside.is_file() else None
    if plain is None:
        return None
    if plain.get("format") != FORMAT:
        raise GraphError("format-unsupported", source=beside, got=plain.get("format"), known=FORMAT)
    if "sha256" not in plain:
        logger.warning("%s holds no SHA-256, so it may be of another graph than %s; write the "
                       "graph again", beside, path)  # fmt: skip
    elif plain["sha256"] != sha256:
        logger.warning("%s was written for another %s and is ignored", beside, path)
        return None
    try:
        ends, known = converted(plain, _Ends), converted(plain, About)
        if not all(said == "" or wanted_from(said) for said in known.photos.values()):
            raise GraphError("sidecar-invalid", source=beside, name=path.name)
        return ends.inputs, ends.outputs, replace(known, labels=tuple(known.labels))
    except GraphError:
        raise GraphError("sidecar-invalid", source=beside, name=path.name) from None


def _identity(graph: Graph) -> str:
    """Return a digest of a graph with its inputs and outputs."""
    ends = (f"{input_}\n".encode() for input_ in (*graph.inputs, "", *graph.outputs, ""))
    return digest((*ends, *graph.serialized()))


def _document(path: Path) -> dict[str, Any] | None:
    """Return a JSON document that says it describes a model; None for any other file."""
    try:
        plain = read_json(path, "description of a graph")
    except (FileError, GraphError):
        return None
    is_ours = isinstance(plain, dict) and plain.get("kind") == KIND
    return plain if is_ours else None
