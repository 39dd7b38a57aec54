"""A table of groups of samples: noise, agreement, and how right models are within each."""

import math
from collections.abc import Mapping, Sequence

from deploykit.text.tables import Table, new_table
from deploykit.verification.groups import GroupCloseness, worst_first

_MOST, _WORST = 20, 10
"""Of more groups, so many of the noisiest are shown; --json has them all."""


def group_table(
    groups: Sequence[GroupCloseness],
    what: str,
    models: Sequence[str] = (),
    values: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """Return a row for each group, the noisiest first.

    Args:
        groups: one or more.
        what: which samples these are, for the caption.
        models: headings of further columns.
        values: the cells of these columns by the name of the group.
    """
    values = values or {}
    shown = worst_first(groups)[: _WORST if len(groups) > _MOST else None]
    is_compared = any(each.sqnr_db is not None for each in groups)
    has_classes = any(each.agreement is not None for each in groups)
    headings = ["SQNR", "95 % lower bound"] * is_compared + ["agreement"] * has_classes
    table = new_table("group", "samples", *headings, *models)
    for each in shown:
        noise = [_decibels(each.sqnr_db), _decibels(each.sqnr_low_db)] * is_compared
        share = [_share(each)] * has_classes
        table.add_row(each.name, str(each.samples), *noise, *share, *values.get(each.name, ()))
    table.caption = what
    if len(shown) < len(groups):
        table.caption += f": the {len(shown)} worst of {len(groups)} groups"
    return table


def _decibels(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return "equal" if ratio == math.inf else f"{ratio:.1f} dB"


def _share(group: GroupCloseness) -> str:
    if group.agreement is None or group.agreement_interval is None:
        return ""
    low, high = group.agreement_interval
    return f"{100 * group.agreement:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
