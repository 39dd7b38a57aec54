"""The nodes of a call in the Trace Event Format, which Perfetto and chrome://tracing read.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU describes it. A
process stands for a device. TensorFlow does not tell which thread ran a node, so a thread stands
for a lane: nodes in one lane never run at once. TensorFlow's own `timeline` is no public module,
and counts whole microseconds, in which short nodes vanish.
"""

from collections.abc import Iterable
from typing import Any

from deploykit.benchmarking.execution import Event


def trace(events: Iterable[Event]) -> dict[str, Any]:
    """Return the JSON document of a trace; its times are in microseconds from the first start."""
    ordered = sorted(events, key=lambda event: (event.start, event.end))
    processes: dict[str, int] = {}
    lanes: dict[str, list[int]] = {}
    found: list[dict[str, Any]] = []
    named = []
    for event in ordered:
        if event.device not in processes:
            processes[event.device] = len(processes)
            named.append(_name("process", event.device, processes[event.device], 0))
        ends = lanes.setdefault(event.device, [])
        lane = next((n for n, end in enumerate(ends) if end <= event.start), len(ends))
        if lane == len(ends):
            ends.append(0)
            named.append(_name("thread", f"lane {lane}", processes[event.device], lane))
        ends[lane] = event.end
        found.append(
            {
                "name": event.op,
                "cat": "stream" if event.on_stream else "node",
                "ph": "X",
                "ts": (event.start - ordered[0].start) / 1e3,
                "dur": (event.end - event.start) / 1e3,
                "pid": processes[event.device],
                "tid": lane,
                "args": _arguments(event),
            }
        )
    return {"displayTimeUnit": "ms", "traceEvents": named + found}


def _arguments(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = {"node": event.node}
    if event.allocated:
        found["allocated_bytes"] = event.allocated
    if event.moved:
        found["moved_bytes"] = event.moved
    if event.flops:
        found["flops"] = event.flops
    return found


def _name(kind: str, name: str, process: int, lane: int) -> dict[str, Any]:
    return {
        "name": f"{kind}_name",
        "ph": "M",
        "pid": process,
        "tid": lane,
        "args": {"name": name},
    }
