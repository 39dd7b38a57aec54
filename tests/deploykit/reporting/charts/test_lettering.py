"""Lines of a text are no wider than they may be, hold all of it, and names stay apart."""

import pytest

from deploykit.reporting.charts.lettering import all_wrapped, clean, text_width, wrapped

LONG = "efficientnet-lite0/blocks_24/depthwise_conv2d, batch 8, 2 threads, oneDNN on " * 3


@pytest.mark.parametrize("width", [60.0, 200.0, 370.0])
@pytest.mark.parametrize("text", [LONG, "W" * 300, "模型" * 60, "a b " * 80, "x"])
def test_lines_fit_and_lose_nothing(text, width):
    lines = wrapped(text, 12, width, 10_000)
    assert all(text_width(line, 12) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    cut = wrapped(text, 12, width, 2)
    assert len(cut) <= 2
    assert all(text_width(line, 12) <= width for line in cut)
    if len(lines) > 2:
        assert cut[0][:3] == text[:3]
        assert "…" in "".join(cut)


def test_names_that_differ_in_the_middle_stay_apart():
    names = [f"{'start ' * 20}{n}{' end' * 30}" for n in range(3)]
    found = all_wrapped(names, 12, 300)
    assert len({tuple(lines) for lines in found}) == 3
    endless = [f"{'start ' * 900}{n}{' end' * 900}" for n in range(3)]
    found = all_wrapped(endless, 12, 300)
    assert [lines[0][:2] for lines in found] == ["1.", "2.", "3."]
    assert max(map(len, found)) <= 2


def test_an_empty_name_is_an_empty_line():
    assert wrapped("", 12, 100, 2) == [""]
    assert clean("a\x07\ud800") == "a??"
