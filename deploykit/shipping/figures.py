"""Metrics before and after, each with its confidence interval, and a summary sentence."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult, result_of
from deploykit.benchmarking.speed_verdict import judge, latency, seconds_an_item
from deploykit.benchmarking.statistics import summary
from deploykit.shipping.shipment import AS_IT_CAME, FROZEN, Shipment
from deploykit.storage.ship_report import MODEL
from deploykit.transforms.common.documents import document

Known = Mapping[str, Any]

_MAX_WEAK_CLASSES = 3  # in the summary sentence


def figures(shipment: Shipment) -> dict[str, Any]:
    """Return the metrics as plain data; unknown ones contain the reason."""
    results: dict[str, Any] = {"accuracy": _accuracy(shipment), **_agreement(shipment)}
    results["size"] = _size(shipment)
    stage = shipment.document("benchmark")
    if not stage:
        why = shipment.outcome("benchmark").why or "not measured"
        return results | {name: _unknown(*_SPEED[name], why) for name in _SPEED}
    result = result_of(stage["models"], "benchmark")
    before, after = _ends(shipment, result)
    busy = result.conditions.busy if result.conditions else ""
    p50 = _p50(before, _alike(before, after, result), busy)
    return results | {
        "p50": _of_requests(shipment, p50) or p50,
        "rate": _rate(before, after, busy),
        "cpu": _cpu(before, after, busy),
        "memory": _memory(before, after),
    }


def measured_with(shipment: Shipment) -> dict[str, Any]:
    """Return the batch, threads and concurrent requests of the shipped model's measurement."""
    stage = shipment.document("benchmark")
    if not stage:
        return {}
    last = _ends(shipment, result_of(stage["models"], "benchmark"))[1]
    named = "intra_op_threads", "inter_op_threads"
    threads = last.settings.threads or tuple(last.facts.get(item) for item in named)
    return {
        "batch": last.samples,
        "threads": None if None in threads else list(threads),
        "concurrency": last.settings.concurrency,
    }


_SPEED = {
    "p50": ("latency of the model alone (p50)", "ms", "lower"),
    "rate": ("throughput of the model alone", "items/s", "higher"),
    "cpu": ("CPU time per item of the model alone", "ms/item", "lower"),
    "memory": ("peak memory of the process", "bytes", "lower"),
}


def _figure(
    title: str,
    unit: str,
    better: str,
    before: Known | None,
    after: Known | None,
    ratio: Known | None,
    verdict: str,
    loaded: str = "",
) -> dict[str, Any]:
    return {"title": title, "unit": unit, "better": better, "before": before, "after": after,
            "ratio": ratio, "verdict": verdict, "loaded": loaded}  # fmt: skip


def _unknown(title: str, unit: str, better: str, why: str) -> dict[str, Any]:
    return _figure(title, unit, better, None, None, None, f"not measured: {why}")


def _value(value: float | None, interval: Sequence[float] | None = None) -> dict[str, Any] | None:
    if value is None:
        return None
    low, high = interval or (None, None)
    return {"value": value, "low": low, "high": high}


def _accuracy(shipment: Shipment) -> dict[str, Any]:
    result = shipment.document("accuracy")
    if not result or not result.get("models") or result.get("metric") is None:
        why = shipment.outcome("accuracy").why or "the data contains no labels"
        return _unknown("accuracy", "share", "higher", why)
    metric, (first, last) = result["metric"], (result["models"][0], result["models"][-1])
    lower = metric == "mae"
    change = result.get("change")
    figure = _figure(
        f"accuracy ({metric})",
        "share" if metric in ("top1", "top5") else metric,
        "lower" if lower else "higher",
        _value(first["value"], first.get("interval")),
        _value(last["value"], last.get("interval")),
        None,
        _change(change, metric),
    )
    return figure | {"change": change}


def _agreement(shipment: Shipment) -> dict[str, Any]:
    """Return how often both predict the same; {} if no predictions were compared."""
    known = shipment.document("accuracy").get("agreement")
    if known is None:
        judged = shipment.document("quantize").get("judgement") or {}
        known = _value(judged.get("agreement"), judged.get("agreement_interval"))
    if known is None:
        return {}
    text = "same top-1 prediction as the original"
    return {"agreement": _figure("agreement", "share", "higher", None, known, None, text)}


def _change(change: Known | None, metric: str) -> str:
    if change is None:
        return "the change is unknown"
    scale, unit = (100, " points") if metric in ("top1", "top5") else (1, "")
    value, low, high = (change.get(name) for name in ("value", "low", "high"))
    text = f"{scale * (value or 0.0):+.2g}{unit}"
    if low is None or high is None:
        return text
    return f"{text} ({scale * low:+.2g} to {scale * high:+.2g})"


def _size(shipment: Shipment) -> dict[str, Any]:
    """Compare frozen graphs: dropping other data, such as optimizer slots, is not a gain."""
    before, after = (shipment.path(name).stat().st_size for name in (FROZEN, MODEL))
    ratio = before / after
    return _figure(
        "size of the graph",
        "bytes",
        "lower",
        _value(before),
        _value(after),
        {"value": ratio, "low": ratio, "high": ratio},
        f"{100 / ratio:.0f} % of the size",
    )


def _ends(shipment: Shipment, result: BenchmarkResult) -> tuple[Measurement, Measurement]:
    """Return the original model with default settings and the shipped one, tuned if possible."""
    first = next(
        measurement for measurement in result.measurements if measurement.model == AS_IT_CAME
    )
    return first, [e for e in result.measurements if e.model == shipment.shipped_as][-1]


def _alike(before: Measurement, after: Measurement, result: BenchmarkResult) -> Measurement:
    """Return the shipped model's measurement with the batch size and concurrency of `before`."""
    same = [
        measurement
        for measurement in result.measurements
        if measurement.model == after.model
        and (measurement.samples, measurement.settings.concurrency)
        == (before.samples, before.settings.concurrency)
    ]
    return after if after in same else same[0]


def _p50(before: Measurement, after: Measurement, busy: str) -> dict[str, Any]:
    judged = judge(before, after, figure=latency, busy=busy)
    first, last = summary(before), summary(after)
    return _figure(*_SPEED["p50"], _value(first.p50, first.p50_interval),
                   _value(last.p50, last.p50_interval), document(judged.wall),
                   judged.verdict, busy)  # fmt: skip


def _of_requests(shipment: Shipment, model: Known) -> dict[str, Any] | None:
    """Return the latency of requests to the default signature, or None if not measured."""
    result = shipment.document("serve").get("requests") or {}
    if "ratio" not in result:
        return None
    text = f"requests to '{result['signature']}', {result['verdict']}"
    ratio = model["ratio"]
    if ratio is not None:
        text += f"; the model alone {ratio['value']:.2f}x"
        text += f", {model['loaded']}" if model["loaded"] else ""
    return _figure("latency of a request (p50)", *_SPEED["p50"][1:], result["before_ms"],
                   result["after_ms"], result["ratio"], text, result["loaded"])  # fmt: skip


def _rate(before: Measurement, after: Measurement, busy: str) -> dict[str, Any]:
    judged = judge(before, after, figure=seconds_an_item, busy=busy)
    first, last = (_value(item.items_per_second) for item in (before, after))
    return _figure(*_SPEED["rate"], first, last, document(judged.wall), judged.verdict, busy)


def _cpu(before: Measurement, after: Measurement, busy: str) -> dict[str, Any]:
    first, last = before.cpu_ms, after.cpu_ms
    judged = judge(before, after, figure=seconds_an_item, busy=busy)
    if first is None or last is None or judged.cpu is None:
        return _unknown(*_SPEED["cpu"], "the machine does not report it")
    ratio = judged.cpu
    word = "significantly less" if ratio.low > 1 else "significantly more" if ratio.high < 1 else ""
    text = f"{word} CPU time" if word else "no significant difference"
    return _figure(*_SPEED["cpu"], _value(first / before.samples), _value(last / after.samples),
                   document(ratio), text, busy)  # fmt: skip


def _memory(before: Measurement, after: Measurement) -> dict[str, Any]:
    """Compare processes with one session; the peak is counted once, so it has no interval."""
    first, last = summary(before).bytes_peak, summary(after).bytes_peak
    if not first or not last:
        return _unknown(*_SPEED["memory"], "the machine does not report it")
    ratio = first / last
    return _figure(*_SPEED["memory"], _value(first), _value(last),
                   {"value": ratio, "low": ratio, "high": ratio},
                   "with the runtime; counted once, without an interval")  # fmt: skip


def verdict(shipment: Shipment, known: Known) -> str:
    """Return the result of the shipment in one sentence."""
    speed = known["rate" if shipment.how.goal == "throughput" else "p50"]
    parts = [f"{shipment.name} is shipped in {shipment.precision}", _speed_said(speed)]
    ratio = (known["size"]["ratio"] or {}).get("value", 1.0)
    if ratio >= 1.1:
        parts.append(f"{100 / ratio:.0f} % of the size")
    accuracy = known["accuracy"]
    if accuracy["after"] is not None:
        parts.append(f"accuracy {_share(accuracy)}")
        weak = shipment.document("accuracy").get("weak_classes") or []
        parts += [item["text"] for item in weak[:_MAX_WEAK_CLASSES]]
        if len(weak) > _MAX_WEAK_CLASSES:
            parts.append(f"and {len(weak) - _MAX_WEAK_CLASSES} more such classes")
    else:
        parts.append("accuracy not measured")
    return ", ".join(parts) + "."


def _share(figure: Known) -> str:
    before, after = (figure[name]["value"] for name in ("before", "after"))
    if figure["unit"] == "share":
        return f"{100 * before:.1f} % before and {100 * after:.1f} % after"
    return f"{before:.3g} before and {after:.3g} after"


def _speed_said(figure: Known) -> str:
    ratio = figure["ratio"]
    if ratio is None:
        return "its speed was not measured"
    low, high = ratio["low"], ratio["high"]
    what = "throughput" if figure["unit"] == "items/s" else "speed"
    what += " of the model alone" if "alone" in figure["title"] else " of a request"
    if low is None or high is None or math.isinf(high):
        return f"its {what} is inconclusive"
    mark = f" ({figure['loaded']})" if figure["loaded"] else ""
    if low > 1 or high < 1:
        return f"{ratio['value']:.2f}x ({low:.2f}-{high:.2f}) the {what}{mark}"
    return f"no significant difference in {what}, {low:.2f}x-{high:.2f}x{mark}"
