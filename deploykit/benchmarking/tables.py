"""Formatters of a benchmark: tables, lines and CSV."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.process_variables import in_words, is_openmp
from deploykit.benchmarking.profiling.profile import profile_tables
from deploykit.benchmarking.results import BenchmarkResult, scaling_efficiency, thread_lines
from deploykit.benchmarking.run_config import FEED, RESIDENT, RunConfig
from deploykit.benchmarking.speed_verdict import SpeedVerdict, judge
from deploykit.benchmarking.statistics import Summary, summary
from deploykit.rendering.tables import Cell, OwnLines, Table, table
from deploykit.rendering.templates import filled, number, rendered_rows
from deploykit.transforms.engines.engines import ENGINES, TENSORFLOW, TITLES

_RATIO = (
    "ratio: speed vs the first row with the same batch, above 1 is faster; below it, its 99.8 % CI"
)
_COST = "core-s/1000: CPU time in seconds per thousand samples"
_SPEED: Mapping[str, Cell] = {
    "": "{0.name}",
    "p50 ms": "{1.p50:number}[[\n{1.p50_interval:number}]]",
    "p90 ms": "{1.p90:number}",
    "p99 ms": "{1.p99:number}",
    "CPU ms": "{1.cpu_ms:number}",
    "items/s": "{1.items_per_second:number}",
}
_START: Mapping[str, Cell] = {
    "": "{0.name}",
    "load ms": "{1.load_ms:number}",
    "first run ms": "{1.first_run_ms:number}",
    "peak memory": "{1.bytes_peak:size}",
    "core-s/1000": "{1.core_seconds_per_1000:number}",
    "verdict": lambda row: row[1].verdict.partition(":")[0],
}


def lines(result: BenchmarkResult, top: int = 10) -> Iterator[str | Table]:
    """Yield the metrics of every measurement, and profiles with their `top` slowest nodes."""
    yield from tables(result)
    for name, profile in result.profiles.items():
        yield from ("", f"{name}:", *profile_tables(profile, top))


def tables(result: BenchmarkResult) -> list[str | Table]:
    """Return the metrics of every measurement, and the measurement conditions.

    There are two tables, because one would be too wide for a terminal of 80 columns.
    """
    results = [summary(measurement) for measurement in result.measurements]
    compared = len(results) > 1
    rows = [*zip(result.measurements, results, result.judgements(), strict=True)]
    lines = [*rendered_rows(rows, "{0.name}: {2.verdict}"), _RATIO] if compared else []
    lines += [_COST, machine_line(result), _warm_up_line(results)]
    unstable = (row for row in rows if row[1].verdict != "stable")
    lines += rendered_rows(unstable, "{0.name}: {1.verdict}")
    lines += [*variable_lines(result), *_precision_lines(result), *_copy_lines(result)]
    lines += [*_device_lines(result), *_scaling_lines(result)]
    lines += thread_lines(result)
    if result.conditions is not None and result.conditions.busy:
        lines.append(f"{result.conditions.busy}; latencies are only valid on a machine this loaded")
    if result.interrupted:
        lines.append("interrupted: these are the measurements so far")
    ratio: dict[str, Cell] = {"ratio": lambda row: _ratio(row[2])} if compared else {}
    return [table(rows, {**_SPEED, **ratio}), table(rows, _START), *lines]


def machine_line(result: BenchmarkResult) -> str:
    """Return the machine in words: CPU, cores, TensorFlow, oneDNN, other engines."""
    facts = [measurement.facts for measurement in result.measurements]
    versions = {
        engine: sorted({str(item.get(engine, "unknown")) for item in of_engine})
        for engine in ENGINES
        if (of_engine := [e.facts for e in result.measurements
                          if (e.settings.engine or TENSORFLOW) == engine])
    }  # fmt: skip
    switches = {fact["onednn"] for fact in facts if "onednn" in fact}
    words = [str(result.machine.get("cpu") or "unknown CPU")]
    if cores := result.machine.get("cores"):
        words.append(f"{cores} core{'' if cores == 1 else 's'}")
    if TENSORFLOW in versions:
        words.append(f"TensorFlow {' and '.join(versions[TENSORFLOW])}")
    if switches:
        words.append(f"oneDNN {' and '.join('on' if s else 'off' for s in sorted(switches))}")
    words += [f"{TITLES[name]} {' and '.join(versions[name])}"
              for name in versions if name != TENSORFLOW]  # fmt: skip
    return ", ".join(words)


def variable_lines(result: BenchmarkResult) -> list[str]:
    """Return the effect of environment variables, where measured with several values."""
    first: dict[tuple[str, RunConfig], Measurement] = {}
    keys = [(item.model, replace(item.settings, env=())) for item in result.measurements]
    lines = []
    for key, measurement in zip(keys, result.measurements, strict=True):
        if (other := first.setdefault(key, measurement)) is measurement:
            continue
        before, after = dict(other.settings.env), dict(measurement.settings.env)
        names = other.settings.changed_variables(measurement.settings)
        words = in_words({name: after.get(name) for name in names})
        against = in_words({name: before[name] for name in names if before.get(name) is not None})
        text = ", ".join(words) + (f" against {', '.join(against)}" if against else "")
        effect = judge(other, measurement, busy=result.busy)
        runtime = _openmp_runtime(measurement, effect) if any(map(is_openmp, names)) else ""
        start = f"{other.name}, " if len({*keys}) > 1 else ""
        lines.append(f"{start}{text}: {effect.verdict}{runtime}")
    return lines


def csv_lines(result: BenchmarkResult) -> list[str]:
    """Return a CSV header and a row for each measurement; columns are named as in the JSON."""
    rows = [
        _row(item, beside)
        for item, beside in zip(result.measurements, result.judgements(), strict=True)
    ]
    return [_csv(line) for line in (list(rows[0]), *(row.values() for row in rows))]


def _ratio(speed_verdict: SpeedVerdict | None) -> str:
    if speed_verdict is None:
        return "1"
    if math.isinf(speed_verdict.wall.high):
        return OwnLines(f"{number(speed_verdict.wall.value)}x\ntoo few rounds")
    template = "{wall.value:number}x\n{wall.low:number}-{wall.high:number}"
    load = "\nloaded machine" if speed_verdict.busy else ""
    return OwnLines(f"{filled(template, speed_verdict)}{load}")


def _warm_up_line(summaries: Sequence[Summary]) -> str:
    times = sorted({f"{figures.warm_up_ms / 1e3:.2f}" for figures in summaries}, key=float)
    between = " to ".join(dict.fromkeys((times[0], times[-1])))
    return f"warm-up: {between} s after the first run, not included in the metrics"


def _device_lines(result: BenchmarkResult) -> list[str]:
    """Return the mean load of each GPU during the rounds of each measurement."""
    words = {"utilisation_percent": "a kernel ran {:.0f} % of the time",
             "sm_percent": "{:.0f} % of its multiprocessors were active",
             "tensor_percent": "{:.0f} % of its tensor cores",
             "memory_bandwidth_percent": "{:.0f} % of its memory's bandwidth",
             "memory_bytes": "{:.2e} bytes", "process_memory_bytes": "{:.2e} of this process",
             "power_watts": "{:.0f} W", "sm_mhz": "{:.0f} MHz"}  # fmt: skip
    return [
        f"{measurement.name}, GPU {place} {device['name']}: "
        + ", ".join(form.format(device[k]["mean"]) for k, form in words.items() if k in device)
        for measurement in result.measurements
        for place, device in enumerate(measurement.facts.get("devices", ()))
    ]


def _precision_lines(result: BenchmarkResult) -> list[str]:
    """Return the precision of layers, unless it is the default on the CPU."""
    lines = []
    for measurement in result.measurements:
        on_gpu = measurement.settings.device != "cpu"
        if "precision" in measurement.facts and (
            on_gpu or measurement.settings.precision is not None
        ):
            elsewhere = sum(measurement.facts.get("layers_on_cpu", {}).values()) if on_gpu else 0
            message = f"; {elsewhere} of its layers run on the CPU" if elsewhere else ""
            lines.append(f"{measurement.name}: runs in {measurement.facts['precision']}{message}")
    return lines


def _copy_lines(result: BenchmarkResult) -> list[str]:
    """Return the share of copies in a call on a GPU, compared with resident inputs."""
    resident = {
        (measurement.model, replace(measurement.settings, input=FEED)): measurement
        for measurement in result.measurements
        if measurement.settings.input == RESIDENT
    }
    lines = []
    for measurement in result.measurements:
        other = resident.get((measurement.model, measurement.settings))
        if other is not None and measurement.settings.device != "cpu":
            fed, alone = summary(measurement).p50, summary(other).p50
            lines.append(
                f"{measurement.name}: {number(alone)} ms of {number(fed)} ms are computation; the "
                "rest is feeding, including copies of inputs to the GPU and of outputs back"
            )
    return lines


def _scaling_lines(result: BenchmarkResult) -> list[str]:
    return [
        f"{item.name}: {len(item.facts['towers'])} GPUs scale with {100 * share:.0f} % efficiency "
        "relative to one"
        for item in result.measurements
        if (share := scaling_efficiency(item, result)) is not None
    ]


def _openmp_runtime(measurement: Measurement, effect: SpeedVerdict) -> str:
    """Return whether TensorFlow loaded what reads the variables of OpenMP."""
    libraries = measurement.facts.get("openmp", ())
    joint = ", although" if effect.significant and not libraries else ";"
    return f"{joint} this TensorFlow loads {', '.join(libraries) or 'no OpenMP runtime'}"


def _row(measurement: Measurement, beside: SpeedVerdict | None) -> dict[str, Any]:
    row = {name: getattr(measurement, name) for name in ("name", "model", "sha256", "samples")}
    figures = asdict(summary(measurement))
    low_high = figures.pop("p50_interval") or (None, None)
    row |= asdict(measurement.settings)
    row["env"] = " ".join(in_words(measurement.settings.env)) or None
    if (threads := measurement.settings.threads) is not None:
        row["threads"] = "{}x{}".format(*threads)
    row |= figures | dict(zip(("p50_low", "p50_high"), low_high, strict=True))
    for name, ratio in (("ratio", beside and beside.wall), ("cpu_ratio", beside and beside.cpu)):
        row |= {f"{name}_{end}": getattr(ratio, end, None) for end in ("value", "low", "high")}
    row |= {f"ratio_{name}": getattr(beside, name, None) for name in ("verdict", "significant")}
    facts: Mapping[str, Any] = measurement.facts
    row["engine"] = measurement.settings.engine or TENSORFLOW
    row["engine_version"] = facts.get(row["engine"])
    return row | {"tensorflow": facts.get("tensorflow"), "onednn_in_force": facts.get("onednn")}


def _csv(cells: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()
