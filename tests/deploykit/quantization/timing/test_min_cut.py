"""The choice costs no more than any other one, and what must stay float does."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.quantization.timing.int8_choice import FLOAT, Border, Costs, Part

TIMES = st.integers(0, 20)


@st.composite
def nets(draw):
    """Return parts, and tensors that later parts read; some come from ops that are always float."""
    count = draw(st.integers(1, 8))
    names = [str(number) for number in range(count)]
    parts = {name: Part(draw(TIMES), draw(TIMES)) for name in names}
    borders = []
    for number, producer in enumerate((FLOAT, FLOAT, *names)):
        later = [*names[max(number - 1, 0) :], FLOAT]
        readers = draw(st.lists(st.sampled_from(later), max_size=3, unique=True))
        borders.append(Border(producer, tuple(readers), draw(TIMES), draw(TIMES)))
    return parts, borders, draw(st.sets(st.sampled_from(names), max_size=3))


def every_choice(parts, stay_float):
    free = sorted(parts.keys() - stay_float)
    return [set(each) for size in range(len(free) + 1) for each in combinations(free, size)]


@pytest.mark.sampled
@given(nets())
@settings(max_examples=100)
def test_no_other_choice_costs_less(net):
    parts, borders, stay_float = net
    found = Costs(parts, borders).cheapest(stay_float)
    assert not found & stay_float
    times = [Costs(parts, borders).total(each) for each in every_choice(parts, stay_float)]
    assert Costs(parts, borders).total(found) == min(times)


@pytest.mark.sampled
@given(nets())
@settings(max_examples=100)
def test_of_equal_choices_it_is_the_smallest(net):
    parts, borders, stay_float = net
    found = Costs(parts, borders).cheapest(stay_float)
    least = Costs(parts, borders).total(found)
    equal = [e for e in every_choice(parts, stay_float) if Costs(parts, borders).total(e) == least]
    assert all(found <= each for each in equal)


def chain(*times, crossing=10):
    """Return layers one behind the other, between a float input and a float output."""
    parts = {str(n): Part(*each) for n, each in enumerate(times)}
    places = [FLOAT, *parts, FLOAT]
    borders = [Border(a, (b,), crossing, crossing) for a, b in pairwise(places)]
    return parts, borders


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(100, 50)], {"0"}),
        ([(100, 85)], set()),  # the two borders cost more than it gains
        ([(100, 50), (30, 40), (100, 50)], {"0", "1", "2"}),  # cheaper than two more borders
        ([(100, 50), (30, 60), (100, 50)], {"0", "2"}),
        ([(10, 90), (20, 90), (30, 90)], set()),
    ],
)
def test_chains(times, expected):
    assert Costs(*chain(*times)).cheapest() == expected


def test_what_must_stay_float_does():
    parts, borders = chain((100, 50), (100, 1), (100, 50))
    assert Costs(parts, borders).cheapest({"1"}) == {"0", "2"}


def test_a_tensor_is_converted_once_for_all_its_readers():
    parts = {"a": Part(10, 10), "b": Part(20, 14), "c": Part(20, 14)}
    borders = [Border(FLOAT, ("b", "c"), 10, 10)]
    assert Costs(parts, borders).cheapest() == {"b", "c"}
    apart = [Border(FLOAT, (reader,), 10, 10) for reader in ("b", "c")]
    assert Costs(parts, apart).cheapest() == set()


def test_long_chains():
    parts, borders = chain(*[(100, 50)] * 500)
    assert len(Costs(parts, borders).cheapest()) == 500
