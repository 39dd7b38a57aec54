"""The models of a net that run beside each other: in TensorFlow, and in the peers' own formats."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np

import deploykit as api
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.process_variables import CALLER_THREAD
from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.runtime.child_process import Worker, call
from tests.benchmarks.peers.nets import IN_OPENVINO, IN_PARTS, INT8, Net
from tests.benchmarks.peers.places import ONE, PLACES, Place
from tests.benchmarks.runtimes import environment

OPENVINO = "open_vino"
RUNNER = "deploykit.benchmarking.engines.engine_choice:opened"
CONVERSION = "tests.benchmarks.runtimes.conversion"
CANDIDATES = tuple(
    RunConfig(executor=executor, env=env)
    for executor in (None, "caller")
    for env in ({}, {CALLER_THREAD: "1"})
)
"""How each of TensorFlow's graphs may run: the fastest in a place is taken there (`turns.at_best`).
Threads and concurrency are the place's."""


@dataclass(frozen=True)
class Contestant:
    """A model in a runtime; `settings` where that is TensorFlow, else the module that runs it.

    `candidates` are the settings among which a trial chooses.
    """

    runtime: str
    form: str
    net: Net
    model: Path
    settings: RunConfig | None = None
    module: str = ""
    candidates: tuple[RunConfig, ...] = ()

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return f"{self.runtime} {self.form}"

    @property
    def is_peer(self) -> bool:
        """Whether a runtime of others runs it, not TensorFlow."""
        return self.settings is None

    @property
    def is_ours(self) -> bool:
        """Whether it is a graph of ours in 8 bits."""
        return self.form == IN_OPENVINO or (not self.is_peer and self.form in self.net.ours)

    @property
    def is_int8(self) -> bool:
        """Whether it is in 8 bits."""
        return self.is_ours or self.form.startswith(INT8)

    def in_place(self, place: Place) -> RunConfig:
        """Return how TensorFlow runs it in a place."""
        assert self.settings is not None
        if self.form == IN_PARTS:  # these run side by side
            threads = (1, place.threads)
            return replace(self.settings, threads=threads, concurrency=place.in_flight)
        each = place.threads // place.in_flight
        return replace(self.settings, threads=(each, place.in_flight), concurrency=place.in_flight)

    def how(self, place: Place, process: Worker | environment.Process) -> str:
        """Return how it is set in a place, in words; `process` runs it there."""
        return process.ask("settings") if self.is_peer else str(self.in_place(place))

    def started(self, place: Place) -> Worker | environment.Process:
        """Return a process that runs it."""
        net = self.net
        if self.is_peer:
            shape = (place.batch, place.threads, place.in_flight)
            return environment.Process(self.module, "run", self.model, net.samples, *shape)
        with np.load(net.samples) as samples:
            feeds = tuple(samples[name][: place.batch] for name in net.inputs)
        settings = self.in_place(place)
        job = Job(str(self.model), net.inputs, (net.output,), (feeds,), settings)
        return Worker(RUNNER, job, forced=settings.environment)

    def outputs(self) -> np.ndarray:
        """Return what it gives for the net's samples."""
        net = self.net
        if not self.is_peer:
            return call(f"{__name__}:outputs_of", self.model, net.inputs, net.output, net.samples)
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "outputs.npy")
            with contextlib.closing(self.started(ONE)) as process:
                process.ask("outputs", str(target))
            return np.load(target)


def outputs_of(model: Path, inputs: tuple[str, ...], output: str, samples: Path) -> np.ndarray:
    """Return what TensorFlow gives for samples; this is done in a child process."""
    from deploykit.transforms.runtime.session import Session

    with np.load(samples) as arrays:
        feeds = {name: arrays[name] for name in inputs}
    return Session(model.read_bytes()).run([output], feeds)[0]


def in_tensorflow(net: Net) -> Iterator[Contestant]:
    """Yield the graph as it comes, optimized, and in 8 bits."""
    runtime = f"TF {metadata.version('tensorflow')}"
    optimized = net.file("optimized.pb")
    api.save_graph(api.optimize(api.load_graph(net.model)), optimized, force=True)
    on_onednn = tuple(replace(each, onednn=True) for each in CANDIDATES)
    for form, model in (("float", net.model), ("optimized", optimized)):
        yield Contestant(runtime, form, net, model, on_onednn[0], candidates=on_onednn)
    for form in net.ours:
        # Parts run side by side, which the executor "caller" prevents.
        fit = tuple(each for each in CANDIDATES if form != IN_PARTS or each.executor is None)
        yield Contestant(runtime, form, net, net.in_8_bits(form), fit[0], candidates=fit)


def in_float(net: Net) -> Iterator[Contestant]:
    """Yield the float model of each peer; one that cannot be installed is left out, said."""
    if runtime := _installed("TFLite", "ai-edge-litert"):
        plain = net.file("tflite")
        for batch in {place.batch for place in PLACES}:
            how = (str(net.model), net.shapes(batch), net.output, f"{plain}.b{batch}")
            call(f"{CONVERSION}:to_tflite", *how)
        yield Contestant(runtime, "float", net, plain, module="tflite")
    if runtime := _installed("ONNX Runtime", "onnxruntime", "onnx", "tf2onnx"):
        plain = net.file("onnx")
        packages = str(environment.packages_folder())
        call(f"{CONVERSION}:to_onnx", str(net.model), net.inputs, net.output, packages, str(plain))
        yield Contestant(runtime, "float", net, plain, module="onnx_runtime")
    if runtime := _installed("OpenVINO", "openvino", "nncf"):
        yield Contestant(runtime, "float", net, net.model, module=OPENVINO)


def _installed(name: str, *packages: str) -> str:
    """Install a peer and return its name and version; nothing, if that is not possible."""
    if reason := environment.install(packages):
        print(f"{name} is left out: pip cannot install {' '.join(packages)}: {reason}")
        return ""
    return f"{name} {environment.versions()[packages[0]]}"
