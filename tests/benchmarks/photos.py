"""EfficientNet-Lite0 served by tensors, by pixels and by photo files, beside the bare session.

Server and callers share the cores. Every ratio is of one round, in which each cell has a turn; the
bare session computes tensors, so for files it does less than the server.
"""

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import psutil

from deploykit.serving.protocol.protos import PredictRequest
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker, call
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.int8 import quantized
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import made_by
from tests.benchmarks.served import Server, needs_h2load, per_second, request, serving
from tests.benchmarks.serving import lite0

ROUNDS, SECONDS, CALLERS = 5, 5.0, 8
SIZE = 224
RANGE = "-0.9921875..1"  # (x - 127) / 128
BARS = {"float": {"pixels": 0.95, "files": 0.82}, "int8": {"files": 0.84}}


def figures() -> list[Figure]:
    """Measure the float model and the 8-bit one."""
    needs_h2load()
    photo = sorted(made_by("photos/fetch.py").parent.glob("*.jpg"))[0]
    pixels, content = call("tests.benchmarks.photos:prepared", str(photo))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, model in (("float", lite0()), ("int8", int8())):
            base = Path(folder, name)
            run(deploykit("export", str(model), str(base), "--name", name, "--preprocess", RANGE))
            found += _of_model(base, name, pixels, content)
    return found


def prepared(path: str) -> tuple[Array, bytes]:
    """Return a photo at the model's size, and a JPEG of it; this is done in a child process."""
    import tensorflow as tf

    image = tf.io.decode_jpeg(Path(path).read_bytes(), 3)
    small = tf.cast(tf.image.resize(image, (SIZE, SIZE), antialias=True), tf.uint8)
    return small.numpy(), tf.io.encode_jpeg(small, quality=90).numpy()


def int8() -> Path:
    path = RESULTS / "models" / "Lite0.int8.pb"
    if not path.exists():
        source = made_by("efficientnet_lite0/build.py") / "frozen.pb"
        quantized(source, made_by("pictures/fetch.py") / "calibration.npz", "Lite0")
    return path


def _of_model(base: Path, name: str, pixels: Array, content: bytes) -> list[Figure]:
    tensors = np.random.default_rng(0).random((1, SIZE, SIZE, 3), np.float32)
    bodies: Mapping[str, PredictRequest] = {
        "tensors": request(name, "images", tensors),
        "pixels": request(name, "pixels", pixels[np.newaxis]),
        "files": request(name, "bytes", np.array([content], object)),
    }
    bodies["tensors"].model_spec.signature_name = "tensors"
    bodies["pixels"].model_spec.signature_name = "pixels"
    version = str(base / name / "1")
    bare = Worker("tests.benchmarks.served:Bare", version, 1, "images", tensors.shape, "tensors")
    rates: dict[str, list[float]] = {cell: [] for cell in ("bare", *bodies)}
    spent: dict[str, list[float]] = {cell: [] for cell in bodies}
    with contextlib.closing(bare), serving(base, [name]) as server:
        for _ in range(ROUNDS):
            rates["bare"].append(bare.ask("per_second", 2, SECONDS))
            for cell, body in bodies.items():
                rate, milliseconds = _measured(server, body)
                rates[cell].append(rate)
                spent[cell].append(milliseconds)
    figures = []
    for cell, body in bodies.items():
        ratios = [a / b for a, b in zip(rates[cell], rates["bare"], strict=True)]
        what = f"{name} Lite0 by {cell} ({body.ByteSize() / 1000:.0f} kB), {CALLERS} callers"
        shown = f"({np.median(rates[cell]):.0f} and {np.median(rates['bare']):.0f} answers/s)"
        bar = BARS[name].get(cell)
        figures.append(
            Figure(f"{what}, beside the bare session {shown}", "x", ratios, at_least=bar)
        )
        figures.append(Figure("... CPU of the server for an answer", "ms", spent[cell]))
    return figures


def _measured(server: Server, body: PredictRequest) -> tuple[float, float]:
    """Return answers a second, and CPU milliseconds of the server for one."""
    process = psutil.Process(server.process.pid)
    before = process.cpu_times()
    rate = per_second(server, body, CALLERS, SECONDS)
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    return rate, 1000 * used / (rate * (SECONDS + 1))  # h2load warms up for a second before
