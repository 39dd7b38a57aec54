"""What a GPU does with real models: precisions, batches, inputs, layouts, several GPUs, in one go.

    python -m tests.benchmarks gpu [--minutes 9] [--resume FILE] [--seconds 2]
    python -m tests.benchmarks gpu --needs

A row is a measurement that stands for itself. It is shown and written as soon as it is done, so
that a machine that is taken away loses the one that runs, and `--resume` goes on behind the others.
Without a GPU it is said which rows were not run, and the others run on the CPU, shown to TensorFlow
as two devices where several are needed. It loads nothing and installs nothing; `--needs` says which
packages have to be there.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deploykit
from deploykit.benchmarking.devices import visible_gpus
from deploykit.system.doctor import gpu_refusal
from deploykit.system.machine import machine
from deploykit.transforms.common.errors import Error
from tests.benchmarks.figures import RESULTS
from tests.benchmarks.gpu_page import page
from tests.benchmarks.gpu_parts import (
    eight_bits,
    input_styles,
    layouts,
    long_run,
    measure_replicas,
    precision,
)
from tests.benchmarks.nets import frozen_keras_net, made_by

MODELS = ("lite0", "resnet50")
PRECISIONS = ("tf32", "fp32", "fp16", "bf16", "xla")
BATCHES = (1, 8, 32, 128, 256)
ON_CPU = ("fp32", "bf16", "xla")
SMALL = (1, 8)
"""Batches where there is no GPU."""
Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """Something to measure, by a name that tells it from all others."""

    name: str
    measure: Callable[[], Figures]
    needs_gpu: bool = True


def rows(gpus: Sequence[str], folder: Path, seconds: float) -> Iterator[Row]:
    """Yield what is measured, the most telling first."""
    device = "gpu" if gpus else "cpu"
    for model in MODELS:
        for kind in PRECISIONS:
            for batch in BATCHES:
                yield Row(
                    f"{model}, {kind}, batch {batch}",
                    lambda m=model, k=kind, b=batch: precision(
                        net(m, folder), k, b, device, seconds
                    ),
                    not (kind in ON_CPU and batch in SMALL),
                )
        if model == MODELS[0]:
            yield Row("input styles", lambda: input_styles(folder, device, seconds), False)
            yield Row("tf.data for long", lambda: long_run(net(MODELS[0], folder), device, seconds))
    for model in MODELS:
        yield Row(
            f"{model}, NCHW beside NHWC",
            lambda m=model: layouts(net(m, folder), device, seconds),
        )
    yield Row("two towers", lambda: measure_replicas(net(MODELS[0], folder), gpus, seconds), False)
    yield Row("8 bits", lambda: eight_bits(folder, device), True)


def net(name: str, folder: Path) -> Path:
    """Return a model with folded batch norms, made once."""
    made = folder / f"{name}.pb"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        lite0 = made_by("efficientnet_lite0/build.py") / "frozen.pb" if name == "lite0" else None
        source = lite0 or frozen_keras_net("ResNet50")
        deploykit.save_graph(deploykit.optimize(source), made)
    return made


def main(arguments: Sequence[str]) -> None:
    """Measure what time allows, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no row after this time")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="go on with a file of rows")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--needs", action="store_true", help="print the packages that it imports")
    chosen = parser.parse_args(arguments)
    if chosen.needs:
        print("\n".join(needs()))
        return
    measured(chosen.minutes, chosen.resume or RESULTS / "gpu.jsonl", chosen.seconds,
             chosen.resume is not None)  # fmt: skip


def measured(minutes: float, path: Path, seconds: float, resume: bool) -> None:
    """Measure rows one by one into a file, and write the page of all that it has."""
    end, gpus = time.monotonic() + 60 * minutes, visible_gpus()
    path.parent.mkdir(parents=True, exist_ok=True)
    done = known(path) if resume else {}
    if not resume:
        path.write_text("")
    why = None if gpus else gpu_refusal()
    _tell(f"GPUs: {', '.join(gpus) or 'none'}" + (f" ({why})" if why else ""))
    folder, left = RESULTS / "models" / "gpu", 0
    for row in rows(gpus, folder, seconds):
        if done.get(row.name, {}).get("status") in ("measured", "refused"):
            continue
        if time.monotonic() > end and (gpus or not row.needs_gpu):
            left += 1
            continue
        found = _run(row, gpus, why)
        done[row.name] = found
        with path.open("a") as file:
            file.write(json.dumps(found) + "\n")
        _tell(f"{row.name}: {_in_words(found)}")
    result = path.with_suffix(".md")
    result.write_text(page(list(done.values())))
    if left:
        _tell(f"{left} rows were not begun in {minutes:g} minutes: --resume {path} goes on")
    _tell(f"rows: {path}; page: {result}")


def known(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows in a file, by name; of one that is there twice, the last.

    SystemExit: it is no file of rows. A last line that was cut short is no row.
    """
    found = {}
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        try:
            row = json.loads(line)
            found[row["name"]] = row
        except (ValueError, TypeError, KeyError):
            if number < len(lines) - 1:
                sys.exit(f"{path}, line {number + 1}: this is no row of such a benchmark")
    return found


def _run(row: Row, gpus: Sequence[str], why: str | None) -> dict[str, Any]:
    """Return a row as plain data; what cannot be measured says why."""
    found: dict[str, Any] = {"name": row.name, "gpus": list(gpus), "cpu": machine()["cpu"]}
    if row.needs_gpu and not gpus:
        return found | {"status": "not run", "why": why}
    start = time.monotonic()
    try:
        figures = row.measure()
    except Error as error:
        return found | {"status": "refused", "why": str(error)}
    took = round(time.monotonic() - start, 1)
    return found | {"status": "measured", "seconds": took, "figures": figures}


def _in_words(found: Mapping[str, Any]) -> str:
    if found["status"] == "not run":
        return "not run, as there is no GPU"
    if found["status"] != "measured":
        return f"{found['status']}: {found['why']}"
    figures = found["figures"].items()
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures)


def needs() -> list[str]:
    """Return the packages that a small run of all this imports, with their versions.

    Those of the processes that it starts count too: what a worker imports, this process does.
    """
    import importlib.metadata as metadata

    from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
    from tests.benchmarks.gpu_parts import needed

    with tempfile.TemporaryDirectory() as folder:
        needed(Path(folder), TensorFlowRunner)
    owners = metadata.packages_distributions()
    names = {owner for module in set(sys.modules) for owner in owners.get(module.split(".")[0], ())}
    return sorted(f"{name}=={metadata.version(name)}" for name in names if name != "deploykit")


def _tell(line: str) -> None:
    print(line, flush=True)
