"""The nets that the peers run: float graphs, samples to calibrate and to judge with, and bars.

EfficientNet-Lite0 is trained, and `deploykit quantize` writes its 8-bit graph. The others have
random weights: their graphs are in 8 bits throughout, and show what that costs in speed and noise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import deploykit as api
from deploykit.pipelines.int8 import codes_graph, int8_graph
from deploykit.pipelines.transform import PREPARE_LAYERS, run_steps
from deploykit.storage.arrays import load_data
from deploykit.transforms.ir.graph import Graph
from tests.benchmarks.figures import RESULTS
from tests.benchmarks.int8 import all_in_8_bits
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import MODELS, frozen_encoder, frozen_keras_net, made_by
from tests.benchmarks.peers.places import EIGHT, FLYING, ONE, TWO, Place
from tests.real.encoder import texts

FOLDER = RESULTS / "peers"
TEXTS, JUDGED = 64, 20  # to calibrate with, and to judge with
ON_ONE_THREAD = "ours on one thread"
OVER_TENSORFLOW = "our codes in OpenVINO over ours in TensorFlow"
INT8, IN_PARTS = "int8", "int8 in two parts"
ACCURATE = "int8 at 22 dB"
"""A peer's, but for its noisiest layers in float."""
IN_OPENVINO = "our int8 codes"
"""Our decisions, executed by OpenVINO."""
DECIBELS = 22.0
"""The SQNR that ACCURATE keeps."""

QUANTIZE = {
    INT8: (),
    IN_OPENVINO: ("--engine", "openvino"),
}
"""The options of `deploykit quantize` for each of our graphs."""

Bars = Mapping[Place, Mapping[str, float]]
"""How many times as fast as a peer ours has to be, by its module, or one of the two names above."""


@dataclass(frozen=True)
class Net:
    """A float graph in a file, and arrays by input name in two others, first axis the samples."""

    name: str
    model: Path
    inputs: tuple[str, ...]
    output: str
    calibration: Path
    samples: Path
    kind: str = "convolutional"
    """As the peers' recipes tell nets apart: convolutional or transformer."""
    trained: bool = False
    bars: Mapping[str, Bars] = field(default_factory=dict, hash=False)
    """By what the processor's 8-bit instructions are: vnni or avx2."""
    ours: tuple[str, ...] = (INT8,)
    """Our graphs in 8 bits, of which the last has to keep the bars."""

    def file(self, ending: str) -> Path:
        """Return where a form of it is kept."""
        return FOLDER / f"{self.name}.{ending}"

    def shapes(self, batch: int) -> dict[str, list[int]]:
        """Return the shape of a batch of each input."""
        with np.load(self.samples) as samples:
            return {name: [batch, *samples[name].shape[1:]] for name in self.inputs}

    def in_8_bits(self, form: str) -> Path:
        """Write one of our 8-bit graphs, and return its path."""
        target = self.file(f"{form.replace(' ', '_')}.pb")
        if form == IN_PARTS:
            graph = api.load_graph(self.file(f"{INT8}.pb"), outputs=[self.output])
            api.save_graph(api.transform(graph, f"split_tokens(tensor={self.inputs[0]})"), target,
                           force=True)  # fmt: skip
        elif self.trained:
            self._quantize(target, *QUANTIZE[form])
        else:
            graph = run_steps(api.load_graph(self.model), PREPARE_LAYERS)[0]
            data = load_data(self.calibration)
            feeds = {name: data[name] for name in self.inputs}
            how = codes_graph if form == IN_OPENVINO else int8_graph
            small = all_in_8_bits(graph, feeds, how)
            api.save_graph(small, target, force=True)
        return target

    def _quantize(self, target: Path, *how: str) -> None:
        """Write an int8 graph. RuntimeError: float32 is faster or needed, so nothing is written."""
        options = ["--calibration", str(self.calibration), "-o", str(target), "--force"]
        run(deploykit("quantize", str(self.model), *options, *how))


def lite0() -> Net:
    """Return EfficientNet-Lite0, which is trained, with 20 labelled photos."""
    bars: dict[str, Bars] = {
        "vnni": {
            ONE: {"open_vino": 0.92, "onnx_runtime": 1.0, "tflite": 1.0},
            EIGHT: {"open_vino": 0.9, "onnx_runtime": 1.0, "tflite": 1.0},
            FLYING: {"open_vino": 0.9, "onnx_runtime": 0.95, "tflite": 0.95},
        },
        "avx2": {
            ONE: {"open_vino": 0.95, "onnx_runtime": 0.95, "tflite": 1.0},
            TWO: {"tflite": 1.0},
            EIGHT: {"open_vino": 0.95, "onnx_runtime": 0.95, "tflite": 1.0},
        },
    }
    source = made_by("efficientnet_lite0/build.py") / "frozen.pb"
    return _of_pictures("Lite0", source, "logits", trained=True, bars=bars)


def mobilenet_v2() -> Net:
    """Return MobileNetV2 with random weights."""
    return _of_pictures("MobileNetV2", frozen_keras_net("MobileNetV2"))


def resnet50() -> Net:
    """Return ResNet50 with random weights."""
    bars: Bars = {ONE: {"open_vino": 0.9}, TWO: {"open_vino": 0.65, OVER_TENSORFLOW: 1.51}}
    return _of_pictures("ResNet50", frozen_keras_net("ResNet50"), bars={"vnni": bars})


def encoder() -> Net:
    """Return a MiniLM-like text encoder with random weights, and made-up texts of 128 tokens."""
    graph = api.load_graph(frozen_encoder("bert"), outputs=["embedding"])
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = [FOLDER / f"encoder.{name}.npz" for name in ("calibration", "samples")]
    for file, count, seed in zip(files, (TEXTS, JUDGED), (1, 2), strict=True):
        np.savez(file, **texts(count, seed=seed))
    bars: Bars = {TWO: {ON_ONE_THREAD: 1.3, OVER_TENSORFLOW: 2.26}}
    rest: dict[str, Any] = {"bars": {"vnni": bars}, "ours": (INT8, IN_PARTS)}
    return _written("encoder", graph, *files, kind="transformer", **rest)


NETS: dict[str, Callable[[], Net]] = {
    "lite0": lite0,
    "mobilenet_v2": mobilenet_v2,
    "resnet50": resnet50,
    "encoder": encoder,
}


def _of_pictures(name: str, source: Path, output: str = "", **rest: Any) -> Net:
    """Return a net of pictures; without an output given, that before its Softmax."""
    if not output:
        output = next(n.data_inputs[0] for n in api.load_graph(source) if n.op == "Softmax")
    graph = api.load_graph(source, outputs=[output])
    (name_in_graph,) = graph.inputs
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = []
    for role, found in (("calibration", _pictures()), ("samples", made_by("photos/fetch.py"))):
        data = load_data(found)
        images = {name_in_graph: data.pop("images")}
        files.append(FOLDER / f"{name}.{role}.npz")
        np.savez(files[-1], **images, **data)
    return _written(name, graph, *files, **rest)


def _written(name: str, graph: Graph, calibration: Path, samples: Path, **rest: Any) -> Net:
    """Write a graph as what all forms of a net are made of."""
    graph.prune()
    model = FOLDER / f"{name}.pb"
    api.save_graph(graph, model, force=True)
    (output,) = graph.outputs
    return Net(name, model, tuple(graph.inputs), output, calibration, samples, **rest)


def _pictures() -> Path:
    """Return pictures to calibrate with: those of models/pictures, else the labelled photos."""
    if (MODELS / "pictures" / "fetch.py").exists():
        return made_by("pictures/fetch.py") / "calibration.npz"
    print("models/pictures is not there: calibrated with the labelled photos, which judge too")
    return made_by("photos/fetch.py")
