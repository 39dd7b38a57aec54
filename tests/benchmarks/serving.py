"""A server and its callers on the same cores, beside the bare session: what serving costs.

Every ratio is of one run: each round has a turn of each cell, and ratios are taken round by round.
"""

import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.serving.protocol.codec import decode, encode
from deploykit.serving.protocol.protos import TensorProto
from deploykit.serving.protocol.signatures import read_meta_graph, signatures_of
from deploykit.transforms.core.running.child import Worker, call
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import made_by
from tests.benchmarks.served import Server, latency, needs_h2load, per_second, request, serving

ROUNDS, SECONDS = 3, 4.0
CALLS = 300
REST = 0.002  # seconds; a core that was idle computes slower at first
IMAGE, SMALL, ROW = (1, 224, 224, 3), (1, 96, 96, 3), (1, 32)

MANY = "--max_in_flight=256"

OF_BARE, CHOICE, ADDED = 0.92, 1.15, 1.0
WORKERS, QUEUE, ALONE = 1.6, 1.6, 0.95
CODEC = 50.0  # microseconds
GOODPUT, REFUSAL, RECOVERY = 0.9, 20.0, 1000.0


def figures() -> list[Figure]:
    """Measure a conv net, a tiny one, and the codec."""
    needs_h2load()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        _export(lite0(), base, "lite0")
        _export(_small_conv_net(), base, "conv")
        _export(_mlp("tiny", 64), base, "tiny")
        _export(_mlp("wide", 2048), base, "wide")
        _export(_mlp("deep", 2048, 20), base, "deep")
        _export(_mlp("deeper", 2048, 60), base, "deeper")
        return [*_lite0(base), *_added(base), *_tiny(base), *_codec(),
                *_overload(base)]  # fmt: skip


def lite0() -> Path:
    """Return EfficientNet-Lite0, folded."""
    optimized = RESULTS / "models" / "EfficientNet-Lite0.optimized.pb"
    if not optimized.exists():
        source = made_by("efficientnet_lite0/build.py") / "frozen.pb"
        optimized.parent.mkdir(parents=True, exist_ok=True)
        run(deploykit("optimize", str(source), "-o", str(optimized)))
    return optimized


def _export(model: Path, base: Path, name: str) -> None:
    run(deploykit("export", str(model), str(base), "--name", name))


def _mlp(name: str, width: int, layers: int = 1) -> Path:
    path = RESULTS / "models" / f"mlp-{name}.pb"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        call("tests.benchmarks.serving:write_mlp", str(path), width, layers)
    return path


def write_mlp(path: str, width: int, layers: int) -> None:
    """Write a net whose inner layers share random weights; this is done in a child process."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        hidden = tf1.placeholder(tf.float32, [None, ROW[1]], "x")
        first, inner, last = (
            tf.constant(random.normal(0, 0.05, shape).astype(np.float32))
            for shape in ((ROW[1], width), (width, width), (width, 10))
        )
        for weights in (first, *[inner] * layers):
            hidden = tf.nn.relu(tf.matmul(hidden, weights))
        tf.matmul(hidden, last, name="y")
        Path(path).write_bytes(graph.as_graph_def().SerializeToString())


def _small_conv_net() -> Path:
    """Return MobileNet at half the width, for pictures of 96x96: 110 kB, some 2 ms."""
    path = RESULTS / "models" / "MobileNet-small.pb"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            saved = str(Path(folder) / "net.keras")
            call("tests.benchmarks.serving:write_conv_net", saved)
            run(deploykit("optimize", saved, "-o", str(path)))
    return path


def write_conv_net(path: str) -> None:
    """Save the net with random weights; this is done in a child process."""
    import keras

    keras.applications.MobileNet(input_shape=SMALL[1:], alpha=0.5, weights=None).save(path)


def _lite0(base: Path) -> list[Figure]:
    body = request("lite0", "images", np.random.default_rng(0).random(IMAGE, np.float32))
    version = str(base / "lite0" / "1")
    bare = Worker("tests.benchmarks.served:Bare", version, 1, "images", IMAGE)
    default = ("--tensorflow_intra_op_parallelism=0", "--slots=64")
    found: dict[str, list[float]] = {"bare": [], "ours": [], "default": []}
    with (
        contextlib.closing(bare),
        serving(base, ["lite0"]) as ours,
        serving(base, ["lite0"], *default) as theirs,
    ):
        bare.ask("latency", 20)
        for _ in range(ROUNDS):
            found["bare"].append(bare.ask("per_second", 2, SECONDS))
            found["ours"].append(per_second(ours, body, 8, SECONDS))
            found["default"].append(per_second(theirs, body, 8, SECONDS))
    return [
        _at_least("Lite0, 8 callers, beside the best bare session (2 threads, intra=1)",
                  found["ours"], found["bare"], OF_BARE),
        _at_least("Lite0, 8 callers, beside TensorFlow's default threads", found["ours"],
                  found["default"], CHOICE),
    ]  # fmt: skip


def _added(base: Path) -> list[Figure]:
    """Measure what one caller of a small conv net waits for beside the session."""
    version = base / "conv" / "1"
    (alias,) = signatures_of(read_meta_graph(version))["serving_default"].inputs
    body = request("conv", alias, np.random.default_rng(0).random(SMALL, np.float32))
    bare = Worker("tests.benchmarks.served:Bare", str(version), 1, alias, SMALL)
    added, rested = [], []
    with contextlib.closing(bare), serving(base, ["conv"]) as server:
        for _ in range(ROUNDS):
            served = latency(server, body, CALLS)
            added.append(served - bare.ask("latency", CALLS))
            rested.append(served - bare.ask("latency", CALLS, REST))
    return [
        Figure("a small conv net, 1 caller: added to the bare session's median", "ms", added,
               at_most=ADDED),
        Figure("the same, beside a bare session that rests 2 ms between calls", "ms", rested),
    ]  # fmt: skip


def _tiny(base: Path) -> list[Figure]:
    """Measure processes, and batches of a tiny net and of one that reads 17 MB of weights."""
    row = np.random.default_rng(0).random(ROW, np.float32)
    found: dict[str, list[float]] = {}
    names = ["tiny", "wide"]
    with (
        serving(base, names, MANY) as one,
        serving(base, names, MANY, "--workers=2") as two,
        serving(base, names, MANY, "--enable_batching") as batching,
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


def _overload(base: Path) -> list[Figure]:
    """Send four times what two nets can answer, whether others are answered or not."""
    data = base / "row.npz"
    np.savez(data, x=np.random.default_rng(0).random(ROW, np.float32))
    return [
        *_flood(base, data, "deep", "20 layers of 17 MB"),
        *_flood(base, data, "deeper", "60 layers of 17 MB"),
    ]


def _flood(base: Path, data: Path, name: str, what: str) -> list[Figure]:
    found: dict[str, list[float]] = {}
    with serving(base, [name]) as server:
        for _ in range(ROUNDS):
            before = _load(server, name, data, "--concurrency=8")["throughput"]
            flood = _load(server, name, data, f"--rate={4 * before:g}")
            after = _load(server, name, data, "--concurrency=1")
            again = _load(server, name, data, "--concurrency=8")["throughput"]
            for key, value in (
                ("capacity", before),
                ("goodput", 2 * flood["throughput"] / (before + again)),
                ("refusal", flood["failed_ms"]["p99"]),
                ("slowest after", after["latency_ms"]["max"]),
            ):
                found.setdefault(key, []).append(value)
    capacity = f"4 times the capacity of {what} ({np.median(found['capacity']):.0f} answers/s)"
    return [
        Figure(f"{capacity}: answers, of the capacity", "x", found["goodput"], at_least=GOODPUT),
        Figure(f"{capacity}: refusals, 99 %", "ms", found["refusal"], at_most=REFUSAL),
        Figure(f"{capacity}: the slowest call right after", "ms", found["slowest after"],
               at_most=RECOVERY),
    ]  # fmt: skip


def _load(server: Server, name: str, data: Path, *options: str) -> Any:
    """Return what `deploykit load-test` says of one load."""
    command = deploykit("load-test", server.address, name, "--data", str(data), "--json",
                        "--seconds=5", *options)  # fmt: skip
    return json.loads(run(command).output)["loads"][0]


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
