"""Versions that OpenVINO computes: y = x / 2 + n, with or without signatures that it cannot."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from deploykit.transforms.engines.engine_folder import write
from deploykit.transforms.engines.engine_manifest import (
    EngineAnswer,
    EngineFolder,
    EngineSignature,
    EngineTensor,
)
from deploykit.transforms.engines.engines import EngineUse
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import GraphDef, SavedModel
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.runtime.differences import FLOAT_BAR
from tests.serving.small_models import half_plus

needs_openvino = pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is missing")
NAME = "serving_default"
X = np.array([[2.0], [-3.0], [5.0]], np.float32)


def graph_def(add: float, *more: Node) -> bytes:
    floats = {"T": DType("float32")}
    nodes = (
        Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(-1, 1)),
        Node.constant("half", np.float32(0.5)),
        Node.constant("more", np.float32(add)),
        Node("product", "Mul", ("x", "half")).with_attrs(**floats),
        Node("y", "AddV2", ("product", "more")).with_attrs(**floats),
        *more,
    )
    proto = GraphDef()
    for node in nodes:
        node.to_proto(into=proto.node.add())
    return proto.SerializeToString()


def content(add: float = 2.0, answered: float | None = None, more: tuple[Node, ...] = ()):
    """Return what lies beside a version; `answered` is added in the answers, if not `add`."""
    tensors = ({alias: EngineTensor(f"{alias}:0", "float32", (-1, 1))} for alias in "xy")
    answers = [
        EngineAnswer(NAME, n, {"x": X[:n]}, {"y": X[:n] / 2 + np.float32(answered or add)})
        for n in (0, 1, 3)
    ]
    return EngineFolder(
        EngineUse("openvino", "2026.4.1"),
        graph_def(add, *more),
        {NAME: EngineSignature(*tensors)},
        answers,
        {NAME: {"y": FLOAT_BAR}},
        {"classify_x_to_y": "it takes tf.Examples", "regress_x_to_y": "it takes tf.Examples"},
    )


def mixed(folder: Path, add: float = 2.0, version: int = 123, **wrong) -> Path:
    """Write a version of which TensorFlow computes two signatures; return its folder."""
    half_plus(folder, add, version)
    path = folder / f"{version:08}"
    write(path, content(add, **wrong))
    return path


def alone(folder: Path, add: float = 2.0, version: int = 123, **wrong) -> Path:
    """Write a version that has one signature, which OpenVINO computes; return its folder."""
    half_plus(folder, add, version)
    path = folder / f"{version:08}"
    saved = path / "saved_model.pb"
    model = SavedModel.FromString(saved.read_bytes())
    for name in ("classify_x_to_y", "regress_x_to_y"):
        del model.meta_graphs[0].signature_def[name]
    saved.write_bytes(model.SerializeToString())
    write(path, content(add, **wrong))
    return path
