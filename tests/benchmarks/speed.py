"""How fast whole networks are: as they come, optimized and quantized, with and without oneDNN.

Measured by `deploykit benchmark` itself. What it prints also goes into docs/benchmarks/results.md,
with the command that made it.
"""

import shlex
import subprocess
from pathlib import Path

import deploykit as api
from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.results import BenchmarkResult, load_result
from deploykit.benchmarking.statistics import summary
from deploykit.benchmarking.tables import machine_line
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.int8 import all_in_8_bits, quantized
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import frozen_keras_net, made_by

OPTIONS = ["--onednn", "both", "--batch", "1", "--seconds", "6"]
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "results.md"


def figures() -> list[Figure]:
    """Measure three networks in four forms each, and write the page."""
    found, sections = [], []
    for name, frozen, calibration in (
        ("EfficientNet-Lite0", made_by("efficientnet_lite0/build.py") / "frozen.pb",
         made_by("pictures/fetch.py") / "calibration.npz"),
        ("ResNet50", frozen_keras_net("ResNet50"), None),
        ("MobileNetV1", frozen_keras_net("MobileNet"), None),
    ):  # fmt: skip
        forms = [str(path) for path in _forms(name, frozen, calibration)]
        output = RESULTS / f"speed.{name}.json"
        run(deploykit("benchmark", *forms, *OPTIONS, "-o", str(output), "--force"))
        result = load_result(output)
        found += [
            Figure(f"{name}: {each.name}", "ms", [summary(each).p50])
            for each in result.measurements
        ]
        sections.append(_section(name, forms, result))
    PAGE.write_text("\n".join([_TOP.format(date=result.started[:10]), *sections, _END]))
    return found


def _forms(name: str, frozen: Path, calibration: Path | None) -> list[Path]:
    """Return the network frozen, optimized, with weights of 8 bits, and all in 8 bits.

    Without data of its kind, a network with random weights is wholly in 8 bits.
    """
    folder = RESULTS / "models"
    found = [folder / f"{name}.{form}.pb" for form in ("float", "optimized", "weights", "int8")]
    subprocess.run(["cp", str(frozen), str(found[0])], check=True)
    run(deploykit("optimize", str(frozen), "-o", str(found[1]), "--force"))
    run(deploykit("quantize", str(frozen), "-o", str(found[2]), "--force"))
    if calibration is not None:
        quantized(frozen, calibration, name)
    else:
        optimized = api.load_graph(found[1])
        (pictures,) = batches(optimized, 8)[0]
        int8 = all_in_8_bits(optimized, {optimized.inputs[0]: pictures})
        api.save_graph(int8, found[3], force=True)
    return found


def _section(name: str, forms: list[str], result: BenchmarkResult) -> str:
    rows = ["| | p50 ms (95 % interval) | p99 ms | items/s | ratio (99.8 % interval) | memory | |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    for each, judgement in zip(result.measurements, result.judgements(), strict=True):
        figures = summary(each)
        low, high = figures.p50_interval or (figures.p50, figures.p50)
        beside = None if judgement is None else judgement.wall
        ratio = (
            "1" if beside is None else f"{beside.value:.2f} ({beside.low:.2f}-{beside.high:.2f})"
        )
        rows.append(
            f"| {each.name} | {figures.p50:.2f} ({low:.2f}-{high:.2f}) | {figures.p99:.2f} | "
            f"{figures.items_per_second:.1f} | {ratio} | {(figures.bytes_peak or 0) >> 20} MiB | "
            f"{figures.verdict.partition(':')[0]} |"
        )
    names = [f"{name}.{Path(path).suffixes[-2][1:]}.pb" for path in forms]
    command = shlex.join(["deploykit", "benchmark", *names, *OPTIONS])
    line = machine_line(result)
    return "\n".join([f"## {name}", "", f"    {command}", "", *rows, "", f"{line}.", ""])


_TOP = """# Speed

Written by `python -m tests.benchmarks speed` on {date}. The models of a table ran interleaved,
each in a separate process. A ratio above 1 is faster than the first line. `weights` stores 8-bit
weights: the file is smaller, and the speed is the same. `int8` of EfficientNet-Lite0 is the result
of `deploykit quantize --calibration`. In the two nets with random weights, every layer that can be
int8 is int8. `int8` uses oneDNN's kernels even if oneDNN is off in TensorFlow.
"""
_END = """## On a GPU

Not run: no GPU.
"""
