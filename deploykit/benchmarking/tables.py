"""Show a result: tables and sentences for people, lines of CSV for programs."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.scaling import scaling_efficiency
from deploykit.benchmarking.settings import Settings
from deploykit.benchmarking.statistics import Ratio, Summary, ratio, summary
from deploykit.text.tables import new_table, size

if TYPE_CHECKING:
    from deploykit.text.tables import Table

_RATIO = "ratio: runs while the first with its batch runs once, and a 99 % interval"
_NONE = 0.9  # an interval that reaches further from 1 does not show that there is no effect


def tables(result: BenchmarkResult) -> "list[str | Table]":
    """Return the figures of every measurement, and below them what they rest on.

    There are two tables, because one would be too wide for a terminal of 80 columns.
    """
    found = [summary(each) for each in result.measurements]
    lines = [_RATIO] if len(found) > 1 else []
    lines += [machine_line(result), _warm_up_line(found), *_unstable_lines(result, found)]
    lines += [*openmp_lines(result), *_device_lines(result), *_scaling_lines(result)]
    if result.interrupted:
        lines.append("interrupted: this is what was measured until then")
    return [_speed(result, found), _start(result, found), *lines]


def ratios(result: BenchmarkResult) -> list[Ratio | None]:
    """Return how fast each is beside the first with as many samples and as many calls in flight.

    None: it is that first one.
    """
    firsts: dict[tuple[int, int], Measurement] = {}
    found = []
    for each in result.measurements:
        first = firsts.setdefault((each.samples, each.settings.concurrency), each)
        found.append(None if first is each else _ratio(first, each))
    return found


def machine_line(result: BenchmarkResult) -> str:
    """Return what was measured on: CPU, cores, TensorFlow, oneDNN."""
    facts = [each.facts for each in result.measurements]
    versions = sorted({str(each.get("tensorflow", "unknown")) for each in facts})
    switches = {each["onednn"] for each in facts if "onednn" in each}
    words = [str(result.machine.get("cpu") or "unknown CPU")]
    if cores := result.machine.get("cores"):
        words.append(f"{cores} core{'' if cores == 1 else 's'}")
    words.append(f"TensorFlow {' and '.join(versions)}")
    if switches:
        words.append(f"oneDNN {' and '.join('on' if s else 'off' for s in sorted(switches))}")
    return ", ".join(words)


def openmp_lines(result: BenchmarkResult) -> list[str]:
    """Say what the OpenMP variables did, wherever it was measured with and without them."""
    without: dict[tuple[str, Settings], Measurement] = {}
    pairs = []
    for each in result.measurements:
        bare = each.settings.without_openmp
        if bare == each.settings:
            without[each.model, bare] = each
        elif (other := without.get((each.model, bare))) is not None:
            pairs.append((other, each))
    lines = []
    for other, each in pairs:
        names = each.settings.environment.keys() - other.settings.environment.keys()
        start = f"{other.name}, " if len(pairs) > 1 else ""
        lines.append(f"{start}{', '.join(sorted(names))}: {_effect(other, each)}")
    return lines


def csv_lines(result: BenchmarkResult) -> list[str]:
    """Return a header and a line for each measurement, with the names that the JSON has too."""
    rows = [
        _row(each, beside) for each, beside in zip(result.measurements, ratios(result), strict=True)
    ]
    return [_csv(line) for line in (list(rows[0]), *(row.values() for row in rows))]


def number(value: float) -> str:
    """Return a number with three digits that count, and no exponent."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.2e}".partition("e")[2])  # of what it is rounded to
    return f"{value:.{max(0, 2 - exponent)}f}"


def _ratio(first: Measurement, other: Measurement) -> Ratio:
    """Compare round by round; one that was interrupted may have had one less."""
    count = min(len(first.rounds_ms), len(other.rounds_ms))
    return ratio(first.rounds_ms[:count], other.rounds_ms[:count], paired=True)


def _speed(result: BenchmarkResult, found: Sequence[Summary]) -> "Table":
    columns = ["", "p50 ms", "p90 ms", "p99 ms", "items/s", *(["ratio"] if len(found) > 1 else [])]
    table = new_table(*columns)
    for each, figures, beside in zip(result.measurements, found, ratios(result), strict=True):
        cells = [each.name, number(figures.p50), number(figures.p90), number(figures.p99)]
        if figures.p50_interval is not None:
            cells[1] += f"\n{_interval(*figures.p50_interval)}"
        cells.append(number(figures.items_per_second))
        if len(found) > 1:
            cells.append(_ratio_words(beside))
        table.add_row(*cells)
    return table


def _start(result: BenchmarkResult, found: Sequence[Summary]) -> "Table":
    table = new_table("", "load ms", "first run ms", "peak memory", "verdict")
    for each, figures in zip(result.measurements, found, strict=True):
        cells = (number(figures.load_ms), number(figures.first_run_ms), size(figures.bytes_peak))
        table.add_row(each.name, *cells, figures.verdict.partition(":")[0])
    return table


def _ratio_words(found: Ratio | None) -> str:
    if found is None:
        return "1"
    if math.isinf(found.high):
        return f"{number(found.value)}\ntoo few rounds"
    interval = _interval(found.low, found.high)
    return f"{number(found.value) if found.significant else 'not significant'}\n{interval}"


def _warm_up_line(found: Sequence[Summary]) -> str:
    times = sorted({f"{figures.warm_up_ms / 1e3:.2f}" for figures in found}, key=float)
    between = " to ".join(dict.fromkeys((times[0], times[-1])))
    return f"warm-up: {between} s after the first run, which is not in the figures"


def _unstable_lines(result: BenchmarkResult, found: Sequence[Summary]) -> list[str]:
    return [
        f"{each.name}: {figures.verdict}"
        for each, figures in zip(result.measurements, found, strict=True)
        if figures.verdict != "stable"
    ]


def _device_lines(result: BenchmarkResult) -> list[str]:
    """Say what each GPU did while each measurement had its rounds."""
    words = {"utilisation_percent": "{:.0f} % busy", "memory_bytes": "{:.2e} bytes",
             "power_watts": "{:.0f} W", "sm_mhz": "{:.0f} MHz"}  # fmt: skip
    return [
        f"{each.name}, GPU {place} {device['name']}: "
        + ", ".join(form.format(device[k]["mean"]) for k, form in words.items() if k in device)
        for each in result.measurements
        for place, device in enumerate(each.facts.get("devices", ()))
    ]


def _scaling_lines(result: BenchmarkResult) -> list[str]:
    found = [(each, scaling_efficiency(each, result)) for each in result.measurements]
    return [
        f"{each.name}: {len(each.facts['towers'])} GPUs do {100 * share:.0f} % of what so many "
        "times one would do"
        for each, share in found
        if share is not None
    ]


def _effect(without: Measurement, other: Measurement) -> str:
    found = _ratio(without, other)
    if math.isinf(found.high):
        return "too few rounds to tell an effect"
    libraries = other.facts.get("openmp", ())
    runtime = f"this TensorFlow loads {', '.join(libraries) or 'no OpenMP runtime'}"
    figures = f"ratio {number(found.value)}, {_interval(found.low, found.high)}"
    if not found.significant:
        narrow = found.low > _NONE and found.high < 1 / _NONE
        return f"no {'' if narrow else 'significant '}effect ({figures}): {runtime}"
    change = "faster" if found.value > 1 else "slower"
    return f"{change} ({figures}){':' if libraries else ', although'} {runtime}"


def _row(measurement: Measurement, beside: Ratio | None) -> dict[str, Any]:
    row = {name: getattr(measurement, name) for name in ("name", "model", "sha256", "samples")}
    figures = asdict(summary(measurement))
    low_high = figures.pop("p50_interval") or (None, None)
    row |= asdict(measurement.settings)
    if (threads := measurement.settings.threads) is not None:
        row["threads"] = "{}x{}".format(*threads)
    row |= figures | dict(zip(("p50_low", "p50_high"), low_high, strict=True))
    ratio_names = ("value", "low", "high", "significant")
    row |= {f"ratio_{name}": getattr(beside, name, None) for name in ratio_names}
    facts: Mapping[str, Any] = measurement.facts
    return row | {"tensorflow": facts.get("tensorflow"), "onednn_in_force": facts.get("onednn")}


def _csv(cells: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def _interval(low: float, high: float) -> str:
    return f"{number(low)} to {number(high)}"
