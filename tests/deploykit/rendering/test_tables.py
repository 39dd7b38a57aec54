"""Tables at every width: text is folded, numbers stay whole, columns that do not fit go below."""

import pytest
from rich.cells import cell_len

from deploykit.rendering.notebook import html
from deploykit.rendering.tables import OwnLines, drawn, facts, table
from deploykit.rendering.templates import filled

LONG = "encoder/block_07/" + "x" * 170 + "/kernel:0.end"
OTHER = "decoder/block_12/" + "y" * 170 + "/bias_0:0.end"
NUMBERS = {"ratio": "1.49", "interval": "12.345-67.890", "size": "1,234,567 kB"}


def of(*names, **columns):
    return table(names, {"node": "{}", **(columns or NUMBERS)})


def text_of(found, width):
    return [*found.lines(width)]


@pytest.mark.parametrize("width", [80, 200])
def test_a_long_name_is_folded_and_numbers_stay_whole(width):
    found = text_of(of(LONG, OTHER, "short"), width)
    assert max(map(len, found)) <= width
    rows = [line for line in found if "1.49" in line]
    assert len(rows) == 3
    assert all(number in line for line in rows for number in NUMBERS.values())
    column = "".join(line[: found[1].index("ratio")].split(" ")[0] for line in found[3:])
    assert column == f"{LONG}{OTHER}short"


@pytest.mark.parametrize(("width", "parts"), [(40, 3), (48, 2), (60, 1)])
def test_columns_that_do_not_fit_follow_below_with_the_names(width, parts):
    found = text_of(of(LONG, OTHER), width)
    assert max(map(len, found)) <= width
    assert sum(line.startswith("node ") for line in found) == parts
    for number in NUMBERS.values():
        assert sum(number in line for line in found) == 2


def test_one_caption_stands_below_all_parts():
    found = of(LONG, OTHER)
    found.caption = "in a call"
    assert text_of(found, 40).count("in a call") == 1


def test_without_a_width_everything_is_in_one_line():
    rows = [line.split()[0] for line in text_of(of(LONG, OTHER), None) if "1.49" in line]
    assert rows == [LONG, OTHER]


def test_what_fits_is_the_same_at_every_width():
    assert text_of(of("conv", "dense"), 70) == text_of(of("conv", "dense"), None)


def cell_of(row):
    return OwnLines(filled("{0}[[\n{1}]]", row))


def test_a_name_adds_no_line():
    row = {"name": "a\nb\x1b[31m", "::error::c": "d"}
    shown = table([row], {"x\ny": "{name}", "z": lambda row: row["name"]}, "e\nf")
    lines = [*drawn(["g\nh", shown, facts(row, {"i\nj": "{name}"}), OwnLines("::notice::k")])]
    assert len(lines) == 11
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if line.startswith("::")] == ["::notice::k"]
    assert html([shown, "g\nh"]).count("\\n") == 5


def test_cells_of_two_lines_and_a_total():
    rows = [("a", "Conv2D", "1.5", "[1, 2]"), ("all", None, "2", None)]
    found = table(
        rows,
        {"node": "{0}[[\n{1}]]", "ms": lambda row: cell_of(row[2:])},
        "in a call",
        has_total=True,
    )
    assert text_of(found, None) == [
        "",
        "node         ms",
        "───────────────",
        "a           1.5",
        "Conv2D   [1, 2]",
        "",
        "all           2",
        "",
        "in a call",
    ]


def test_a_column_without_values_is_left_out_and_a_missing_value_is_a_dash():
    found = table([{"a": 1, "b": None, "c": ""}, {"a": 2, "b": 0, "c": []}],
                  {"a": "{a}", "b": "{b}", "c": "{c}"})  # fmt: skip
    assert found.headings == ("a", "b")
    assert found.rows == [("1", "-"), ("2", "0")]


def test_headings_may_be_the_same():
    found = table([1], {"model": "{}"}, more=[("model", lambda row: f"{row + 1}")])
    assert (found.headings, found.rows) == (("model", "model"), [("1", "2")])


def test_numbers_are_on_the_right_and_text_on_the_left():
    found = table(["x"], {"name": "{}", "ms": "1.5 ms", "gain": "+3", "op": "Conv2D"})
    assert found.texts == (0, 3)


def test_facts_have_no_heading_and_no_empty_value():
    found = facts({"cpu": "x", "gpu": None}, {"CPU": "{cpu}", "GPU": "{gpu}", "cores": "2"})
    assert text_of(found, None) == ["", "CPU     x", "cores   2", ""]


def test_brackets_are_no_markup_and_control_codes_are_shown():
    found = text_of(of("[red]x[/red]\x1b[31m"), 80)
    assert any("[red]x[/red]\\x1b[31m " in line for line in found)


@pytest.mark.parametrize("width", range(26, 66, 7))
def test_characters_of_two_columns(width):
    found = text_of(of("模型" * 20 + "é" * 3, ms="1.5"), width)
    assert max(map(cell_len, found)) <= width
    assert sum(line.count("模") for line in found) == 20


def test_lines_stay_as_they_are():
    found = list(drawn(["x" * 300, of(LONG)], 40))
    assert found[0] == "x" * 300
    assert max(map(len, found[1:])) < 100


def test_a_terminal_in_the_environment_cuts_no_column(monkeypatch):
    found = of(LONG, OTHER)
    before = text_of(found, None)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert text_of(found, None) == before
    assert LONG in "\n".join(before)
