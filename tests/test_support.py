"""What the tests share tells apart what they rely on it to tell apart."""

import pytest

from tests.support import because, calls_of, lines_with, showing


def linear(count):
    return [abs(number) for number in range(count)]


def quadratic(count):
    return [abs(number) for _ in range(count) for number in range(count)]


@pytest.mark.parametrize(("act", "times"), [(linear, 2), (quadratic, 4)])
def test_the_number_of_calls_shows_how_work_grows(act, times):
    one, two = (calls_of(lambda n=n: act(n)) for n in (100, 200))
    assert two == pytest.approx(times * one, rel=0.1)


def test_a_sentence_with_another_value_is_another():
    text = because("device-unfit", device="GPU:0", op="Relu")
    assert text == showing("device-unfit", op="Relu")
    assert text != showing("device-unfit", op="Elu")
    assert lines_with(f"a\n{text}", "device-unfit", device="GPU:0") == [text]
    assert lines_with(text, "device-unfit", device="GPU:1") == []
