"""Templates show values as people read them, and leave out what is not known."""

import math
from types import SimpleNamespace

import pytest

from deploykit.rendering.templates import filled, filled_lines, rendered_rows

VALUE = SimpleNamespace(
    name="net", rows=1200, size=4_900_000, share=0.975, ends=(0.87, 0.995), change=(-0.5, 0.3),
    noise=math.inf, seconds=750, none=None, names=["a", "b", "c"], is_on=False,
    latency={"p99.9": 4.8, "max": 9.0},
)  # fmt: skip


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{name}: {rows:n row}", "net: 1,200 rows"),
        ("{size:size}", "4.9 MB"),
        ("{share:share}", "97.5 %"),
        ("{share:percent}", "98 %"),
        ("{ends:share}", "87.0-99.5 %"),
        ("{ends.0:number}", "0.870"),
        ("{change:number}", "-0.500 to 0.300"),
        ("{noise:dB}", "equal"),
        ("{seconds:time}", "12:30"),
        ("{names:list 2}", "a, b and 1 more"),
        ("{names}", "a, b, c"),
        ("{is_on:on}", "off"),
        ("{latency.p99.9:.2f}/{latency.max:g}", "4.80/9"),
        ("{name}[[ ({none})]]", "net"),
        ("{name}[[ ({rows})]]", "net (1200)"),
        ("{none}", None),
        ("{latency.p50}", None),
    ],
)
def test_a_template_is_filled(template, text):
    assert filled(template, VALUE) == text


def test_braces_of_values_are_text():
    assert filled("{0}[[ {1}]]", ("{x}", "[[{y}]]")) == "{x} [[{y}]]"


def test_an_unknown_attribute_is_an_error():
    with pytest.raises(AttributeError):
        filled("{nmae}", VALUE)


def test_lines_with_missing_values_are_left_out():
    assert [*filled_lines(VALUE, "{name}", "{none}", "{rows}")] == ["net", "1200"]
    assert [*rendered_rows([{"a": 1}, {"a": None}, {"a": 0}], "{a}")] == ["1", "0"]
