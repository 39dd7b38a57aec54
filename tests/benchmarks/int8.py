"""8-bit graphs beside float ones: how right, how small and how fast.

All rows of EfficientNet-Lite0 are of the one file that `deploykit quantize --calibration` writes.
Speeds are the float graph's median time over that of ours, round by round, as all run in turn.
What is in 8 bits runs as TensorFlow starts by itself; oneDNN is switched on or off for float alone.
Nets with random weights are in 8 bits throughout: only their speed means something.
"""

import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import deploykit as api
from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.process_variables import CALLER_THREAD
from deploykit.benchmarking.rounds import BenchmarkCandidate, measure, spill
from deploykit.benchmarking.run_config import RunConfig
from deploykit.pipelines.int8 import int8_graph
from deploykit.quantization.accuracy import Evaluator
from deploykit.quantization.calibrated_graph import prepare
from deploykit.quantization.timing.layer_times import with_onednn_kernels
from deploykit.storage.arrays import load_data
from deploykit.transforms.int8.plan import OPS
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.layers import LAYER_OPS
from deploykit.verification.samples import Data, Dataset
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.measuring import Run, deploykit, run
from tests.benchmarks.nets import MODELS, frozen_keras_net, made_by

SECONDS, ROUNDS = 10.0, 20  # of each graph in a place
TO_QUANTIZE = 240
LAYERS, SMALLER, AGREEMENT, DECIBELS, WRONG = 44, 3.4, 95, 24, 1
FASHION_POINTS, NET_POINTS = -0.2, -0.5

ONE = RunConfig(batch=1, threads=(1, 1))
TWO = RunConfig(batch=1, threads=(2, 1), env={CALLER_THREAD: "1"})
EIGHT = RunConfig(batch=8, threads=(2, 1), keep_memory=True)
MANY = replace(EIGHT, batch=32)

Rival = tuple[str, Graph, RunConfig, float]
"""What it is called, a float graph, how it runs, and how many times as fast ours must be."""


def figures() -> list[Figure]:
    """Measure what is asked of trained nets, of random ones for speed, and of a tiny one."""
    return [*lite0(), *random_nets(), *fashion(), *trained_nets()]


def lite0() -> list[Figure]:
    """Quantize EfficientNet-Lite0 once, and judge and measure that file."""
    source = made_by("efficientnet_lite0/build.py") / "frozen.pb"
    pictures, photos = made_by("pictures/fetch.py"), load_data(made_by("photos/fetch.py"))
    taken, said, int8 = quantized(source, pictures / "calibration.npz", "Lite0")
    print(f"Lite0: {said['reason']}")
    unfolded = api.load_graph(source)
    folded = api.optimize(unfolded)
    held_out = Dataset.of(folded, load_data(pictures / "heldout.npz")).feeds()
    with Evaluator(folded, held_out) as judge:
        found = judge.judge(int8)
    with Evaluator(folded, *_labelled(folded, photos)) as judge:
        named = judge.judge(int8)
    before, after = (
        score.value * named.samples if score else 0 for score in (named.before, named.after)
    )
    smaller = _bytes(folded) / _bytes(int8)
    return [
        Figure("Lite0: deploykit quantize", "s", [taken.seconds], at_most=TO_QUANTIZE),
        Figure(f"Lite0: layers in 8 bits, of {_layers(folded)}", "", [_int8_layers(int8)],
               at_least=LAYERS),
        Figure("Lite0: file smaller than folded float", "x", [smaller], at_least=SMALLER),
        Figure(f"Lite0: agreement with float on {found.samples} held-out pictures", "%",
               [100 * (found.agreement or 0)], at_least=AGREEMENT),
        Figure("Lite0: SQNR of logits on them", "dB", [found.sqnr_db], at_least=DECIBELS),
        Figure(f"Lite0: right of {named.samples} labelled photos; float's", "",
               [after], [before], at_least=before - WRONG),
        *faster("Lite0 b1 t1", (int8, ONE), [
            ("folded float, oneDNN on", folded, replace(ONE, onednn=True), 1.4),
            ("folded float, oneDNN off", folded, replace(ONE, onednn=False), 2.0),
        ]),
        *faster("Lite0 b1 t2, caller thread on both sides", (int8, TWO), [
            ("folded float, oneDNN on", folded, replace(TWO, onednn=True), 1.25),
            ("un-folded float, oneDNN on", unfolded, replace(TWO, onednn=True), 1.85),
        ]),
        *faster("Lite0 b8 t2, memory kept on both sides", (int8, EIGHT), [
            ("folded float, oneDNN on", folded, replace(EIGHT, onednn=True), 1.45),
            ("un-folded float, oneDNN on", unfolded, replace(EIGHT, onednn=True), 1.75),
        ]),
        *onednn_kernels(folded),
    ]  # fmt: skip


def onednn_kernels(folded: Graph) -> list[Figure]:
    """Measure float on oneDNN's kernels where TensorFlow itself has oneDNN off."""
    off = RunConfig(batch=1, threads=(2, 1), onednn=False)
    rivals: list[Rival] = [("folded float, oneDNN off", folded, off, 1.3)]
    ours = (with_onednn_kernels(folded), off)
    return faster("Lite0 b1 t2, use_onednn_kernels, oneDNN off", ours, rivals)


def random_nets() -> list[Figure]:
    """Measure ResNet50 and MobileNetV1 with all layers in 8 bits."""
    found = []
    for name, keras_name, cases in (
        ("ResNet50", "ResNet50", ((replace(EIGHT, batch=1), 1.9), (EIGHT, 1.9))),
        ("MobileNetV1", "MobileNet", ((MANY, 2.1),)),
    ):
        folded = api.optimize(api.load_graph(frozen_keras_net(keras_name)))
        (pictures,) = batches(folded, 8)[0]
        int8 = all_in_8_bits(folded, {folded.inputs[0]: pictures})
        for settings, bar in cases:
            rival = ("folded float, oneDNN on", folded, replace(settings, onednn=True), bar)
            what = f"{name} ({_share(int8, folded)}) b{settings.batch} t2"
            found += faster(what, (int8, settings), [rival])
    return found


def fashion() -> list[Figure]:
    """Judge the tiny net of models/fashion, which loses time in 8 bits at batch 1."""
    nets, source = made_by("fashion_nets/build.py"), MODELS / "fashion" / "fashion.keras"
    _, said, _ = quantized(source, nets / "calibration.npz", "fashion")
    print(f"fashion: {said['reason']}")
    folded = api.optimize(api.freeze(source))
    int8 = all_in_8_bits(folded, load_data(nets / "calibration.npz"))
    return [
        Figure("Fashion, b1: quantize keeps float (1: yes)", "",
               [float(said["result"] == "float")], at_least=1),
        _points("Fashion", folded, int8, nets, FASHION_POINTS),
    ]  # fmt: skip


def trained_nets() -> list[Figure]:
    """Judge the nets of models/fashion_nets as the command quantizes them, or wholly in 8 bits."""
    nets, found = made_by("fashion_nets/build.py"), []
    for source in sorted(nets.glob("*.keras")):
        _, said, int8 = quantized(source, nets / "calibration.npz", source.stem)
        print(f"{source.stem}: {said['reason']}")
        folded = api.optimize(api.freeze(source))
        how = "by the command"
        if said["result"] == "float":
            int8 = all_in_8_bits(folded, load_data(nets / "calibration.npz"))
            how = "forced: the command keeps float for speed"
        found.append(_points(f"{source.stem}, {how}", folded, int8, nets, NET_POINTS))
    return found


def quantized(source: Path, calibration: Path, name: str) -> tuple[Run, dict[str, Any], Graph]:
    """Quantize a model by the command; return how that ran, what it says, and its graph."""
    path = RESULTS / "models" / f"{name}.int8.pb"
    path.parent.mkdir(parents=True, exist_ok=True)
    options = ["--calibration", str(calibration), "-o", str(path), "--force", "--json"]
    taken = run(deploykit("quantize", str(source), *options))
    return taken, json.loads(taken.output), api.load_graph(path)


def _labelled(graph: Graph, data: Data) -> tuple[list[dict[str, Array]], Array | None]:
    """Return data as feeds, and their labels."""
    samples = Dataset.of(graph, data)
    feeds = samples.feeds()
    return feeds, samples.labels_of(feeds)


def all_in_8_bits(
    graph: Graph, data: Mapping[str, np.ndarray], form: Callable[[Graph, str], Graph] = int8_graph
) -> Graph:
    """Return an optimized graph with every layer in 8 bits that can be, whatever it costs.

    `form` writes it, for TensorFlow or as codes.
    """
    with tempfile.TemporaryDirectory() as folder:
        ranges = str(Path(folder, "ranges.json"))
        shifted, _ = prepare(graph, Dataset.of(graph, data).feeds(), ranges)
        return form(shifted, ranges)


def faster(what: str, ours: tuple[Graph, RunConfig], rivals: list[Rival]) -> list[Figure]:
    """Return how many times as fast as each rival a graph is; all run in turn."""
    runners = [ours, *((graph, settings) for _, graph, settings, _ in rivals)]
    with tempfile.TemporaryDirectory() as folder:
        candidates = []
        for number, (graph, settings) in enumerate(runners):
            path = Path(folder, f"{number}.pb")
            sha256 = spill(graph, path)
            feeds = batches(graph, settings.batch)
            job = Job(str(path), graph.inputs, graph.outputs, feeds, settings)
            candidates.append(BenchmarkCandidate(str(number), str(path), sha256, job))
        found = measure(candidates, seconds=SECONDS, rounds=ROUNDS).measurements
    medians = [[statistics.median(calls) for calls in each.rounds_ms] for each in found]
    own = f"{what}{_default(found[0].facts, ours[1])}: {statistics.median(medians[0]):.3g} ms"
    return [
        Figure(
            f"{own}; {name}: {statistics.median(theirs):.3g} ms",
            "x",
            [theirs_ms / ours_ms for theirs_ms, ours_ms in zip(theirs, medians[0], strict=True)],
            at_least=bar,
        )
        for (name, _, _, bar), theirs in zip(rivals, medians[1:], strict=True)
    ]


def _default(facts: Mapping[str, Any], settings: RunConfig) -> str:
    """Say that TensorFlow has oneDNN on by itself, where nobody switched it."""
    return " (oneDNN on by default here)" if facts["onednn"] and settings.onednn is None else ""


def _points(what: str, folded: Graph, int8: Graph, nets: Path, bar: float) -> Figure:
    """Return by how many percentage points the accuracy on the test images changes."""
    with Evaluator(folded, *_labelled(folded, load_data(nets / "test.npz"))) as judge:
        found = judge.judge(int8)
    assert found.drop is not None
    how = f"{_share(int8, folded)}, {found.sqnr_db:.1f} dB"
    what = f"{what} ({how}): accuracy change, {found.samples} images"
    return Figure(what, "points", [-100 * found.drop], at_least=bar)


def _share(int8: Graph, folded: Graph) -> str:
    return f"{_int8_layers(int8)} of {_layers(folded)} layers in 8 bits"


def _layers(graph: Graph) -> int:
    return sum(node.op in LAYER_OPS for node in graph)


def _int8_layers(graph: Graph) -> int:
    return sum(node.op in OPS.values() for node in graph)


def _bytes(graph: Graph) -> int:
    return sum(map(len, graph.serialized()))
