"""A table of groups of samples: noise, agreement, and the metric of models within each."""

from collections.abc import Sequence

from deploykit.text.tables import Cell, Table, table
from deploykit.verification.groups import GroupCloseness, worst_first

_MOST, _WORST = 20, 10
"""Of more groups, the noisiest are shown; --json lists them all."""


def group_table(
    groups: Sequence[GroupCloseness], what: str, columns: Sequence[tuple[str, Cell]] = ()
) -> Table:
    """Return a row for each group, the noisiest first; `what` names the samples in the caption."""
    shown = worst_first(groups)[: _WORST if len(groups) > _MOST else None]
    if len(shown) < len(groups):
        what += f": the {len(shown)} worst of {len(groups)} groups"
    common: dict[str, Cell] = {
        "group": "{name}",
        "samples": "{samples}",
        "SQNR": "{sqnr_db:dB}",
        "95 % lower bound": "{sqnr_low_db:dB}",
        "agreement (95 % CI)": "{agreement:share} ({agreement_interval:share})",
    }
    return table(shown, common, what, more=columns)
