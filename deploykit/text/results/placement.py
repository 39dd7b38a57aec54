"""Where nodes ran: nodes, copies, fallbacks, and a summary by device."""

from collections.abc import Iterator, Mapping

from deploykit.inspection.engine_placement import DEVICE, EnginePlacement
from deploykit.inspection.placement import Copy, Placement
from deploykit.text.tables import Table, table
from deploykit.text.templates import counted, listed
from deploykit.transforms.core.engines.engines import TITLES

_LOCAL = "/job:localhost/replica:0/task:0/device:"
_SHOWN = 10  # names in a line of text; --json lists them all


def lines(found: Placement) -> Iterator[str | Table]:
    """Yield the placement of TensorFlow."""
    yield table(
        (node for node in found.executed if node.op != "Const"),
        {
            "node": "{name}",
            "op": "{op}",
            "requested": lambda node: _requested(node.asked),
            "placed on": lambda node: _short(node.got) + "  <- fell back" * node.fell_back,
        },
    )
    if found.copies:
        yield table(
            found.copies,
            {
                "copied": "{tensor}",
                "from": lambda copy: _short(copy.source),
                "to": lambda copy: _short(copy.target) + " (host memory)" * copy.to_host,
                "type and shape": _type,
                "bytes per run": _bytes,
            },
        )
    yield from _fallback_lines(found)
    for device, ops in found.ops_by_device.items():
        yield f"{_short(device)}: {_by_count(ops, 'node')}"
    unknown = sum(copy.bytes is None for copy in found.copies)
    yield (
        f"copies between devices: {len(found.copies)}, {found.copied_bytes:,} bytes per run"
        + (f" and {unknown} of unknown size" if unknown else "")
    )
    yield (
        f"{len(found.folded)} of the model's {found.model_nodes} nodes are folded or fused before "
        "execution"
    )


def engine_lines(found: EnginePlacement) -> Iterator[str | Table]:
    """Yield the ops that another runtime made of a model, with precision and layer."""
    yield table(found.executed, {"op": "{kind}", "precision": "{precision}", "layer": "{layer}"})
    yield f"{TITLES[found.engine]} {found.version}: one device, the {DEVICE}, runs all ops"
    for precision, kinds in found.by_precision.items():
        yield f"{precision}: {_by_count(kinds, 'op')}"
    yield f"int8 layers: {found.in_8_bits} of {len(found.layers)}"
    yield f"conversions: {found.conversions}"


def _fallback_lines(found: Placement) -> Iterator[str]:
    """Yield a line for each pair of a requested device and the one used instead."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in sorted(found.fallbacks, key=lambda node: node.op == "Const"):  # constants last
        key = (node.asked or "", node.got, found.why(node))
        groups.setdefault(key, []).append(f"{node.name} ({node.op})")
    for (asked, got, why), names in groups.items():
        yield (
            f"fell back from {asked} to {_short(got)}, {why}: {counted(len(names), 'node')}: "
            f"{listed(names, _SHOWN)}"
        )


def _requested(device: str | None) -> str | None:
    return "(made by TensorFlow)" if device is None else _short(device)


def _type(copy: Copy) -> str:
    shape = "?" if copy.shape is None else f"[{','.join(map(str, copy.shape))}]"
    return f"{copy.type} {shape}"


def _bytes(copy: Copy) -> str:
    size = "unknown" if copy.bytes is None else f"{copy.bytes:,}"
    if copy.times is None or copy.times == 1:
        return size
    return f"{size} ({copy.times} times)" if copy.times else f"{size} (not in this run)"


def _by_count(ops: Mapping[str, int], noun: str) -> str:
    names = ", ".join(f"{count} {op}" for op, count in ops.items())
    return counted(sum(ops.values()), noun) + (f": {names}" if names else "")


def _short(device: str) -> str:
    return device.removeprefix(_LOCAL)
