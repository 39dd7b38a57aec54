"""What becomes of real networks: batch norms folded, file sizes, the answers for 20 photos.

The peer is the Graph Transform Tool with the transforms that its users were told to give. A batch
norm counts as folded where neither its op is left nor the Mul that it decomposes into. The first of
basic-pitch's normalises a spectrogram that no layer made, and becomes one Mul and one AddV2.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import deploykit as api
from deploykit.storage.arrays import load_data
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.layers.affine import BATCH_NORM_OPS
from deploykit.transforms.runtime.child_process import call
from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import run
from tests.benchmarks.nets import frozen_keras_net, interface_of, made_by

FOLDING = (
    "strip_unused_nodes remove_nodes(op=Identity, op=CheckNumerics) "
    "fold_constants(ignore_errors=true) fold_batch_norms(ignore_errors=true) fold_old_batch_norms"
)
KERAS_NETS = {"MobileNetV2": 52, "ResNet50": 53, "InceptionV3": 94}
LITE0_NORMS, PITCH_NORMS = 49, 3
SMALL = 0.27  # of the frozen float file
ANSWERS, DECIBELS = 19, 23.0


def figures() -> list[Figure]:
    """Take each network through the main job, and through the original tool."""
    lite0 = made_by("efficientnet_lite0/build.py")
    found = []
    for name, norms in KERAS_NETS.items():
        found.append(_folded(name, frozen_keras_net(name), norms))
    found.append(_folded("EfficientNet-Lite0", lite0 / "frozen.pb", LITE0_NORMS))
    with tempfile.TemporaryDirectory() as folder:
        pitch = Path(folder, "pitch.pb")
        frozen = api.freeze(made_by("basic_pitch/fetch.py"))
        api.save_graph(frozen, pitch)
        found.append(_folded("basic-pitch", pitch, PITCH_NORMS, ",".join(frozen.outputs)))
    for name, path in (
        ("ResNet50", frozen_keras_net("ResNet50")),
        ("EfficientNet-Lite0", lite0 / "frozen.pb"),
    ):
        quantized = api.quantize(api.load_graph(path))
        size = sum(map(len, quantized.serialized()))
        found.append(
            Figure(f"{name}: file after quantize", "of float", [size / path.stat().st_size],
                   at_most=SMALL)
        )  # fmt: skip
    return found + _answers(lite0 / "frozen.pb")


def _folded(name: str, path: Path, norms: int, outputs: str = "") -> Figure:
    """Count batch norms that are gone after `optimize`, and after the original tool."""
    inputs, guessed = interface_of(path)
    outputs = outputs or guessed
    frozen = api.load_graph(path, outputs=outputs.split(","))
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "out.pb")
        tool = [sys.executable, "-m", "tests.benchmarks.original_tool"]
        run([*tool, str(path), str(result), inputs, outputs, FOLDING])
        peer = api.load_graph(result, outputs=outputs.split(","))
    count = _muls_per_channel if not _norm_ops(frozen) else _norm_ops
    ours, theirs = (norms - count(graph) for graph in (api.optimize(frozen), peer))
    what = f"{name}: batch norms folded of {norms}"
    return Figure(what, "", [ours], [theirs], at_least=norms)


def _norm_ops(graph: Graph) -> int:
    return sum(node.op in BATCH_NORM_OPS for node in graph)


def _muls_per_channel(graph: Graph) -> int:
    """Return how many decomposed batch norms a graph still holds, each as its Mul."""
    muls = [node for node in graph if node.op == "Mul"]
    constants = ([graph.constant(tensor) for tensor in mul.data_inputs] for mul in muls)
    return sum(any(c is not None and np.prod(c.shape) > 1 for c in pair) for pair in constants)


def _answers(path: Path) -> list[Figure]:
    """Compare the answers for 20 photos of Lite0 with 8-bit weights, ours and the tool's."""
    photos = load_data(made_by("photos/fetch.py"))["images"]
    frozen = api.load_graph(path, outputs=["logits"])
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "out.pb")
        tool = [sys.executable, "-m", "tests.benchmarks.original_tool"]
        run([*tool, str(path), str(result), "images", "logits", f"{FOLDING} quantize_weights"])
        graphs = [frozen, api.quantize(frozen), api.load_graph(result, outputs=["logits"])]
    expected, ours, peer = (
        call("tests.benchmarks.real_models:logits_of", b"".join(graph.serialized()), photos)
        for graph in graphs
    )
    agreed = [float(np.sum(each.argmax(1) == expected.argmax(1))) for each in (ours, peer)]
    noise = [
        float(10 * np.log10(np.sum(expected**2) / np.sum((each - expected) ** 2)))
        for each in (ours, peer)
    ]
    return [
        Figure("Lite0 in 8 bits: the float answers of 20", "", agreed[:1], agreed[1:],
               at_least=ANSWERS),
        Figure("... SQNR of its logits", "dB", noise[:1], noise[1:], at_least=DECIBELS),
    ]  # fmt: skip


def logits_of(content: bytes, photos: np.ndarray) -> np.ndarray:
    """Return the logits for photos; this is done in a child process."""
    from deploykit.transforms.runtime.session import Session

    return Session(content).run(["logits"], {"images": photos})[0]
