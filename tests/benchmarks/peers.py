"""EfficientNet-Lite0 in TFLite, ONNX Runtime and OpenVINO beside TensorFlow: speed and answers.

The peers are installed into a virtual environment of their own. Each quantizes the net by its own
standard recipe, with the same pictures. All models are then run in turn, each in a process of its
own, with the same photos, batch and threads. Speeds are set against TensorFlow's float graph as it
comes, with oneDNN on; the answers of a model in 8 bits against those of its own runtime in float.
"""

import contextlib
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np

import deploykit as api
from deploykit.benchmarking.job import Job
from deploykit.benchmarking.runner import started
from deploykit.benchmarking.settings import Settings
from deploykit.transforms.core.running.child import Worker, call
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import MODELS, made_by
from tests.benchmarks.others import Others
from tests.benchmarks.runtimes import environment

FOLDER = RESULTS / "peers"
CONVERSION = "tests.benchmarks.runtimes.conversion"
# Batch and threads, and how fast our 8 bits must be beside the peers'. At batch 1 on two threads
# nothing is asked beside ONNX Runtime and OpenVINO: they are faster there.
PLACES = {
    "b1 t2": (1, 2, {"TFLite": 1.0}),
    "b1 t1": (1, 1, {"TFLite": 1.0, "ONNX Runtime": 0.95, "OpenVINO": 0.95}),
    "b8 t2": (8, 2, {"TFLite": 1.0, "ONNX Runtime": 0.95, "OpenVINO": 0.95}),
}
ROUNDS, MOST_ROUNDS, SECONDS, RESUME, WARM_UP = 10, 20, 0.5, 0.05, 1.0
QUIET = 0.1  # cores that others keep busy in a round

ONEDNN = Settings(onednn=True, keep_memory=True)
CALLER = replace(ONEDNN, caller_thread=True)


@dataclass(frozen=True)
class Contestant:
    """A model in a runtime; `settings` where that is TensorFlow, else the module that runs it."""

    runtime: str
    form: str
    model: Path
    settings: Settings | None = None
    module: str = ""

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return f"{self.runtime} {self.form}"

    def started(self, batch: int, threads: int, photos: Path) -> Worker | environment.Process:
        """Return a process that runs it."""
        if self.settings is None:
            return environment.Process(self.module, "run", self.model, photos, batch, threads)
        images = np.load(photos)["images"][:batch]
        settings = replace(self.settings, threads=(threads, 1))
        return started(Job(str(self.model), ("images",), ("logits",), ((images,),), settings))

    def logits(self, photos: Path) -> np.ndarray:
        """Return what it gives for photos."""
        if self.settings is not None:
            images = np.load(photos)["images"]
            content = self.model.read_bytes()
            return call("tests.benchmarks.real_models:logits_of", content, images)
        with tempfile.TemporaryDirectory() as folder:
            target = str(Path(folder, "logits.npy"))
            with contextlib.closing(self.started(1, 1, photos)) as process:
                process.ask("logits", target)
            return np.load(target)


Rounds = dict[Contestant, list[list[float]]]


def figures() -> list[Figure]:
    """Prepare all, then run them in turn in three places, and compare their answers."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    photos = made_by("photos/fetch.py")
    calibration = _calibration(photos)
    contestants = [*_in_tensorflow(calibration), *_peers(calibration)]
    found = []
    for place, (batch, threads, asked) in PLACES.items():
        rounds, others = in_turn(contestants, batch, threads, photos)
        found.append(Figure(f"{place}: what others kept busy", "cores", others, at_most=QUIET))
        found += _speeds(place, batch, rounds)
        found += _beside(place, rounds, asked)
    return found + _answers(contestants, photos)


def in_turn(
    contestants: Sequence[Contestant], batch: int, threads: int, photos: Path
) -> tuple[Rounds, list[float]]:
    """Return each one's calls in ms, round by round, and how many cores others kept busy.

    Others' load changes the order, so only the quietest rounds count, and there are more rounds
    where too few were quiet. Caches are cold after the others' turns: the first calls do not count.
    """
    with contextlib.ExitStack() as stack:
        processes = [
            (each, stack.enter_context(contextlib.closing(each.started(batch, threads, photos))))
            for each in contestants
        ]
        for _, process in processes:
            process.ask("run", WARM_UP)
        others = Others(process.pid for _, process in processes)
        taken: list[tuple[float, dict[Contestant, list[float]]]] = []
        while len(taken) < MOST_ROUNDS and sum(load <= QUIET for load, _ in taken) < ROUNDS:
            calls = {}
            others.cores()
            for each, process in processes[:: -1 if len(taken) % 2 else 1]:
                process.ask("run", RESUME)
                calls[each] = [ns / 1e6 for ns in process.ask("run", SECONDS)[0]]
            taken.append((others.cores(), calls))
    taken = sorted(taken, key=lambda each: each[0])[:ROUNDS]
    rounds = {each: [calls[each] for _, calls in taken] for each in contestants}
    return rounds, [load for load, _ in taken]


def _in_tensorflow(calibration: Path) -> Iterator[Contestant]:
    """Yield the graph as it comes, optimized, and in 8 bits."""
    runtime = f"TF {metadata.version('tensorflow')}"
    model, optimized, quantized = (
        FOLDER / f"{name}.pb" for name in ("lite0", "lite0.optimized", "lite0.int8")
    )
    source = made_by("efficientnet_lite0/build.py") / "frozen.pb"
    graph = api.load_graph(source, outputs=["logits"])
    graph.prune()
    api.save_graph(graph, model, force=True)
    api.save_graph(api.optimize(graph), optimized, force=True)
    yield Contestant(runtime, "float", model, ONEDNN)
    yield Contestant(runtime, "float, Eigen", model, replace(ONEDNN, onednn=False))
    yield Contestant(runtime, "optimized", optimized, CALLER)
    if "--calibration" not in run(deploykit("quantize", "--help")).output:
        print("deploykit's own int8 graph is left out: its quantize takes no --calibration yet")
        return
    options = ["--calibration", str(calibration), "-o", str(quantized), "--force"]
    run(deploykit("quantize", str(model), *options))
    yield Contestant(runtime, "int8", quantized, replace(CALLER, onednn=None))


def _peers(calibration: Path) -> Iterator[Contestant]:
    """Yield each peer in float and in 8 bits; one that cannot be installed is left out, said."""
    model, pictures = FOLDER / "lite0.pb", str(calibration)
    if runtime := _installed("TFLite", "ai-edge-litert"):
        plain, small = FOLDER / "lite0.tflite", FOLDER / "lite0.int8.tflite"
        call(f"{CONVERSION}:to_tflite", str(model), str(plain))
        call(f"{CONVERSION}:to_tflite", str(model), str(small), pictures)
        yield Contestant(runtime, "float", plain, module="tflite")
        yield Contestant(runtime, "int8", small, module="tflite")
    if runtime := _installed("ONNX Runtime", "onnxruntime", "onnx", "tf2onnx"):
        plain, small = FOLDER / "lite0.onnx", FOLDER / "lite0.int8.onnx"
        call(f"{CONVERSION}:to_onnx", str(model), str(environment.packages_folder()), str(plain))
        environment.quantize("onnx_runtime", plain, calibration, small)
        yield Contestant(runtime, "float", plain, module="onnx_runtime")
        yield Contestant(runtime, "int8", small, module="onnx_runtime")
    if runtime := _installed("OpenVINO", "openvino", "nncf"):
        small = FOLDER / "lite0.int8.xml"
        environment.quantize("open_vino", model, calibration, small)
        yield Contestant(runtime, "float", model, module="open_vino")
        yield Contestant(runtime, "int8", small, module="open_vino")


def _installed(name: str, *packages: str) -> str:
    """Install a peer and return its name and version; nothing, if that is not possible."""
    if reason := environment.install(packages):
        print(f"{name} is left out: pip cannot install {' '.join(packages)}: {reason}")
        return ""
    return f"{name} {environment.versions()[packages[0]]}"


def _calibration(photos: Path) -> Path:
    """Return pictures to calibrate with: those of models/pictures, else the labelled photos."""
    if (MODELS / "pictures" / "fetch.py").exists():
        made_by("pictures/fetch.py")
        return MODELS / "pictures" / "fetched" / "calibration.npz"
    print("models/pictures is not there: calibrated with the labelled photos, which judge too")
    path = FOLDER / "calibration.npz"
    np.savez(path, images=np.load(photos)["images"])
    return path


def _speeds(place: str, batch: int, rounds: Rounds) -> list[Figure]:
    """Return the images per second of each beside those of the first; the ratio is the speed-up."""
    medians = {each: [float(np.median(calls)) for calls in found] for each, found in rounds.items()}
    rates = {each: [1000 * batch / ms for ms in found] for each, found in medians.items()}
    first = next(iter(rates.values()))
    return [
        Figure(f"{place}: {each.name}, {np.median(medians[each]):.3g} ms", "/s", rate, first)
        for each, rate in rates.items()
    ]


def _beside(place: str, rounds: Rounds, asked: dict[str, float]) -> list[Figure]:
    """Return how fast ours in 8 bits is beside each peer's; above 1, it is faster."""
    found = []
    int8 = [each for each in rounds if each.form == "int8"]
    for ours, peer in itertools.product(int8, int8):
        if ours.settings is not None and peer.settings is None:
            turns = zip(rounds[peer], rounds[ours], strict=True)
            faster = float(np.median([np.median(theirs) / np.median(own) for theirs, own in turns]))
            bar = asked.get(peer.runtime.rpartition(" ")[0])
            what = f"{place}: our int8 / {peer.name}"
            found.append(Figure(what, "x", [faster], at_least=bar))
    return found


def _answers(contestants: Sequence[Contestant], photos: Path) -> list[Figure]:
    """Return how each one's answers in 8 bits differ from those in float of the same runtime."""
    labels, found = np.load(photos)["labels"], []
    for each in contestants:
        if each.form == "int8":
            own = next(e for e in contestants if (e.runtime, e.form) == (each.runtime, "float"))
            exact, logits = own.logits(photos), each.logits(photos)
            top, noise = logits.argmax(1), np.sum((logits - exact) ** 2)
            decibels = 10 * np.log10(np.sum(exact**2) / noise)
            right = [float(np.sum(found.argmax(1) == labels)) for found in (logits, exact)]
            found += [
                Figure(f"{each.name}: SQNR of logits", "dB", [float(decibels)]),
                Figure(f"... answers as in float, of {len(labels)}", "",
                       [float(np.sum(top == exact.argmax(1)))]),
                Figure("... right answers, and those in float", "", right[:1], right[1:]),
            ]  # fmt: skip
    return found
