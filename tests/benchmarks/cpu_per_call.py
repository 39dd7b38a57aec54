"""What a call costs a server in CPU time, with 8 callers on the same cores, beside the session.

The session is called by TensorFlow's own `make_callable` in 2 threads, before and after the server
in each round; CPU time counts what a busy machine does not take from either.
"""

import contextlib
import tempfile
from pathlib import Path

import numpy as np

from deploykit.serving.protocol.signatures import read_meta_graph, signatures_of
from deploykit.transforms.runtime.child_process import Worker
from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.photos import int8
from tests.benchmarks.served import cpu_per_call, needs_h2load, request, sample, serving
from tests.benchmarks.serving import IMAGE, ROW, SMALL, lite0, mlp, small_conv_net

PARTS = "float", "int8", "small"
ROUNDS, SECONDS, CALLERS = 5, 2.0, 8
FLOAT = {"serving_default": 0.92, "pixels": 0.96}
INT8 = {"serving_default": 0.88, "pixels": 0.92}
CONV, TINY = 1.7, 0.62  # ms


def figures(part: str = "") -> list[Figure]:
    """Measure EfficientNet-Lite0 in both forms and two small nets, or what is named."""
    needs_h2load()
    found: list[Figure] = []
    if part in ("", "float"):
        found += _beside("Lite0", lite0(), FLOAT)
    if part in ("", "int8"):
        found += _beside("Lite0 in 8 bits", int8(), INT8)
    if part in ("", "small"):
        for what, model, shape, most in (
            ("a small conv net", small_conv_net(), SMALL, CONV),
            ("a tiny MLP", mlp("tiny", 64), ROW, TINY),
        ):
            (bare, served), _ = _measured(model, "", shape, "serving_default")
            shown = f"{what}: CPU of the server for a call ({np.median(bare):.2f} ms bare)"
            found.append(Figure(shown, "ms", served, at_most=most))
    return found


def _beside(name: str, model: Path, bars: dict[str, float]) -> list[Figure]:
    """Measure a model of photos by floats and by bytes."""
    found = []
    for signature, bar in bars.items():
        preprocess = "" if signature == "serving_default" else "-0.9921875..1"
        (bare, served), size = _measured(model, preprocess, IMAGE, signature)
        ratios = [a / b for a, b in zip(bare, served, strict=True)]
        shown = (f"{name}, {size / 1000:.0f} kB in: CPU of the bare session and of the server "
                 f"({np.median(bare):.2f} and {np.median(served):.2f} ms)")  # fmt: skip
        found.append(Figure(shown, "x", ratios, at_least=bar))
    return found


def _measured(
    model: Path, preprocess: str, shape: tuple[int, ...], signature: str
) -> tuple[tuple[list[float], list[float]], int]:
    """Return the milliseconds of the bare session and of the server, and a request's bytes."""
    bare, served = [], []
    with tempfile.TemporaryDirectory() as folder:
        options = ["--preprocess", preprocess] if preprocess else []
        run(deploykit("export", str(model), folder, "--name", "net", *options))
        version = Path(folder, "net", "1")
        ((alias, tensor),) = signatures_of(read_meta_graph(version))[signature].inputs.items()
        body = request("net", alias, sample(shape, tensor.dtype), signature)
        session = Worker("tests.benchmarks.served:Bare", str(version), 1, alias, shape, signature)
        with contextlib.closing(session), serving(Path(folder), ["net"]) as server:
            for _ in range(ROUNDS):
                first = session.ask("cpu_per_call", 2, SECONDS / 2)
                served.append(cpu_per_call(server, body, CALLERS, SECONDS))
                bare.append((first + session.ask("cpu_per_call", 2, SECONDS / 2)) / 2)
    return (bare, served), body.ByteSize()
