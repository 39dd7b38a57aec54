"""With a clock wound by hand: a command ends within its minutes, or says what it needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.quantization.search import LEAST
from deploykit.quantization.search_task import DEPTHS, GRAPHS, OBSERVED, Budget
from deploykit.quantization.sensitivity import JUDGED
from tests.support import Containing, shows

ROUNDS = 6


class Hand:
    """A clock."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def budget_of(minutes: float, start: float, sample: float, opening: float = 5.0) -> Budget:
    """Return the budget of a command that has opened a model and run it on 16 samples."""
    hand = Hand()
    budget = Budget(minutes, hand)
    budget.held_out, budget.calibrating = 16, 48
    hand.seconds += opening + start + 16 * sample
    budget.measured(start, 16 * sample)
    return budget


def spend(budget: Budget, layers: int, trials: int) -> dict[str, int]:
    """Let each step take what it takes where the machine is as it was measured."""
    hand, spent = budget.now, {}
    assert isinstance(hand, Hand)
    samples = budget.calibrating_samples(LEAST)
    hand.seconds += 2 * (budget.start + OBSERVED * budget.sample * samples)
    fewer = budget.ranking_samples(layers, JUDGED)
    if fewer < budget.held_out and budget.left > budget.for_trials:
        hand.seconds += budget.start
    end, spent["ranked"] = budget.ranking_until(), 0
    while spent["ranked"] < layers and hand() < end:
        hand.seconds += 0.5 + 1.5 * budget.sample * fewer
        spent["ranked"] += 1
    spent["trials"] = 0
    while not spent["trials"] or (spent["trials"] < trials and not budget.is_over):
        hand.seconds += 1 + 1.5 * budget.sample * budget.held_out
        budget.tried(1 + 1.5 * budget.sample * budget.held_out)
        spent["trials"] += 1
    spent["rounds"] = budget.timing_rounds(ROUNDS)
    hand.seconds += budget.to_time(spent["rounds"]) if spent["rounds"] else 0
    depth = budget.comparing(GRAPHS)
    spent["depth"] = DEPTHS.index(depth)
    hand.seconds += budget.to_compare(depth) + budget.last
    spent["samples"] = samples
    return spent


@pytest.mark.sampled
@given(
    st.floats(0.1, 20),
    st.floats(0.5, 10),
    st.floats(1e-4, 2),
    st.integers(1, 300),
    st.integers(1, 18),
)
def test_it_ends_in_time_or_says_before_what_it_needs(minutes, start, sample, layers, trials):
    budget = budget_of(minutes, start, sample)
    said, before = budget.shortfall(LEAST), budget.began
    spend(budget, layers, trials)
    took = (budget.now() - before) / 60
    if not said:
        assert took <= 1.25 * minutes
        return
    needed = float(said.split("about ")[1].split(" minutes")[0])
    assert needed >= minutes
    # A start of the judge that ranks, and one layer, may come on top.
    assert took <= 1.25 * needed


def test_with_time_nothing_is_left_out():
    budget = budget_of(20, 4, 0.01)
    assert budget.shortfall(LEAST) == ""
    found = spend(budget, 50, 12)
    assert found == {"ranked": 50, "trials": 12, "rounds": 6, "depth": 0, "samples": 48}


def test_with_little_time_the_least_is_done():
    budget = budget_of(0.1, 4, 0.05)
    said = budget.shortfall(LEAST)
    expected = {"minutes": Containing("1."), "starts": Containing("10"), "seconds": "4.0"}
    assert shows(said, "budget-too-short", ms=50, **expected)
    found = spend(budget, 50, 12)
    assert found == {"ranked": 0, "trials": 1, "rounds": 0, "depth": 3, "samples": LEAST}


@pytest.mark.parametrize("minutes", [0.7, 1, 2, 4])
def test_more_time_buys_more(minutes):
    few, many = (spend(budget_of(m, 4, 0.02), 50, 12) for m in (minutes, 2 * minutes))
    assert few["ranked"] <= many["ranked"]
    assert few["trials"] <= many["trials"]
    assert few["depth"] >= many["depth"]
