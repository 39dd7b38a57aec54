"""Where nodes ran: nodes, copies, fallbacks, and a summary by device."""

from collections.abc import Iterator

from deploykit.inspection.engine_placement import DEVICE, EnginePlacement
from deploykit.inspection.placement import Copy, Placement
from deploykit.text.tables import Table, new_table
from deploykit.transforms.core.engines.engines import TITLES

_LOCAL = "/job:localhost/replica:0/task:0/device:"
_SHOWN = 10  # names in a line of text; --json has them all


def lines(found: Placement) -> Iterator[str | Table]:
    """Yield a placement for people: nodes, copies, fallbacks, and a summary by device."""
    nodes = new_table("node", "op", "asked for", "got", texts=("op", "asked for", "got"))
    for n in found.executed:
        if n.op != "Const":
            asked = "(made by TensorFlow)" if n.asked is None else _short(n.asked) or "-"
            nodes.add_row(n.name, n.op, asked, _short(n.got) + "  <- fell back" * n.fell_back)
    yield nodes
    if found.copies:
        copies = new_table("copied", "from", "to", "type and shape", "bytes a run",
                           texts=("from", "to", "type and shape"))  # fmt: skip
        for copy in found.copies:
            copies.add_row(*_copy_row(copy))
        yield copies
    yield from _fallback_lines(found)
    for device, ops in found.ops_by_device.items():
        listed = ", ".join(f"{each} {op}" for op, each in ops.items())
        count = sum(ops.values())
        yield f"{_short(device)}: {count} node{'s' * (count != 1)}{': ' * bool(ops)}{listed}"
    unknown = sum(copy.bytes is None for copy in found.copies)
    yield (
        f"copies between devices: {len(found.copies)}, {found.copied_bytes:,} bytes a run"
        + (f" and {unknown} of unknown size" if unknown else "")
    )
    yield (
        f"{len(found.folded)} of the model's {found.model_nodes} nodes are folded or fused before "
        "execution"
    )


def engine_lines(found: EnginePlacement) -> Iterator[str | Table]:
    """Yield what another engine made of a model: its ops, their precision, what they are of."""
    ops = new_table("op", "precision", "layer", texts=("precision", "layer"))
    for each in found.executed:
        ops.add_row(each.kind, each.precision, each.layer or "-")
    yield ops
    yield f"{TITLES[found.engine]} {found.version}: one device, the {DEVICE}, computes all"
    for precision, kinds in found.by_precision.items():
        listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        yield f"{precision}: {sum(kinds.values())} op{'s' * (sum(kinds.values()) != 1)}: {listed}"
    yield f"layers in 8 bits: {found.in_8_bits} of {len(found.layers)}"
    yield f"conversions: {found.conversions}"


def _copy_row(copy: Copy) -> tuple[str, ...]:
    shape = "?" if copy.shape is None else f"[{','.join(map(str, copy.shape))}]"
    size = "unknown" if copy.bytes is None else f"{copy.bytes:,}"
    if copy.times is not None and copy.times != 1:
        size += " (not in this run)" if not copy.times else f" ({copy.times} times)"
    target = _short(copy.target) + (" (host memory)" if copy.to_host else "")
    return copy.tensor, _short(copy.source), target, f"{copy.type} {shape}", size


def _fallback_lines(found: Placement) -> Iterator[str]:
    """Yield a line for each pair of a device asked for and another one got."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in sorted(found.fallbacks, key=lambda node: node.op == "Const"):  # constants last
        key = (node.asked or "", node.got, found.why(node))
        groups.setdefault(key, []).append(f"{node.name} ({node.op})")
    for (asked, got, why), names in groups.items():
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield (
            f"fell back from {asked} to {_short(got)}, {why}: "
            f"{len(names)} node{'s' * (len(names) > 1)}: "
            f"{', '.join(names[:_SHOWN])}{more}"
        )


def _short(device: str) -> str:
    return device.removeprefix(_LOCAL)
