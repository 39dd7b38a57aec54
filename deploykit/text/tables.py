"""Tables and figures as people read them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as Table


def size(count: int | None) -> str:
    """Return a number of bytes as people read it: 812 B, 4.9 MB."""
    if count is None:
        return "-"
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_in_unit = count / 1000
        if count_in_unit < 1000:
            return (
                f"{count_in_unit:.3g} {unit}"
                if count_in_unit < 100
                else f"{count_in_unit:.0f} {unit}"
            )
        count = round(count_in_unit)
    return f"{count / 1000:.3g} GB"


def new_table(*columns: str) -> "Table":
    """Return an empty table in the style of the house; the first column holds names."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    return table
