"""The commands that open each sort of thing, as they are called on a case."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from deploykit.transforms.ir.protos import SavedModel
from deploykit.transforms.ir.tfrecord import framed
from tests.hostile.graphs import FLOAT, INT32, Type, constant, floats, graph, net, node, placeholder

Arguments = list[object]
SECONDS = 20
ADDRESS = "ADDRESS"
"""In a command line, where a server's own comes."""
LIMITS = ["--timeout", SECONDS]


@dataclass(frozen=True)
class Goods:
    """Sound files beside a case, for the commands that need another thing besides."""

    folder: Path

    @property
    def net(self) -> Path:
        """A small net: x [2, 3] -> out."""
        return self._made("net.pb", net().SerializeToString)

    @property
    def rows(self) -> Path:
        """A net of any number of rows: x [?, 3] -> out."""
        return self._made("rows.pb", rows().SerializeToString)

    @property
    def photos(self) -> Path:
        """A net of photos of 8 by 8: x [?, 8, 8, 3] -> out [?, 3]."""
        return self._made("photos.pb", photos().SerializeToString)

    @property
    def image(self) -> Path:
        """A PNG of 8 by 8."""
        from deploykit.storage.image_files import png

        pixels = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
        return self._made("good.png", lambda: png(pixels))

    @property
    def labels(self) -> Path:
        """What the classes of `photos` are called."""
        return self._made("labels.txt", lambda: b"red\ngreen\nblue\n")

    @property
    def measured(self) -> Path:
        """Something like a result of `benchmark`."""
        return self._made("measured.json", lambda: json.dumps({"results": []}).encode())

    @property
    def arrays(self) -> Path:
        """Arrays for `rows`."""
        path = self.folder / "arrays.npz"
        if not path.exists():
            np.savez(path, x=np.linspace(-1, 1, 300, dtype=np.float32).reshape(100, 3))
        return path

    def _made(self, name: str, make: Callable[[], bytes]) -> Path:
        path = self.folder / name
        if not path.exists():
            path.write_bytes(make())
        return path


def rows():
    """Return a net that takes rows."""
    made = net()
    made.node[0].CopyFrom(placeholder("x", (-1, 3)))
    return made


def photos():
    """Return a net that takes photos."""
    return graph(
        placeholder("x", (-1, 8, 8, 3)),
        constant("axes", np.array([1, 2], np.int32)),
        node("mean", "Mean", "x", "axes", T=Type(FLOAT), Tidx=Type(INT32), keep_dims=False),
        floats("out", "Softmax", "mean"),
    )


def saved_model(made=None, **named: str) -> SavedModel:
    """Return a SavedModel of a graph with one signature, x -> out."""
    saved = SavedModel(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.graph_def.CopyFrom(rows() if made is None else made)
    signature = meta.signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    for side, alias, name in ((signature.inputs, "x", "x:0"), (signature.outputs, "y", "out:0")):
        side[alias].name = named.get(alias, name)
        side[alias].dtype = FLOAT
        side[alias].tensor_shape.dim.add(size=-1)
        side[alias].tensor_shape.dim.add(size=3 if alias == "x" else 4)
    return saved


def example(**features) -> bytes:
    """Return a record with these features."""
    from deploykit.transforms.ir.protos import Example

    made = Example()
    for name, value in features.items():
        if isinstance(value, bytes):
            made.features.feature[name].bytes_list.value.append(value)
        else:
            made.features.feature[name].float_list.value.extend(value)
    return made.SerializeToString(deterministic=True)


def records(count: int = 20) -> bytes:
    """Return a TFRecord file with rows for `rows`."""
    return b"".join(framed(example(x=[float(i), 1.0, 2.0])) for i in range(count))


def _model(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {
        "check": ["check", case, *LIMITS],
        "inspect": ["inspect", case, *LIMITS],
        "optimize": ["optimize", case, "-o", out / "o.pb", *LIMITS],
        "transform": ["transform", "--in_graph", case, "--out_graph", out / "t.pb",
                      "--transforms", "fold_constants", *LIMITS],
        "freeze": ["freeze", case, "-o", out / "f.pb", *LIMITS],
        "quantize": ["quantize", case, "-o", out / "q.pb", "--minimum-size", 1, *LIMITS],
        "verify": ["verify", case, case, *LIMITS],
        "export": ["export", case, out / "served", *LIMITS],
        "label": ["label", goods.image, "--model", case, "--labels", goods.labels, *LIMITS],
        "benchmark": ["benchmark", case, "--runs", 2, *LIMITS],
        "diff": ["diff", case, case, *LIMITS],
        "placement": ["placement", case, *LIMITS],
        "calibrate": ["calibrate", case, "--data", goods.arrays, "-o", out / "r.json", *LIMITS],
        "sensitivity": ["sensitivity", case, "--calibration", goods.arrays, *LIMITS],
        "tune": ["tune", case, "--budget", 0.02, "-o", out / "t.json", *LIMITS],
        "infer": ["infer", case, goods.arrays, out / "answers", *LIMITS],
    }  # fmt: skip


def _served(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return _model(case, goods, out) | {"serve": ["serve", Path(str(case)).parent, "--port", 0]}


def _data(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    model = goods.rows
    return {
        "verify": ["verify", model, model, "--data", case, *LIMITS],
        "accuracy": ["accuracy", model, "--data", case, *LIMITS],
        "optimize": ["optimize", model, "--data", case, "-o", out / "o.pb", *LIMITS],
        "quantize": ["quantize", model, "--calibration", case, "-o", out / "q.pb", *LIMITS],
        "calibrate": ["calibrate", model, "--data", case, "-o", out / "r.json", *LIMITS],
        "benchmark": ["benchmark", model, "--data", case, "--seconds", 0.2, *LIMITS],
        "export": ["export", model, out / "served", "--warmup", case, *LIMITS],
        "records": ["records", "convert", case, out / "records"],
        "infer": ["infer", model, case, out / "answers", *LIMITS],
    }


def _records(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    model = goods.rows
    return {
        "records inspect": ["records", "inspect", case],
        "records verify": ["records", "verify", case],
        "verify": ["verify", model, model, "--data", case, *LIMITS],
        "accuracy": ["accuracy", model, "--data", case, *LIMITS],
        "calibrate": ["calibrate", model, "--data", case, "-o", out / "r.json", *LIMITS],
        "benchmark": [
            "benchmark",
            model,
            "--data",
            case,
            "--seconds",
            0.2,
            "--input",
            "feed",
            *LIMITS,
        ],
        "input write": ["input", "write", case, "--model", model, "-o", out / "i.py"],
        "infer": ["infer", model, case, out / "answers", *LIMITS],
    }


def _image(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    model, folder, steps = goods.photos, Path(str(case)).parent, ["--preprocess", "0..1"]
    return {
        "label": ["label", case, "--model", model, "--labels", goods.labels, *LIMITS],
        "calibrate": ["calibrate", model, "--data", folder, *steps, "-o", out / "r.json", *LIMITS],
        "records": ["records", "convert", folder, out / "records"],
        "verify": ["verify", model, model, "--data", folder, *steps, *LIMITS],
        "infer": ["infer", model, folder, out / "answers", *steps, *LIMITS],
    }


def _dataset(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {
        "records": ["records", "convert", case, out / "records"],
    }


def _preprocess(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    model, image = goods.photos, goods.image
    return {
        "label": ["label", image, "--model", model, "--labels", goods.labels, "--preprocess", case,
                  *LIMITS],
        "calibrate": ["calibrate", model, "--data", goods.folder, "--preprocess", case,
                      "-o", out / "r.json", *LIMITS],
        "freeze": ["freeze", model, "--preprocess", case, "-o", out / "f.pb", *LIMITS],
    }  # fmt: skip


def _result(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {
        "compare": ["compare", case, goods.measured],
        "sensitivity": ["sensitivity", goods.rows, "--calibration", goods.arrays, "--ranges", case,
                        *LIMITS],
        "export": ["export", goods.rows, out / "served", "--manifests", "docker", "--tuned", case,
                   *LIMITS],
        "benchmark": ["benchmark", goods.rows, "--runs", 2, "--tuned", case, *LIMITS],
    }  # fmt: skip


def _labels(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {
        "label": ["label", goods.image, "--model", goods.photos, "--labels", case, *LIMITS],
        "freeze": ["freeze", goods.photos, "--labels", case, "-o", out / "f.pb", *LIMITS],
    }


def _serving(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {"serve": ["serve", Path(str(case)).parent, "--port", 0, "--enable_model_warmup"]}


def _settings(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {"serve": ["serve", "--model_config_file", case, "--port", 0]}


def _asked(case: object, goods: Goods, out: Path) -> dict[str, Arguments]:
    return {"predict": ["predict", ADDRESS, "model", "--input", case, "--timeout", 10]}


COMMANDS: dict[str, Callable[[object, Goods, Path], dict[str, Arguments]]] = {
    "model": _model,
    "served": _served,
    "data": _data,
    "records": _records,
    "image": _image,
    "dataset": _dataset,
    "preprocess": _preprocess,
    "result": _result,
    "labels": _labels,
    "warmup": _serving,
    "settings": _settings,
    "asked": _asked,
}


@functools.cache
def names(opened_as: str) -> list[str]:
    """Return the names of the commands that open a case, without making anything for them."""
    return list(COMMANDS[opened_as]("case", mock.Mock(), Path("out")))


def commands(opened_as: str, case: object, goods: Path, out: Path) -> dict[str, list[str]]:
    """Return the command lines that open a case, by name."""
    made = COMMANDS[opened_as](case, Goods(goods), out)
    return {name: [str(each) for each in line] for name, line in made.items()}
