"""The parts of the GPU benchmark: each measures one row, and returns its figures by name."""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import deploykit
from deploykit.benchmarking.measurement import Job, Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.rounds import candidates_of, measure
from deploykit.benchmarking.run_config import FEED, RESIDENT, RunConfig
from deploykit.benchmarking.statistics import summary
from deploykit.importers.open_model import open_model
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.runtime.child_process import call

PHOTOS, CLASSES, WIDTH, HEIGHT = 400, 2, 640, 480
STYLES_BATCH, LONG_BATCH = 64, 128
LONG = 15.0  # times the seconds of a measurement
FASHION = Path(__file__).parents[2] / "models" / "fashion"
EMULATED = "/CPU:0", "/CPU:1"


def precision(model: Path, kind: str, batch: int, device: str, seconds: float) -> dict[str, Any]:
    """Measure a model in a precision, or compiled by XLA, with its inputs fed and resident."""
    chosen: dict[str, Any] = {"xla": True} if kind == "xla" else {"precision": kind}
    both = [RunConfig(batch, input=each, device=device, **chosen) for each in (FEED, RESIDENT)]
    result = deploykit.benchmark(model, both, seconds=seconds)
    assert isinstance(result, BenchmarkResult)
    fed, resident = result.measurements
    return {
        **_speed("fed", fed),
        **_speed("resident", resident),
        "computed in": fed.facts["precision"],
        **({} if device == "cpu" else
           {"layers on the CPU": sum(fed.facts["layers_on_cpu"].values())}),
        **_use(resident),
        **({"TensorFlow's peak MB": fed.facts["gpu_bytes_peak"][0] / 1e6}
           if fed.facts.get("gpu_bytes_peak") else {}),
    }  # fmt: skip


def input_styles(folder: Path, device: str, seconds: float) -> dict[str, Any]:
    """Measure Lite0 behind feed_dict, queues and tf.data, of photos and of TFRecord of them."""
    photos, records = folder / "photos", folder / "records"
    if not records.exists():
        call("tests.benchmarks.gpu_parts:write_photos", photos)
        deploykit.convert_records(photos, records)
    found: dict[str, Any] = {}
    for data in (photos, records):
        result = deploykit.benchmark(
            folder / "lite0.pb", data=data, input="all", device=device, batch=STYLES_BATCH,
            preprocess="-1..1", seconds=3 * seconds,
        )  # fmt: skip
        for style in result.styles:
            name = f"{style.style}, {data.name}"
            found[f"{name} images/s"] = style.rates.both
            found[f"{name} % of the model alone"] = 100 * style.rates.both / style.rates.compute
            for gpu in style.devices:
                found |= {f"{name} {k}": gpu[k]["mean"] for k in _SHARES if k in gpu}
    return found


def layouts(model: Path, device: str, seconds: float) -> dict[str, Any]:
    """Measure a model as it is, and with its convolutions in NCHW."""
    nhwc = deploykit.load_graph(model)
    nchw = deploykit.transform(nhwc, "convert_layout(to=NCHW)")
    settings = [RunConfig(batch, device=device, input=RESIDENT) for batch in (1, 32)]
    result = deploykit.benchmark({"NHWC": nhwc, "NCHW": nchw}, settings, seconds=2 * seconds)
    assert isinstance(result, BenchmarkResult)
    found: dict[str, Any] = {}
    for each, beside in zip(result.measurements, result.judgements(), strict=True):
        found |= _speed(each.name, each)
        if beside is not None:
            found[f"{each.name} is"] = beside.verdict
    return found


def measure_replicas(model: Path, gpus: Sequence[str], seconds: float) -> dict[str, Any]:
    """Measure a copy of a model on each of two devices beside one, which share calls of it."""
    opened = {"lite0": open_model(model)}
    if len(gpus) == 1:
        raise GraphError("there is one GPU, and two towers need two")
    devices = EMULATED if not gpus else ("/GPU:0", "/GPU:1")
    settings = RunConfig(8, device="all" if gpus else "cpu")
    with candidates_of(opened, [settings], deploykit.BenchmarkInputs()) as (one,):
        several = [
            replace(one, name=name, job=_on(one.job, each))
            for name, each in (("one tower", devices[:1]), ("two towers", devices))
        ]
        result = measure(several, seconds=seconds)
    found = {} if gpus else {"devices": "the CPU, shown twice"}
    for each in result.measurements:
        found |= _speed(each.name, each)
    return found


def long_run(model: Path, device: str, seconds: float) -> dict[str, Any]:
    """Feed a model by tf.data, whose batches lie ready on the GPU, and see how it is used."""
    settings = [RunConfig(LONG_BATCH, device=device, input="tfdata")]
    result = deploykit.benchmark(model, settings, seconds=LONG * seconds)
    assert isinstance(result, BenchmarkResult)
    (found,) = result.measurements
    return {**_speed("tf.data", found), **_use(found)}


def eight_bits(folder: Path, device: str) -> dict[str, Any]:
    """Ask for a model in 8 bits, of whose ops a GPU has none: it has to be refused."""
    made = folder / "fashion.int8.pb"
    if not made.exists():
        found = deploykit.quantize(FASHION / "fashion.keras", calibration=FASHION / "test_1000.npz")
        deploykit.save_graph(found, made)
    result = deploykit.benchmark(made, device=device, runs=20)
    assert isinstance(result, BenchmarkResult)
    return {**_speed("8 bits, which should have been refused", result.measurements[0])}


def needed(folder: Path, runner: Any) -> None:
    """Do in this process what the parts above do in processes of their own."""
    model = FASHION / "fashion.keras"
    graph = deploykit.optimize(model)
    deploykit.save_graph(graph, folder / "fashion.pb")
    deploykit.benchmark(graph, runs=4)
    sample = np.zeros((1, 28, 28, 1), np.float32)
    job = Job(str(folder / "fashion.pb"), graph.inputs, graph.outputs, ((sample,),), RunConfig())
    runner(job).profile(1)
    write_photos(folder / "photos", 4)
    deploykit.convert_records(folder / "photos", folder / "records")


_SHARES = {
    "utilisation_percent": "% of the time a kernel ran",
    "sm_percent": "% of multiprocessors",
    "tensor_percent": "% of tensor cores",
    "memory_bandwidth_percent": "% of memory bandwidth",
    "power_watts": "W",
}


def _speed(name: str, found: Measurement) -> dict[str, float]:
    figures = summary(found)
    return {
        f"{name} p50 ms": figures.p50,
        f"{name} p99 ms": figures.p99,
        f"{name} items/s": figures.items_per_second,
    }


def _use(found: Measurement) -> dict[str, float]:
    """Return what the GPUs did meanwhile, in the mean of all."""
    gpus: Sequence[Mapping[str, Any]] = found.facts.get("devices", ())
    return {
        words: statistics.fmean(gpu[name]["mean"] for gpu in gpus if name in gpu)
        for name, words in _SHARES.items()
        if any(name in gpu for gpu in gpus)
    }


def _on(job: Job, devices: Sequence[str]) -> Job:
    return replace(job, devices=tuple(devices))


def write_photos(folder: Path, count: int = PHOTOS) -> None:
    """Write made-up photos of some classes, blurred noise; TensorFlow is loaded for it."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as hidden:
        for number in range(count):
            small = random.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), np.uint8)
            photo = tf.cast(tf.image.resize(small, (HEIGHT, WIDTH), "bicubic"), tf.uint8)
            path = Path(hidden, "photos", f"class_{number % CLASSES}", f"{number}.jpg")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tf.io.encode_jpeg(photo, quality=90).numpy())
        Path(hidden, "photos").rename(folder)
