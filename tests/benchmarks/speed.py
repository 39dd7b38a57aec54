"""How fast whole networks are: as they come, optimized and quantized, with and without oneDNN.

Measured by `deploykit benchmark` itself. What it prints also goes into RESULTS.md, with the command
that made it.
"""

import shlex
import subprocess
from pathlib import Path

from deploykit.benchmarking.results import Result, load_result
from deploykit.benchmarking.statistics import summary
from deploykit.benchmarking.tables import machine_line, ratios
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import frozen_keras_net, made_by

OPTIONS = ["--onednn", "both", "--batch", "1", "--duration", "6"]
PAGE = Path(__file__).with_name("RESULTS.md")


def figures() -> list[Figure]:
    """Measure three networks in three forms each, and write the page."""
    found, sections = [], []
    for name, frozen in (
        ("EfficientNet-Lite0", made_by("efficientnet_lite0/build.py") / "frozen.pb"),
        ("ResNet50", frozen_keras_net("ResNet50")),
        ("MobileNetV1", frozen_keras_net("MobileNet")),
    ):
        forms = [str(path) for path in _forms(name, frozen)]
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


def _forms(name: str, frozen: Path) -> list[Path]:
    """Return the network frozen, optimized and with weights of 8 bits."""
    folder = RESULTS / "models"
    found = [folder / f"{name}.{form}.pb" for form in ("float", "optimized", "quantized")]
    subprocess.run(["cp", str(frozen), str(found[0])], check=True)
    for act, path in (("optimize", found[1]), ("quantize", found[2])):
        run(deploykit(act, str(frozen), "-o", str(path), "--force"))
    return found


def _section(name: str, forms: list[str], result: Result) -> str:
    rows = ["| | p50 ms (95 % interval) | p99 ms | items/s | ratio (99 % interval) | memory | |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    for each, beside in zip(result.measurements, ratios(result), strict=True):
        figures = summary(each)
        low, high = figures.p50_interval or (figures.p50, figures.p50)
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


_TOP = """# Results

Written by `python -m tests.benchmarks speed` on {date}. The models of a table were measured in
turn, each in a process of its own; a ratio above 1 is faster than the first line. Weights alone in
8 bits make files smaller, and runs no faster.
"""
_END = """## On a GPU

Not run: no GPU.
"""
