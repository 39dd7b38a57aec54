"""A trained model becomes a version that TensorFlow Serving loads, with its signatures."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from deploykit.aliases import Callee, callee_of_graph, read_callee
from deploykit.input.samples import open_feeds
from deploykit.interface import Interface
from deploykit.location import locate, model_sha256
from serving.examples import parse_in_front
from serving.export import check_free, check_name, write_version
from serving.protos import SignatureDef
from serving.saved_model import saved_model, signature_def
from serving.signatures import (
    CLASSES,
    CLASSIFY,
    DEFAULT,
    EXAMPLES,
    PREDICT,
    REGRESS,
    RESULTS,
    SCORES,
    Tensor,
    tensor_of,
)
from serving.warmup import FILE as WARM_UP
from serving.warmup import MOST, requests, write_requests
from transforms.core.errors import GraphError
from transforms.core.graph import Graph
from transforms.core.node import Node, producer_name
from transforms.core.tensors import Array, DType

METHODS = {"predict": PREDICT, "classify": CLASSIFY, "regress": REGRESS}
PROVENANCE = "assets.extra/deploykit.json"
FORMAT = 1


@dataclass(frozen=True)
class Exported:
    """A version directory that was written."""

    folder: Path
    name: str
    version: int
    signatures: Mapping[str, SignatureDef]
    warm_up_requests: int
    bytes: int

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "name": self.name,
            "version": self.version,
            "signatures": _described(self.signatures),
            "warm_up_requests": self.warm_up_requests,
        }

    def lines(self) -> list[str]:
        """Return it for people, a line for each signature."""
        return [
            f"{name} ({sides['method']}): {_sides(sides['inputs'])} -> {_sides(sides['outputs'])}"
            for name, sides in _described(self.signatures).items()
        ]


def export(
    model: str | Path | Graph,
    base_dir: str | Path,
    *,
    name: str | None = None,
    version: int | None = None,
    method: str | None = None,
    warmup: str | Path | None = None,
    preprocess: str | None = None,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    tags: Iterable[str] = (),
    signature: str | None = None,
    graph: str | Path | None = None,
    pins: Mapping[str, str] | None = None,
) -> Exported:
    """Write a model as `base_dir/name/version/`, which TensorFlow Serving loads.

    The signature of a SavedModel keeps its name and aliases and becomes the default one; any other
    model gets one that calls inputs and outputs by their names in the graph.

    Args:
        model: what `freeze` reads, or a frozen graph.
        base_dir: the folder of models.
        name: what requests call the model; default: the name of its file or folder.
        version: a number that is not taken; default: the one after the highest there is.
        method: `predict`, `classify` or `regress`: the last two add a signature that takes
            tf.Examples; default: what a SavedModel's signature says, or `predict`.
        warmup: samples, of which up to 1000 are run before the version answers: an `.npz` file of
            arrays by input name, or a folder that `deploykit calibrate` takes.
        preprocess: what becomes of the features of such a folder, a JSON file.
        inputs, outputs, tags, signature, graph, pins: as `freeze` takes them.

    FileError: the version exists, or cannot be written. GraphError: the model cannot be read, or
    its tensors do not suit the method.
    """
    base = Path(base_dir)
    name = check_name(name or _default_name(model))
    check_free(base / name, version)
    interface = Interface(tuple(inputs), tuple(outputs), tuple(tags), signature)
    if isinstance(model, Graph):
        callee = callee_of_graph(interface.put_on(model.copy()), signature)
    else:
        callee = read_callee(model, interface, graph=graph, pins=pins)
    source = _source(model)  # before the graph is changed
    signatures = _signatures(callee, method)
    asked = method if method in signatures else callee.signature
    found = []
    if warmup is not None:
        feeds = _feeds(str(warmup), callee, preprocess)
        made = requests(name, asked, signatures[asked], islice(feeds, MOST))
        found = list(write_requests(made))
    written = saved_model(callee.graph, signatures)
    document = {
        "format": FORMAT,
        "kind": "export",
        "source": source,
        "versions": {each: metadata.version(each) for each in ("deploykit", "tensorflow")},
        "signatures": _described(signatures),
        "warm_up_requests": len(found),
        "saved_model": _digest(written),
    }
    files: dict[str, Iterable[bytes]] = {
        "saved_model.pb": written,
        "variables/": (),  # empty, as TensorFlow writes it: all values are in the graph
        PROVENANCE: [f"{json.dumps(document, indent=2)}\n".encode()],
    }
    if found:
        files[WARM_UP] = found
    folder = write_version(base, name, files, version)
    size = sum(len(piece) for pieces in files.values() for piece in pieces)
    return Exported(folder, name, int(folder.name), signatures, len(found), size)


def _default_name(model: str | Path | Graph) -> str:
    if isinstance(model, Graph):
        return "model"
    location = locate(model)
    path = location.path.absolute()
    if location.kind == "checkpoint" and location.checkpoint is not None:
        return (location.checkpoint.base or path.name).split(".")[0] or path.parent.name
    if location.kind == "saved_model":
        is_version = path.name.isdigit()  # of a model that lies in a folder of its own
        return (path.parent if is_version else path).name
    return path.name.split(".")[0]


def _source(model: str | Path | Graph) -> dict[str, Any]:
    """Return what tells the model that was exported from others."""
    if isinstance(model, Graph):
        return _digest(model.serialized())
    return {"sha256": model_sha256(str(model)), "bytes": locate(model).bytes}


def _digest(pieces: Iterable[bytes]) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
    return {"sha256": digest.hexdigest(), "bytes": size}


def _signatures(callee: Callee, method: str | None) -> dict[str, SignatureDef]:
    """Return the signatures by name; the graph is made to take tf.Examples where it has to."""
    own = METHODS["predict"] if method == "predict" else callee.method
    signatures = {callee.signature: signature_def(own, callee.inputs, callee.outputs)}
    signatures.setdefault(DEFAULT, signatures[callee.signature])
    if method in ("classify", "regress") and own != METHODS[method]:
        if own != PREDICT:
            raise GraphError(
                f"its signature '{callee.signature}' is for {own.rsplit('/', 1)[1]} already, so "
                f"--method {method} cannot be put in front of it"
            )
        chosen = _scored(callee) if method == "classify" else _predicted(callee)
        taken = Tensor(f"{parse_in_front(callee.graph, callee.inputs)}:0", DType("string"), (-1,))
        signatures[method] = signature_def(METHODS[method], {EXAMPLES: taken}, chosen)
    return signatures


def _scored(callee: Callee) -> dict[str, Tensor]:
    """Return the outputs of Classify: classes as strings, scores as floats, [batch, classes]."""
    found = {}
    for alias, dtype in ((CLASSES, "string"), (SCORES, "float32")):
        fitting = _fitting(callee, dtype, alias, ranks=(2,))
        if fitting is not None:
            found[alias] = fitting
    if not found:
        raise GraphError(
            "--method classify takes an output of shape [batch, classes], scores in float32 or "
            f"names as strings; the outputs are: {_said(callee.outputs)}"
        )
    return found


def _predicted(callee: Callee) -> dict[str, Tensor]:
    """Return the output of Regress: one float a sample."""
    found = _fitting(callee, "float32", RESULTS, ranks=(1, 2))
    if found is None or (found.shape is not None and found.shape[1:] not in ((), (1,), (-1,))):
        raise GraphError(
            "--method regress takes an output of one float32 a sample; the outputs are: "
            f"{_said(callee.outputs)}"
        )
    return {RESULTS: found}


def _fitting(callee: Callee, dtype: str, alias: str, ranks: tuple[int, ...]) -> Tensor | None:
    """Return the output of a type and rank: that of the alias, or the only one."""
    fitting = {
        name: each
        for name, each in callee.outputs.items()
        if each.dtype == dtype and (each.shape is None or len(each.shape) in ranks)
    }
    if alias in fitting:
        return fitting[alias]
    if len(fitting) > 1:
        raise GraphError(
            f"{len(fitting)} outputs could be the {alias} of the method: {_said(fitting)}; "
            "name one with --outputs"
        )
    return next(iter(fitting.values()), None)


def _feeds(path: str, callee: Callee, preprocess: str | None) -> Iterable[Mapping[str, Array]]:
    """Return samples by alias, one at a time where the model leaves that open."""
    if callee.method != PREDICT:
        raise GraphError(
            f"its signature '{callee.signature}' takes tf.Examples, of which --warmup makes none"
        )
    fed = Graph()
    for alias, tensor in callee.inputs.items():
        placeholder = Node(producer_name(alias), "Placeholder")
        placeholder = placeholder.with_attrs(dtype=DType(tensor.dtype), shape=tensor.shape)
        fed.add(placeholder)
    fed.inputs = tuple(callee.inputs)
    sizes = [tensor.shape[0] for tensor in callee.inputs.values() if tensor.shape]
    return open_feeds(path, fed, preprocess, None if max(sizes, default=-1) > 0 else 1)


def _described(signatures: Mapping[str, SignatureDef]) -> dict[str, Any]:
    """Return signatures as plain data; None stands for what is open."""
    return {
        name: {
            "method": signature.method_name,
            **{
                side: {
                    alias: {"dtype": str(tensor.dtype), "shape": _sizes(tensor)}
                    for alias, tensor in sorted((a, tensor_of(i)) for a, i in infos.items())
                }
                for side, infos in (("inputs", signature.inputs), ("outputs", signature.outputs))
            },
        }
        for name, signature in sorted(signatures.items())
    }


def _sizes(tensor: Tensor) -> list[int | None] | None:
    if tensor.shape is None:
        return None
    return [None if size < 0 else size for size in tensor.shape]


def _sides(tensors: Mapping[str, Mapping[str, Any]]) -> str:
    shown = ((alias, each["dtype"], each["shape"]) for alias, each in tensors.items())
    return ", ".join(
        f"{alias} {dtype}{'[?]' if shape is None else _shown(shape)}"
        for alias, dtype, shape in shown
    )


def _shown(shape: list[int | None]) -> str:
    return f"[{', '.join('-' if size is None else str(size) for size in shape)}]"


def _said(tensors: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{alias} ({each.dtype}{_sizes(each)})" for alias, each in tensors.items())
