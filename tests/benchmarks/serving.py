"""A server and its callers on the same cores, beside the bare session: what serving costs.

Every ratio is of one run: each round has a turn of each cell, and ratios are taken round by round.
"""

import contextlib
import tempfile
import time
from pathlib import Path

import numpy as np

from serving.codec import decode, encode
from serving.protos import TensorProto
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import made_by
from tests.benchmarks.served import latency, needs_h2load, per_second, request, serving
from transforms.core.child import Worker, call

ROUNDS, SECONDS = 3, 4.0
IMAGE, ROW = (1, 224, 224, 3), (1, 32)

OF_BARE, CHOICE, ADDED = 0.92, 1.15, 1.0
WORKERS, QUEUE, ALONE = 1.6, 1.6, 0.95
CODEC = 50.0  # microseconds


def figures() -> list[Figure]:
    """Measure a conv net, a tiny one, and the codec."""
    needs_h2load()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        _export(lite0(), base, "lite0")
        _export(_mlp("tiny", 64), base, "tiny")
        _export(_mlp("wide", 2048), base, "wide")
        return [*_conv_net(base), *_tiny(base), *_codec()]


def lite0() -> Path:
    """Return EfficientNet-Lite0, folded."""
    optimized = RESULTS / "models" / "EfficientNet-Lite0.optimized.pb"
    if not optimized.exists():
        source = made_by("efficientnet_lite0/build.py") / "frozen.pb"
        run(deploykit("optimize", str(source), "-o", str(optimized)))
    return optimized


def _export(model: Path, base: Path, name: str) -> None:
    run(deploykit("export", str(model), str(base), "--name", name))


def _mlp(name: str, width: int) -> Path:
    path = RESULTS / "models" / f"mlp-{name}.pb"
    if not path.exists():
        call("tests.benchmarks.serving:write_mlp", str(path), width)
    return path


def write_mlp(path: str, width: int) -> None:
    """Write a net of two layers with random weights; this is done in a child process."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        hidden = x = tf1.placeholder(tf.float32, [None, ROW[1]], "x")
        for number, size in enumerate((width, width, 10)):
            weights = random.normal(0, 0.05, (hidden.shape[1], size)).astype(np.float32)
            hidden = tf.matmul(hidden, weights, name=f"layer{number}")
            hidden = tf.nn.relu(hidden, name=f"relu{number}") if size == width else hidden
        tf.identity(hidden, "y")
        Path(path).write_bytes(graph.as_graph_def().SerializeToString())
    assert x is not None


def _conv_net(base: Path) -> list[Figure]:
    body = request("lite0", "images", np.random.default_rng(0).random(IMAGE, np.float32))
    version = str(base / "lite0" / "1")
    one = Worker("tests.benchmarks.served:Bare", version, 1, "images", IMAGE)
    default = ("--tensorflow_intra_op_parallelism=0", "--slots=64")
    found: dict[str, list[float]] = {}
    with (
        contextlib.closing(one),
        serving(base, ["lite0"]) as ours,
        serving(base, ["lite0"], *default) as theirs,
    ):
        one.ask("latency", 20)
        for _ in range(ROUNDS):
            for name, value in (
                ("bare", lambda: one.ask("per_second", 2, SECONDS)),
                ("ours", lambda: per_second(ours, body, 8, SECONDS)),
                ("default", lambda: per_second(theirs, body, 8, SECONDS)),
                ("bare ms", lambda: one.ask("latency", 100)),
                ("ours ms", lambda: latency(ours, body, 100)),
            ):
                found.setdefault(name, []).append(value())
    added = [a - b for a, b in zip(found["ours ms"], found["bare ms"], strict=True)]
    return [
        _at_least("Lite0, 8 callers, beside the best bare session (2 threads, intra=1)",
                  found["ours"], found["bare"], OF_BARE),
        _at_least("Lite0, 8 callers, beside TensorFlow's default threads", found["ours"],
                  found["default"], CHOICE),
        Figure("Lite0, 1 caller: added to the bare session's median", "ms", added, at_most=ADDED),
    ]  # fmt: skip


def _tiny(base: Path) -> list[Figure]:
    """Measure processes, and batches of a tiny net and of one that reads 17 MB of weights."""
    row = np.random.default_rng(0).random(ROW, np.float32)
    found: dict[str, list[float]] = {}
    names = ["tiny", "wide"]
    with (
        serving(base, names) as one,
        serving(base, names, "--workers=2") as two,
        serving(base, names, "--enable_batching") as batching,
    ):
        for _ in range(ROUNDS):
            for name in names:
                body = request(name, "x", row)
                for what, server, callers in (
                    ("one", one, 1), ("one", one, 16), ("one", one, 64), ("two", two, 16),
                    ("batching", batching, 1), ("batching", batching, 64),
                ):  # fmt: skip
                    cell = found.setdefault(f"{name} {what} {callers}", [])
                    cell.append(per_second(server, body, callers, SECONDS))
    figures = []
    for name, what, asked in (
        ("tiny", "a tiny MLP", True), ("wide", "an MLP with 17 MB of weights", False),
    ):  # fmt: skip
        cell = {key.removeprefix(f"{name} "): value for key, value in found.items()
                if key.startswith(name)}  # fmt: skip
        figures += [
            _at_least(f"{what}, 16 callers: 2 workers beside 1", cell["two 16"], cell["one 16"],
                      WORKERS if asked else None),
            _at_least(f"{what}, 64 callers: batches beside none", cell["batching 64"],
                      cell["one 64"], QUEUE if asked else None),
            _at_least(f"{what}, 1 caller: batches beside none", cell["batching 1"], cell["one 1"],
                      ALONE if asked else None),
        ]  # fmt: skip
    return figures


def _codec() -> list[Figure]:
    """Measure 110 kB in and out, in both wire forms."""
    array = np.random.default_rng(0).random(27_648, np.float32)
    found = []
    for as_content, form in ((True, "tensor_content"), (False, "float_val")):
        sent = encode(array, as_content=as_content).SerializeToString()
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(1000):
                decode(TensorProto.FromString(sent), "x")
                encode(array, as_content=as_content)
            times.append((time.perf_counter() - start) * 1000)
        found.append(Figure(f"codec, 110 kB in and out, {form}", "us", times, at_most=CODEC))
    return found


def _at_least(what: str, ours: list[float], peer: list[float], bar: float | None) -> Figure:
    """Return a figure of two rates, of which the first is to be so many times the second."""
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    shown = f"{what} ({np.median(ours):,.0f} and {np.median(peer):,.0f} answers/s)"
    return Figure(shown, "x", ratios, at_least=bar)
