"""The nodes of calls in the Trace Event Format, which Perfetto and chrome://tracing read.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU describes it. A
process stands for a device and a model. TensorFlow does not tell which thread ran a node, so a
thread stands for a lane: nodes in one lane never run at once. TensorFlow's own `timeline` is no
public module, and counts whole microseconds, in which short nodes vanish.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from deploykit.benchmarking.profiling.execution import Event


def trace(calls: Mapping[str, Iterable[Event]]) -> dict[str, Any]:
    """Return the JSON document of a call of each model, by its name.

    Times are in microseconds from the start of each call's first node.
    """
    named: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    processes: dict[tuple[str, str], int] = {}
    for model, events in calls.items():
        ordered = sorted(events, key=lambda event: (event.start, event.end))
        lanes: dict[str, list[int]] = {}  # when each lane of a device is free again
        for event in ordered:
            process = processes.setdefault((model, event.device), len(processes))
            if event.device not in lanes:
                device = event.device.rpartition("/device:")[2]
                named.append(_name("process", f"{model} {device}", process, 0))
            ends = lanes.setdefault(event.device, [])
            lane = next((n for n, end in enumerate(ends) if end <= event.start), len(ends))
            if lane == len(ends):
                ends.append(0)
                named.append(_name("thread", f"lane {lane}", process, lane))
            ends[lane] = event.end
            found.append(
                {
                    "name": event.label or event.op,
                    "cat": event.kind,
                    "ph": "X",
                    "ts": (event.start - ordered[0].start) / 1e3,
                    "dur": (event.end - event.start) / 1e3,
                    "pid": process,
                    "tid": lane,
                    "args": _arguments(event),
                }
            )
    return {"displayTimeUnit": "ms", "traceEvents": named + found}


def _arguments(event: Event) -> dict[str, Any]:
    counts = {
        "allocated_bytes": event.allocated, "moved_bytes": event.moved, "flops": event.flops
    }  # fmt: skip
    return {"node": event.node} | {name: count for name, count in counts.items() if count}


def _name(kind: str, name: str, process: int, lane: int) -> dict[str, Any]:
    return {
        "name": f"{kind}_name",
        "ph": "M",
        "pid": process,
        "tid": lane,
        "args": {"name": name},
    }
