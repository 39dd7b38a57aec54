"""Styles of input that had their turns: a table, and what limits each."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deploykit.input.input_result import InputResult
from deploykit.input.judging.advice import bytes_in_words
from deploykit.text.tables import new_table

if TYPE_CHECKING:
    from deploykit.text.tables import Table


def lines(found: InputResult) -> "list[str | Table]":
    """Return what was found for people."""
    table = new_table("input", "items/s", "compute", "input", "ceiling", "floor", "share", "CPU",
                      "idle", "others", "read/s")  # fmt: skip
    for each in found.styles:
        rates = each.rates
        figures = (rates.both, rates.compute, rates.input, rates.ceiling, rates.floor)
        table.add_row(
            each.style,
            *(f"{figure:.4g}" for figure in figures),
            f"{100 * rates.share:.0f} %{' unstable' if rates.unstable else ''}",
            f"{rates.cpu:.1f} of {rates.cores:g}",
            *("?" if cores is None else f"{cores:.1f}" for cores in (rates.idle, rates.foreign)),
            bytes_in_words(rates.reading.bytes),
        )
    text: list[str | Table] = [table]
    for each in found.styles:
        why = each.verdict
        text.append(f"{each.style}: {why.limit}: {why.reason}; {why.advice}")
        text += [_gpu_line(each.style, device) for device in each.devices]
    text += [
        "compute: on a batch that lies ready; input: without a model; ceiling: the smaller; floor: "
        "in turns",
        "CPU: cores that this took; idle: without work; others: taken by other processes; read/s: "
        "bytes of files",
    ]
    if found.wait_ms is not None:
        text.append(f"simulated: each step waits {found.wait_ms:g} ms instead of computing")
    if found.cold_files:
        text.append(f"{found.cold_files} of {len(found.pipeline.data.files)} files were not in "
                    "memory before, and were read from the disk anew in each turn")  # fmt: skip
    if found.distinct is not None:
        text.append(f"tf.data service: an epoch has {found.distinct} records, each once")
    if found.skipped:
        text.append(f"left out: {len(found.skipped)} damaged: {', '.join(found.skipped[:3])}")
    if found.interrupted:
        text.append("interrupted: this is what was measured until then")
    return text


def _gpu_line(style: str, device: Mapping[str, Any]) -> str:
    use = device.get("utilisation_percent", {}).get("mean")
    return f"{style}: {device['name']} in use {'?' if use is None else f'{use:.0f}'} % of the time"
