"""The verdict of a check follows from its interval and its limit alone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from deploykit.benchmarking.statistics import Ratio
from deploykit.gating.limits import ERROR, GateLimits
from deploykit.gating.quality import error_increase
from deploykit.gating.result import GateResult
from deploykit.gating.starts import FEWEST, Start, paired_ratio, start_checks
from deploykit.gating.verdict import (
    FAIL,
    INCONCLUSIVE,
    NO_LIMIT,
    PASS,
    UNKNOWN,
    Check,
    increase,
    percent,
    verdict_of,
)
from deploykit.quantization.metrics import Score
from deploykit.transforms.common.errors import GraphError, InconclusiveError, VerificationError
from tests.support import because, raises, shows

NUMBERS = some.floats(-2, 2)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_a_verdict_needs_the_whole_interval(one, other, limit):
    low, high = sorted((one, other))
    found = verdict_of((low, high), limit)
    assert (found == PASS) == (low <= limit and high <= limit)
    assert (found == FAIL) == (low > limit and high > limit)
    assert found in (PASS, FAIL, INCONCLUSIVE)
    assert verdict_of((low, high), None) == NO_LIMIT


@given(NUMBERS, NUMBERS, NUMBERS, some.floats(0, 1))
def test_a_wider_interval_never_turns_one_verdict_into_its_opposite(one, other, limit, more):
    low, high = sorted((one, other))
    narrow, wide = verdict_of((low, high), limit), verdict_of((low - more, high + more), limit)
    assert wide in (narrow, INCONCLUSIVE)


@given(NUMBERS, NUMBERS, NUMBERS, some.floats(0, 1))
def test_a_wider_limit_never_fails_what_a_narrow_one_passes(one, other, limit, more):
    low, high = sorted((one, other))
    order = [PASS, INCONCLUSIVE, FAIL]
    first, second = (verdict_of((low, high), item) for item in (limit + more, limit))
    assert order.index(first) <= order.index(second)


@pytest.mark.sampled
@given(some.floats(-2, 2))
def test_an_unknown_interval_decides_nothing(limit):
    assert verdict_of(UNKNOWN, limit) == INCONCLUSIVE
    assert verdict_of((math.nan, math.nan), limit) == INCONCLUSIVE


@given(some.floats(0.2, 5), some.floats(0, 1))
def test_an_increase_of_time_is_the_reciprocal_of_speed(speed, reach):
    value, (low, high) = increase(Ratio.around(math.log(speed), reach))
    assert low <= value * (1 + 1e-9) + 1e-9
    assert value <= high * (1 + 1e-9) + 1e-9
    assert math.isclose(value, 1 / speed - 1, abs_tol=1e-9)
    assert increase(Ratio.around(0.0, math.inf))[1] == (-1, math.inf) or (
        increase(Ratio.around(0.0, math.inf))[1] == UNKNOWN
    )


def check(verdict, name="size"):
    interval = {PASS: (0, 0.1), FAIL: (0.6, 0.8), INCONCLUSIVE: (0, 0.8), NO_LIMIT: (0, 0.8)}
    limit = None if verdict == NO_LIMIT else 0.5
    found = Check.of(name, (1.0, 1.1), "bytes", 0.1, interval[verdict], limit, "exact size")
    assert found.verdict == verdict
    return found


def result(*verdicts):
    return GateResult("old.pb", "new.pb", tuple(map(check, verdicts)), 0, 0, 0.99,
                      "2026-11-27T23:00:00", 1.0, 60.0, "cpu")  # fmt: skip


@given(some.lists(some.sampled_from([PASS, FAIL, INCONCLUSIVE, NO_LIMIT])))
def test_a_failure_outweighs_what_is_inconclusive_and_nothing_passes_alone(verdicts):
    found = result(*verdicts)
    if FAIL in verdicts:
        with raises(VerificationError, "gate-failed", source="new.pb") as error:
            found.check()
        assert error.value.exit_status == 5
    elif INCONCLUSIVE in verdicts or PASS not in verdicts:
        with raises(InconclusiveError, "gate-inconclusive", source="new.pb") as error:
            found.check()
        assert error.value.exit_status == 7
    else:
        found.check()
        assert found.verdict == PASS


def test_what_is_inconclusive_names_the_smallest_difference_it_can_detect():
    found = check(INCONCLUSIVE)
    assert found.detectable == 0.7000000000000001
    assert because("smallest-detectable", difference="70 %") in found.sentence
    unknown = Check.of("p99", (1, 1), "ms", 0.0, UNKNOWN, 0.5, "wall time")
    assert unknown.detectable is None
    assert because("smallest-detectable", difference="unknown") in unknown.sentence


def timed(change, interval, note=""):
    return Check.of("p99", (1.0, 1.1), "ms", change, interval, 0.5, "wall time", note)


def test_an_interval_with_one_known_end_shows_it():
    for interval in ((0.05, math.inf), (-math.inf, 0.05)):
        found = timed(0.02, interval)
        assert found.is_known
        assert "+5.00" in found.change_text
        assert found.detectable is None


@pytest.mark.parametrize("interval", [UNKNOWN, (math.nan, math.nan)])
def test_of_an_unknown_interval_only_the_change_is_shown(interval):
    """Not that it is slower, which nothing proves."""
    found = timed(0.1, interval)
    assert not found.is_known
    assert found.change_text == "1.1x"


@pytest.mark.parametrize(
    ("unit", "values", "texts"),
    [
        ("", (0.5, 0.12345), ("50.00 %", "12.35 %")),
        ("ms", (12.5, None), ("12.5 ms", "-")),
        ("bytes", (100.4, 3e6), ("100 B", "3 MB")),
    ],
)
def test_values_have_their_unit(unit, values, texts):
    found = Check.of("value", values, unit, 0.1, UNKNOWN, None, "exact")
    assert found.values == texts


def test_only_what_is_inconclusive_says_what_it_can_detect():
    texts = {each: check(each).sentence for each in (PASS, FAIL, INCONCLUSIVE, NO_LIMIT)}
    assert [each for each, text in texts.items() if shows(text, "smallest-detectable")] == [
        INCONCLUSIVE
    ]


def test_what_cannot_be_compared_says_why():
    assert "a note" in timed(math.nan, UNKNOWN, "a note").sentence


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.99951, "+100 %"), (0.99949, "+99.9 %"), (-0.99951, "-100 %"), (12.345, "+1234 %"),
        (0.099951, "+10.0 %"), (0.099949, "+9.99 %"), (0.5, "+50.0 %"), (-0.00001, "+0.00 %"),
    ],
)  # fmt: skip
def test_a_share_has_three_digits(share, text):
    assert percent(share) == text


@pytest.mark.parametrize("low", [0.25, 0.5, 2.0])
def test_an_increase_has_the_ends_of_the_ratio(low):
    _, interval = increase(Ratio(low, low, 2 * low))
    assert interval == (1 / (2 * low) - 1, 1 / low - 1)


def test_a_gate_without_any_limit_is_refused():
    off = dict.fromkeys(
        ("max_accuracy_drop", "max_latency_increase", "max_size_increase", "max_memory_increase")
    )
    GateLimits(**off).check()  # signatures are compared
    with raises(GraphError, "gate-without-limit"):
        GateLimits(**off, allow_signature_change=True).check()


def test_all_comparisons_and_looks_share_the_error():
    every = GateLimits(min_agreement=0.9, max_p99_increase=0.1, max_startup_increase=0.1)
    for limits, count in ((every, 5), (GateLimits(), 3)):
        last, looks = 1 - limits.confidence, 3 * (1 - limits.look_confidence)
        assert math.isclose(count * (last + looks) / 2, ERROR)
    assert every.quality_z > GateLimits().quality_z


def test_few_starts_prove_nothing():
    pairs = [(Start(1.0, 500), Start(1.0, 900))] * (FEWEST - 1)
    memory, startup = start_checks(pairs, GateLimits(), 0.998)
    assert (memory.verdict, startup.verdict) == (INCONCLUSIVE, NO_LIMIT)
    assert str(FEWEST) in memory.note
    memory, _ = start_checks([*pairs, pairs[0]], GateLimits(), 0.998)
    assert memory.verdict == FAIL


def test_starts_that_are_equal_by_chance_have_an_interval():
    ratio = paired_ratio([(5.0, 5.0)] * FEWEST, 0.004, 0.998)
    assert ratio.low < 0.99
    assert ratio.high > 1.01


def test_intervals_of_pairs_hold_their_confidence():
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(2000):
        first, second = np.exp(rng.normal(0, 0.02, (2, 5)))
        ratio = paired_ratio(list(zip(first, second, strict=True)), 0.02, 0.95)
        wrong += not ratio.low <= 1 <= ratio.high
    assert 60 <= wrong <= 140


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(("first", "second", "change", "verdict"), [
    (1.0, 1.005, Score(0.005, (0.004, 0.006)), PASS),
    (2.0, 2.2, Score(0.2, (0.1, 0.3)), FAIL),
    (1.0, NAN, Score(NAN), FAIL), (1.0, INF, Score(INF), FAIL),  # its outputs are no numbers
    (0.0, 0.0, Score(0.0), PASS), (0.0, 0.1, Score(0.1), FAIL),  # a baseline without errors
    (NAN, 1.0, Score(NAN), INCONCLUSIVE), (1.0, 1.0, Score(0.0), INCONCLUSIVE),
])  # fmt: skip
def test_an_error_grows_by_a_share_of_the_baseline(first, second, change, verdict):
    grown, interval = error_increase(first, second, change)
    check = Check.of("error (mae)", (first, second), "mae", grown, interval, 0.01, "samples")
    assert check.verdict == verdict
    assert check.sentence
