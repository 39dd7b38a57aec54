"""The sound files that a fuzzer starts from, and the commands that it runs on what it makes."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deploykit.transforms.ir.protos import GraphDef
from tests.hostile import mutations
from tests.hostile.case import written
from tests.hostile.commands import Arguments, Goods, photos, records, rows, saved_model
from tests.hostile.corpus.effects import in_branch
from tests.hostile.corpus.functions import replica
from tests.hostile.corpus.json_files import about
from tests.hostile.corpus.keras_archives import SOUND, whole
from tests.hostile.corpus.npz_files import saved
from tests.hostile.corpus.record_files import folder_of, index
from tests.hostile.corpus.saved_models import variables, with_variable
from tests.hostile.graphs import FLOAT, Type, constant, floats, graph, net, node, placeholder

SECONDS = 10
LIMITS = ["--timeout", SECONDS]


@dataclass(frozen=True)
class Target:
    """One sort of file."""

    name: str
    share: int
    """How often it has its turn."""
    make: Callable[[Path, random.Random], Path]
    """Writes a changed file; returns what is opened."""
    lines: Callable[[object, Goods, Path], dict[str, Arguments]]
    imported: bool = False
    """Whether what is opened is a graph that TensorFlow can be asked about."""


def convolution() -> GraphDef:
    """Return a convolution, a batch norm, a bias, a pool and a dense layer."""
    weights = np.random.default_rng(0).uniform(-1, 1, (3, 3, 3, 4)).astype(np.float32)
    ones = np.ones(4, np.float32)
    statistics = ["scale", "shift", "mean", "variance"]
    return graph(
        placeholder("x", (-1, 8, 8, 3)),
        constant("filter", weights),
        floats("conv", "Conv2D", "x", "filter", strides=[1, 1, 1, 1], padding="SAME"),
        *(constant(each, ones) for each in statistics),
        node("norm", "FusedBatchNormV3", "conv", *statistics, T=Type(FLOAT), U=Type(FLOAT),
             epsilon=0.001, is_training=False),
        floats("bias", "BiasAdd", "norm", "shift"),
        floats("relu", "Relu6", "bias"),
        floats("pool", "MaxPool", "relu", ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1],
               padding="VALID"),
        constant("axes", np.array([1, 2], np.int32)),
        node("average", "Mean", "pool", "axes", T=Type(FLOAT), Tidx=Type(3), keep_dims=False),
        constant("dense", np.ones((4, 5), np.float32)),
        floats("product", "MatMul", "average", "dense", transpose_a=False, transpose_b=False),
        floats("out", "Softmax", "product"),
    )  # fmt: skip


def _bytes(made) -> bytes:
    content: bytes = made.SerializeToString(deterministic=True)
    return content


GRAPHS = [_bytes(each) for each in (net(), rows(), photos(), convolution(), replica(3, 2),
                                    in_branch("/nonexistent"))]  # fmt: skip
SAVED_MODELS = [_bytes(each) for each in (saved_model(), with_variable())]
RECORDS = records(5)


def changed(content: bytes, chance: random.Random, mutate: Callable, *more: object) -> bytes:
    """Return it with one change, or with several."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        content = mutate(content, chance, *more)
    return content


def _graph(folder: Path, chance: random.Random) -> Path:
    content = chance.choice(GRAPHS)
    if chance.random() < 0.1:
        return written(folder, "model.pb", changed(content, chance, mutations.noise))
    return written(folder, "model.pb", changed(content, chance, mutations.message, GRAPHS))


def _saved_model(folder: Path, chance: random.Random) -> Path:
    variables(folder / "1")
    content = changed(chance.choice(SAVED_MODELS), chance, mutations.message, SAVED_MODELS)
    if chance.random() < 0.3:
        content = chance.choice(SAVED_MODELS)
        end = chance.choice(("index", "data-00000-of-00001"))
        path = folder / f"1/variables/variables.{end}"
        path.write_bytes(changed(path.read_bytes(), chance, mutations.noise))
    return written(folder, "1/saved_model.pb", content).parent


def _keras(folder: Path, chance: random.Random) -> Path:
    return written(folder, "model.keras", changed(whole(SOUND), chance, mutations.zipped))


def _records(folder: Path, chance: random.Random) -> Path:
    content, text = RECORDS, json.dumps(index(RECORDS, 5)).encode()
    if chance.random() < 0.5:
        text = changed(text, chance, mutations.document)
    else:
        content = changed(content, chance, mutations.records)
        text = json.dumps(index(content, 5)).encode() if chance.random() < 0.7 else text
    return folder_of(folder, content, text)


def _npz(folder: Path, chance: random.Random) -> Path:
    content = saved(x=np.ones((9, 3), np.float32))(folder)
    return written(folder, "data.npz", changed(content, chance, mutations.zipped))


def _sidecar(folder: Path, chance: random.Random) -> Path:
    text = changed(json.dumps(about()).encode(), chance, mutations.document)
    written(folder, "model.pb.json", text)
    return written(folder, "model.pb", _bytes(rows()))


def _lines_of_graph(path: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {
        "check": ["check", path, *LIMITS],
        "inspect": ["inspect", path, *LIMITS],
        "optimize": ["optimize", path, "-o", out / "o.pb", *LIMITS],
        "quantize": ["quantize", path, "-o", out / "q.pb", "--minimum-size", 1, *LIMITS],
    }


def _lines_of_model(path: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {"check": ["check", path, *LIMITS], "inspect": ["inspect", path, *LIMITS]}


def _lines_of_records(path: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {
        "records inspect": ["records", "inspect", path],
        "records verify": ["records", "verify", path],
        "calibrate": ["calibrate", goods.rows, "--data", path, "-o", out / "r.json", *LIMITS],
    }


def _lines_of_data(path: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {
        "export": ["export", goods.rows, out / "served", "--warmup", path, *LIMITS],
        "verify": ["verify", goods.rows, goods.rows, "--data", path, *LIMITS],
        "records": ["records", "convert", path, out / "set"],
    }


TARGETS = (
    Target("graph", 12, _graph, _lines_of_graph, imported=True),
    Target("saved_model", 3, _saved_model, _lines_of_model),
    Target("keras", 1, _keras, _lines_of_model),
    Target("records", 3, _records, _lines_of_records),
    Target("npz", 3, _npz, _lines_of_data),
    Target("sidecar", 2, _sidecar, _lines_of_model),
)
