"""A profile for people: what the time goes to, by op and by node, and what the machine could do."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deploykit.text.tables import Cell, Table, table

if TYPE_CHECKING:
    from deploykit.benchmarking.profiling.profile import Profile


def profile_tables(profile: "Profile", top: int = 10) -> list[str | Table]:
    """Return what a profile says, in lines and tables; of the nodes, the `top` costliest."""
    return [*_lines(profile), _by_op(profile), *([_by_node(profile, top)] if top else [])]


def _lines(profile: "Profile") -> Iterator[str]:
    total, peak = profile.total, profile.peak
    yield (
        f"profile of {profile.runs} traced calls of {profile.samples} "
        f"sample{'s' * (profile.samples != 1)}: {profile.traced_ms:.2f} ms each, "
        f"{profile.untraced_ms:.2f} ms without the trace"
    )
    yield (
        f"nodes:  {total.ms:.2f} ms, the sum of each one's median; from the first to the last "
        f"{profile.span_ms:.2f} ms, {100 * profile.idle_share:.1f} % of it without any"
    )
    if profile.overlap > 1.05:
        yield f"        {profile.overlap:.2f} ran at once; shares are of the sum of their times"
    yield (
        f"peak:   {peak.gflops:.1f} GFLOP/s ({peak.precision} matrices of {peak.matrix}), "
        f"{peak.gigabytes:.1f} GB/s (arrays of {peak.array_bytes >> 20} MiB)"
    )
    if len(peak.by_precision) > 1:
        rates = (f"{name} {rate / 1e3:.1f}" for name, rate in peak.by_precision.items())
        yield f"        matrices in other precisions, TFLOP/s: {', '.join(rates)}"
    if total.flops:
        yield (
            f"layers: {total.flops / 1e9:.3g} GFLOP, {profile.gflops_per_second:.1f} GFLOP/s in a "
            f"call without the trace: {100 * profile.gflops_per_second / peak.gflops:.0f} % of peak"
        )
    if profile.unattributed_share > 0.0005:
        yield (
            f"        {100 * profile.unattributed_share:.1f} % of the model's "
            f"{profile.model_flops / 1e9:.3g} GFLOP are in no node that ran: computed beforehand, "
            "or inside a compiled cluster"
        )
    if profile.uncounted:
        names = ", ".join(profile.uncounted[:3]) + ", ..." * (len(profile.uncounted) > 3)
        yield f"        not counted, of unknown shape: {len(profile.uncounted)} layers ({names})"
    if profile.on_gpu:
        yield from _gpu_lines(profile)


def _gpu_lines(profile: "Profile") -> Iterator[str]:
    """Say what the streams of GPUs did, apart from what launching it took."""
    launched = f"the host took {profile.launch_ms:.2f} ms to launch it"
    if not profile.streams:
        yield (
            "GPU:    no kernel was traced, so nodes on it have no time here: TensorFlow could not "
            f"use CUPTI, NVIDIA's library for that (deploykit doctor says why); {launched}"
        )
        return
    names = {"kernel": "kernels", "MemcpyH2D": "copies in", "MemcpyD2H": "copies out"}
    words = [
        f"{names.get(each.kind, each.kind)} {each.ms:.2f} ms"
        + (f" ({each.moved / 1e6:.1f} MB)" if each.moved else "")
        for each in profile.streams
    ]
    yield f"GPU:    {', '.join(words)}; {launched}"


def _by_op(profile: "Profile") -> Table:
    columns: dict[str, Cell] = {"op": lambda cost: getattr(cost, "op", "all"), "calls": "{calls}"}
    return table([*profile.ops, profile.total], columns | _costs(profile), has_total=True)


def _by_node(profile: "Profile", top: int) -> Table:
    columns = {"node, its op": "{name}\n{op}", **_costs(profile)}
    del columns["MiB"]
    columns |= {"of peak": "{share_of_peak:percent}", "bound by": "{bound}"}
    return table(profile.nodes[:top], columns)


def _costs(profile: "Profile") -> dict[str, Cell]:
    return {
        "ms": "{ms:.3f}",
        "share": lambda cost: f"{100 * profile.share(cost):.1f} %",
        "MiB": lambda cost: f"{cost.allocated / (1 << 20):.2f}" if cost.allocated else None,
        "GFLOP": lambda cost: f"{cost.flops / 1e9:.3g}" if cost.flops else None,
        "GFLOP/s": lambda cost: f"{cost.gflops_per_second:.1f}" if cost.flops else None,
    }
