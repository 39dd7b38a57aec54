"""Tables at every width: names are cut in the middle, figures stay whole, columns go below."""

import pytest

from deploykit.text.tables import NARROW, Table, drawn, new_table, shortened

LONG = "encoder/block_07/" + "x" * 170 + "/kernel:0.end"
OTHER = "decoder/block_12/" + "y" * 170 + "/bias_0:0.end"
FIGURES = ("not significant", "12.345 to 67.890", "1,234,567 kB")


def table(*names: str) -> Table:
    found = new_table("node", "ratio", "interval", "size")
    for name in names:
        found.add_row(name, *FIGURES)
    return found


def rows(found: Table, width: int | None) -> list[str]:
    return [line for line in found.lines(width) if FIGURES[0] in line]


@pytest.mark.parametrize("width", [80, 200])
def test_a_long_name_is_cut_in_the_middle(width):
    assert len(LONG) == len(OTHER) == 200
    found = rows(table(LONG, OTHER, "short"), width)
    assert len(found) == 3
    for line, name in zip(found, (LONG, OTHER), strict=False):
        start, end = line.split()[0].split("…")
        assert name.startswith(start)
        assert name.endswith(end)
        assert 0 <= len(start) - len(end) <= 1
        assert len(start) + 1 + len(end) >= NARROW
    for line in found:
        assert all(figure in line for figure in FIGURES)
    assert {len(line) for line in table(LONG, OTHER).lines(width) if line} == {width}


@pytest.mark.parametrize("width", [32, 40, 55])
def test_columns_that_do_not_fit_follow_below_with_the_names(width):
    found = list(table(LONG, OTHER).lines(width))
    assert max(map(len, found)) <= width
    assert sum(line.startswith(" node ") for line in found) == (2 if width == 55 else 3)
    for figure in FIGURES:
        assert sum(line.endswith(figure) or f"{figure}  " in line for line in found) == 2


def test_one_caption_stands_below_all_parts():
    found = table(LONG, OTHER)
    found.caption = "in a call"
    assert list(found.lines(40)).count("in a call") == 1


def test_without_a_width_everything_is_whole():
    first, second = rows(table(LONG, OTHER), None)
    assert first.split()[0] == LONG
    assert second.split()[0] == OTHER


def test_what_fits_is_not_touched():
    found = table("conv", "dense")
    assert list(found.lines(70)) == list(found.lines(None))


def test_two_names_never_look_alike():
    names = [f"{'a' * 95}{digit}{'b' * 104}" for digit in "0123"]
    for width in (20, 80, 140):
        shown = {line.split()[0] for line in rows(table(*names), width)}
        assert len(shown) == 4
    assert max(map(len, rows(table(names[0]), 80))) == 80  # alone, it can be cut so far


def test_only_columns_of_text_are_cut():
    found = new_table("signature", "takes", "gives", texts=("takes",))
    found.add_row("serving_default", "image " * 40, "y" * 30)
    (_, line) = (line for line in found.lines(80) if line.startswith(" s"))
    assert len(line) == 80
    assert line.startswith(" serving_default   image image ")
    assert line.endswith("y" * 30)
    assert line.count("…") == 1


def test_cells_of_two_lines_and_sections():
    found = new_table("node", "ms")
    found.add_row("a\nConv2D", "1.5\n[1, 2]")
    found.add_section()
    found.add_row("all", "2")
    found.caption = "in a call"
    assert list(found.lines()) == [
        "",
        " node         ms",
        " ───────────────",
        " a           1.5",
        " Conv2D   [1, 2]",
        "",
        " all           2",
        "",
        "in a call",
    ]


def test_brackets_are_no_markup():
    assert any(" [red]x[/red] " in line for line in table("[red]x[/red]").lines())


@pytest.mark.parametrize("width", range(2, 30))
def test_characters_of_two_columns(width):
    from rich.cells import cell_len

    found = shortened("模型" * 20 + "é" * 3, width)
    assert width - 1 <= cell_len(found) <= width
    assert found.count("…") == 1


def test_lines_stay_as_they_are():
    found = list(drawn(["x" * 300, table(LONG)], 40))
    assert found[0] == "x" * 300
    assert max(map(len, found[1:])) < 100


def test_names_of_layers_lose_their_common_scopes_where_a_table_is_too_wide():
    table = new_table("layer", "time ms")
    scope = "efficientnet/blocks/stage_with_a_long_name"
    for name in (f"{scope}/conv/Conv2D", f"{scope}/conv/BiasAdd", "total"):
        table.add_row(name, "1.25")
    narrow, wide = "\n".join(table.lines(40)), "\n".join(table.lines(200))
    assert "…/Conv2D" in narrow
    assert "…/BiasAdd" in narrow
    assert "total" in narrow
    assert "efficientnet" not in narrow
    assert f"{scope}/conv/Conv2D" in wide
