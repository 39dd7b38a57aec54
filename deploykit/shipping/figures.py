"""Metrics before and after, each with its confidence interval, and a summary sentence."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.speed_verdict import judge, latency, seconds_an_item
from deploykit.benchmarking.statistics import summary
from deploykit.evaluation.result import Accuracy
from deploykit.shipping.shipment import AS_IT_CAME, FROZEN, Shipment
from deploykit.storage.ship_report import MODEL
from deploykit.transforms.common.documents import document

Known = Mapping[str, Any]

_MAX_WEAK_CLASSES = 3  # in the summary sentence
_SPEED = {
    "p50": ("latency of the model alone (p50)", "ms", "lower"),
    "rate": ("throughput of the model alone", "items/s", "higher"),
    "cpu": ("CPU time per item of the model alone", "ms/item", "lower"),
    "memory": ("peak memory of the process", "bytes", "lower"),
}


def figures(shipment: Shipment) -> dict[str, Any]:
    """Return the metrics as plain data; unknown ones contain the reason."""
    accuracy, benchmark = shipment.outcome("accuracy"), shipment.outcome("benchmark")
    facts = {**shipment.outcome("quantize").facts, **accuracy.facts, **benchmark.facts}
    why = accuracy.why or "the data contains no labels"
    results = {"accuracy": facts.get("accuracy") or _unknown("accuracy", "share", "higher", why)}
    if "agreement" in facts:
        results["agreement"] = facts["agreement"]
    # Frozen graphs: dropping other data, such as optimizer slots, is not a gain.
    before, after = (shipment.path(name).stat().st_size for name in (FROZEN, MODEL))
    ratio, text = before / after, f"{100 * after / before:.0f} % of the size"
    results["size"] = _figure("size of the graph", "bytes", "lower", _value(before), _value(after),
                              _value(ratio, (ratio, ratio)), text)  # fmt: skip
    why = benchmark.why or "not measured"
    results |= {name: facts.get(name) or _unknown(*_SPEED[name], why) for name in _SPEED}
    requests, alone = shipment.document("serve").get("requests") or {}, results["p50"]
    if "p50" in facts and "ratio" in requests:
        text = f"requests to '{requests['signature']}', {requests['verdict']}"
        if alone["ratio"] is not None:
            text += f"; the model alone {alone['ratio']['value']:.2f}x"
            text += f", {alone['loaded']}" if alone["loaded"] else ""
        results["p50"] = _figure("latency of a request (p50)", *_SPEED["p50"][1:],
                                 requests["before_ms"], requests["after_ms"], requests["ratio"],
                                 text, requests["loaded"])  # fmt: skip
    return results


def of_accuracy(result: Accuracy) -> dict[str, Any]:
    """Return the metrics of the stage `accuracy`, as far as it measured them."""
    facts: dict[str, Any] = {"weak_classes": [item.text for item in result.weak_classes]}
    if result.agreement is not None:
        facts |= of_agreement(result.agreement.value, result.agreement.interval)
    if result.metric is None:
        return facts
    before, after = (
        _value(document(item.value), document(item.interval))
        for item in (result.models[0], result.models[-1])
    )
    is_share, change = result.metric in ("top1", "top5"), document(result.change)
    text = "the change is unknown"
    if change is not None:
        scale, unit = (100, " points") if is_share else (1, "")
        text = f"{scale * (change['value'] or 0.0):+.2g}{unit}"
        if change["low"] is not None and change["high"] is not None:
            text += f" ({scale * change['low']:+.2g} to {scale * change['high']:+.2g})"
    better = "lower" if result.metric == "mae" else "higher"
    unit = "share" if is_share else result.metric
    figure = _figure(f"accuracy ({result.metric})", unit, better, before, after, None, text)
    return {**facts, "accuracy": {**figure, "change": change}}


def of_agreement(share: float | None, interval: Sequence[float] | None) -> dict[str, Any]:
    """Return how often both models predict the same; {} if no predictions were compared."""
    known, text = _value(share, interval), "same top-1 prediction as the original"
    if known is None:
        return {}
    return {"agreement": _figure("agreement", "share", "higher", None, known, None, text)}


def of_speed(result: BenchmarkResult, shipped_as: str) -> dict[str, Any]:
    """Return the metrics of speed, and with which settings the shipped model was measured.

    They compare the original model at default settings with the shipped one, tuned if possible.
    """
    before = next(item for item in result.measurements if item.model == AS_IT_CAME)
    all_shipped = [item for item in result.measurements if item.model == shipped_as]
    after, busy = all_shipped[-1], result.busy
    like = before.samples, before.settings.concurrency
    same = [item for item in all_shipped if (item.samples, item.settings.concurrency) == like]
    alike = after if after in same else same[0]
    first, last = summary(before), summary(alike)
    judged = judge(before, alike, figure=latency, busy=busy)
    p50 = _figure(*_SPEED["p50"], _value(first.p50, first.p50_interval),
                  _value(last.p50, last.p50_interval), document(judged.wall), judged.verdict,
                  busy)  # fmt: skip
    judged = judge(before, after, figure=seconds_an_item, busy=busy)
    rate = _figure(*_SPEED["rate"], _value(before.items_per_second),
                   _value(after.items_per_second), document(judged.wall), judged.verdict,
                   busy)  # fmt: skip
    cpu = _unknown(*_SPEED["cpu"], "the machine does not report it")
    if before.cpu_ms is not None and after.cpu_ms is not None and judged.cpu is not None:
        gain = judged.cpu
        word = "less" if gain.low > 1 else "more" if gain.high < 1 else ""
        text = f"significantly {word} CPU time" if word else "no significant difference"
        cpu = _figure(*_SPEED["cpu"], _value(before.cpu_ms / before.samples),
                      _value(after.cpu_ms / after.samples), document(gain), text,
                      busy)  # fmt: skip
    # Processes with one session; the peak is counted once, so it has no interval.
    peaks = first.bytes_peak, summary(after).bytes_peak
    memory = _unknown(*_SPEED["memory"], "the machine does not report it")
    if peaks[0] and peaks[1]:
        ratio = peaks[0] / peaks[1]
        memory = _figure(*_SPEED["memory"], _value(peaks[0]), _value(peaks[1]),
                         _value(ratio, (ratio, ratio)),
                         "with the runtime; counted once, without an interval")  # fmt: skip
    named = after.facts.get("intra_op_threads"), after.facts.get("inter_op_threads")
    threads = after.settings.threads or named
    measured = {
        "batch": after.samples,
        "threads": None if None in threads else list(threads),
        "concurrency": after.settings.concurrency,
    }
    return {"p50": p50, "rate": rate, "cpu": cpu, "memory": memory, "measured": measured}


def verdict(shipment: Shipment, known: Known) -> str:
    """Return the result of the shipment in one sentence."""
    speed = known["rate" if shipment.how.goal == "throughput" else "p50"]
    parts = [f"{shipment.name} is shipped in {shipment.precision}", _speed_said(speed)]
    ratio = (known["size"]["ratio"] or {}).get("value", 1.0)
    if ratio >= 1.1:
        parts.append(f"{100 / ratio:.0f} % of the size")
    accuracy = known["accuracy"]
    if accuracy["after"] is None:
        return ", ".join([*parts, "accuracy not measured"]) + "."
    before, after = (accuracy[name]["value"] for name in ("before", "after"))
    if accuracy["unit"] == "share":
        parts.append(f"accuracy {100 * before:.1f} % before and {100 * after:.1f} % after")
    else:
        parts.append(f"accuracy {before:.3g} before and {after:.3g} after")
    weak = shipment.outcome("accuracy").facts["weak_classes"]
    parts += weak[:_MAX_WEAK_CLASSES]
    if len(weak) > _MAX_WEAK_CLASSES:
        parts.append(f"and {len(weak) - _MAX_WEAK_CLASSES} more such classes")
    return ", ".join(parts) + "."


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
