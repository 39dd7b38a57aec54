"""What `ship` prints fits a terminal, and states each fact once."""

import pytest

from deploykit.rendering.formatters.shipped import lines
from deploykit.rendering.tables import Table, drawn
from tests.support import lines_with

LOADED = "measured on a loaded machine: other processes used 1.2 of 2 cores"


def figure(title, unit, before, after, ratio=None, **more):
    values = [None if each is None else dict(zip(("value", "low", "high"), each, strict=True))
              for each in (before, after, ratio)]  # fmt: skip
    return {"title": title, "unit": unit, "before": values[0], "after": values[1],
            "ratio": values[2], "verdict": "not measured", "loaded": "", **more}  # fmt: skip


def document(**more):
    figures = {
        "accuracy": figure("accuracy (top1)", "share", (0.3333, 0.1804, 0.5333),
                           (0.3333, 0.1804, 0.5333), change={"value": 0},
                           verdict="+0 points (-8.9 to +8.9)"),
        "size": figure("size of the graph", "bytes", (212e6, None, None), (53e6, None, None),
                       (4.0, 4.0, 4.0)),
        "p50": figure("latency of the model alone (p50)", "ms", (10.1, 9.66, 10.5),
                      (0.0546, 0.0539, 0.0553), (185.9, 173.25, 200.75), loaded=LOADED),
        "rate": figure("throughput of the model alone", "items/s", (2462.0, None, None),
                       (4063.0, None, None), (1.53, 0.95, 1.74)),
        "cpu": figure("CPU time per item of the model alone", "ms/item", (0.127, None, None),
                      (0.0699, None, None), (1.62, 1.57, 1.67), loaded=LOADED),
    }  # fmt: skip
    return {"name": "net", "precision": "float32", "reason": "int8 needs --calibration DATA",
            "verdict": f"net is shipped in float32, 1.86x (1.73-2.00) the speed ({LOADED}).",
            "figures": figures, "stages": [], "commands": [{"what": "serve", "command": "d"}],
            **more}  # fmt: skip


def test_the_table_fits_80_columns_whole():
    table = next(each for each in lines(document()) if isinstance(each, Table))
    found = list(table.lines(80))
    assert max(map(len, found)) <= 80
    text = "\n".join(found)
    assert "…" not in text
    for each in ("10.1 ms", "9.66-10.5", "0.0539-0.0553", "173.25-200.75", "inconclusive",
                 "loaded machine", "33.3 %", "-8.9 to +8.9", "2462/s"):  # fmt: skip
        assert each in text


def test_float32_and_the_load_are_stated_once():
    text = "\n".join(drawn(lines(document()), 80))
    assert len(lines_with(text, "shipped-in", name="net", precision="float32")) == 1
    assert text.count(LOADED) == 1
    assert "\n1.86x (1.73-2.00) " in text


@pytest.mark.parametrize("verdict", ["net is shipped in int8, 2x the speed.", "Something else."])
def test_another_verdict_stays_whole(verdict):
    found = list(lines(document(precision="int8", verdict=verdict)))
    assert verdict in found
