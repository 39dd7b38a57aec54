"""A trained model becomes a version that TensorFlow Serving loads, with its signatures."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from deploykit.exporting.deployment import Manifests
from deploykit.exporting.named_model import Callee, callee_of_graph, read_callee
from deploykit.exporting.signatures import signatures_for
from deploykit.freezing.interface import Interface
from deploykit.freezing.model_path import locate, model_sha256
from deploykit.input.samples import open_feeds
from deploykit.serving.protocol.protos import SignatureDef
from deploykit.serving.protocol.signatures import PREDICT, described
from deploykit.serving.saved_model.proto import saved_model
from deploykit.serving.saved_model.warmup_requests import FILE as WARM_UP
from deploykit.serving.saved_model.warmup_requests import MOST, requests, write_requests
from deploykit.serving.saved_model.write_version import check_free, check_name, write_version
from deploykit.storage.files import check_output_folder
from deploykit.text.tables import size
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node, producer_name
from deploykit.transforms.core.tensors import Array, DType

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
    manifests: Sequence[Path] = ()

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "name": self.name,
            "version": self.version,
            "signatures": described(self.signatures),
            "warm_up_requests": self.warm_up_requests,
            "manifests": [str(path) for path in self.manifests],
        }

    def lines(self) -> list[str]:
        """Return it for people."""
        found = []
        for name, each in described(self.signatures).items():
            found.append(f"{name} ({each['method']})")
            for side in ("inputs", "outputs"):
                for alias, tensor in each[side].items():
                    found.append(
                        f"  {side[:-1]} {alias}: {tensor['dtype']} {_shown(tensor['shape'])}"
                    )
        if self.manifests:
            found.append(f"written beside it: {', '.join(path.name for path in self.manifests)}")
        warm = f", {self.warm_up_requests} requests to warm up" if self.warm_up_requests else ""
        return [*found, f"{self.folder}: {size(self.bytes)}{warm}"]


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
    manifests: Manifests | None = None,
) -> Exported:
    """Write a model as `base_dir/name/version/`, which TensorFlow Serving loads.

    The signatures of a SavedModel keep their names and aliases; one that is named is kept alone, as
    the default one. Any other model gets one with the names of inputs and outputs in the graph.

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
        manifests: which files that run it elsewhere are written into `base_dir`.

    FileError: the version exists, or cannot be written. GraphError: the model cannot be read, or
    its tensors do not suit the method.
    """
    base = Path(base_dir)
    name = check_name(name or _default_name(model))
    manifests = manifests or Manifests()
    check_output_folder(base / name)
    manifests.check(base)
    check_free(base / name, version)
    interface = Interface(tuple(inputs), tuple(outputs), tuple(tags), signature)
    if isinstance(model, Graph):
        callee = callee_of_graph(interface.put_on(model.copy()), signature)
    else:
        callee = read_callee(model, interface, graph=graph, pins=pins)
    manifests.check_inputs(callee.inputs)
    source = _source(model)  # before the graph is changed
    signatures = signatures_for(callee, method)
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
        "signatures": described(signatures),
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
    number, total = int(folder.name), sum(len(each) for pieces in files.values() for each in pieces)
    beside = manifests.write(base, number) if manifests.kinds or manifests.batching else ()
    return Exported(folder, name, number, signatures, len(found), total, beside)


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


def _shown(shape: Sequence[int | None] | None) -> str:
    if shape is None:
        return "of any shape"
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"
