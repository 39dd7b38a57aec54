"""A server and its callers on the same cores, beside the bare session: what serving costs.

Every ratio is of one run: each round has a turn of each cell, and ratios are taken round by round.
"""

import contextlib
import tempfile
import time
from pathlib import Path

import numpy as np

from deploykit.serving.protocol.codec import decode, encode
from deploykit.serving.protocol.protos import TensorProto
from deploykit.serving.protocol.signatures import read_meta_graph, signatures_of
from deploykit.serving.server.settings import cores
from deploykit.transforms.runtime.child_process import Worker, call
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import made_by
from tests.benchmarks.served import (
    answered,
    apart,
    flooded,
    latency,
    needs_h2load,
    per_second,
    probed,
    request,
    serving,
    slow_percentile,
    slowest,
)
from tests.serving.served import free_port

PARTS = "lite0", "added", "tiny", "codec", "overload"
ROUNDS, SECONDS = 3, 4.0
CALLS = 300
PROBES = 40  # a second
REST = 0.002  # seconds; a core that was idle computes slower at first
IMAGE, SMALL, ROW = (1, 224, 224, 3), (1, 96, 96, 3), (1, 32)

MANY = "--max_in_flight=256"
SHORT_QUEUE = "--max_queue_wait_ms=1"

OF_BARE, CHOICE, ADDED = 0.92, 1.15, 1.0
WORKERS, QUEUE, ALONE = 1.6, 1.6, 0.95
CODEC = 50.0  # microseconds
GOODPUT, ACCEPTED, REFUSAL, RECOVERY = 0.9, 2.0, 10.0, 1000.0


def figures(part: str = "") -> list[Figure]:
    """Measure a conv net, a tiny one, and the codec, or what is named."""
    needs_h2load()
    parts = {"lite0": _lite0, "added": _added, "tiny": _tiny, "codec": _codec,
             "overload": _overload}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        names = [part] if part else PARTS
        return [figure for name in names for figure in parts[name](Path(folder))]


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


def mlp(name: str, width: int, layers: int = 1) -> Path:
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


def small_conv_net() -> Path:
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
    _export(lite0(), base, "lite0")
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
    _export(small_conv_net(), base, "conv")
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
    _export(mlp("tiny", 64), base, "tiny")
    _export(mlp("wide", 2048), base, "wide")
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
    """Send four times what two nets can answer on half of the cores, from the other half."""
    _export(mlp("deep", 2048, 20), base, "deep")
    _export(mlp("deeper", 2048, 60), base, "deeper")
    return [
        *_flood(base, "deep", "20 layers of 17 MB"),
        *_flood(base, "deeper", "60 layers of 17 MB"),
    ]


def _flood(base: Path, name: str, what: str) -> list[Figure]:
    found: dict[str, list[float]] = {}
    port, page = free_port(), base / "monitoring"
    page.write_text("prometheus_config { enable: true }")
    body = request(name, "x", np.random.default_rng(0).random(ROW, np.float32))
    flags = f"--rest_api_port={port}", f"--monitoring_config_file={page}", SHORT_QUEUE
    with apart() as move, serving(base, [name], *flags) as server:
        callers = cores() + 1  # one in each slot, and one waits: h2load would count refusals, too
        move()
        for _ in range(ROUNDS):
            alone = slow_percentile(server, body, CALLS)
            before = per_second(server, body, callers, SECONDS)
            with flooded(server, body, 4 * before, SECONDS + 2):
                time.sleep(1)
                count, start = answered(port), time.monotonic()
                accepted, refused = probed(server, body, PROBES, SECONDS)
                goodput = (answered(port) - count) / (time.monotonic() - start)
            after = slowest(server, body, 100)
            again = per_second(server, body, callers, SECONDS)
            for key, value in (
                ("capacity", before),
                ("goodput", 2 * goodput / (before + again)),
                ("accepted", float(np.percentile(accepted, 99)) / alone),
                ("refusal", float(np.percentile(refused, 99))),
                ("slowest after", after),
            ):
                found.setdefault(key, []).append(value)
    capacity = f"4 times the capacity of {what} ({np.median(found['capacity']):.0f} answers/s)"
    return [
        Figure(f"{capacity}: answers, of the capacity", "x", found["goodput"], at_least=GOODPUT),
        Figure(f"{capacity}: accepted requests, 99 %, of one caller's", "x", found["accepted"],
               at_most=ACCEPTED),
        Figure(f"{capacity}: refusals, 99 %", "ms", found["refusal"], at_most=REFUSAL),
        Figure(f"{capacity}: the slowest call right after", "ms", found["slowest after"],
               at_most=RECOVERY),
    ]  # fmt: skip


def _codec(_: Path) -> list[Figure]:
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
