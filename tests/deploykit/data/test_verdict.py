"""What limits a run follows from its rates and the cores in use."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.data.input_speed.bottleneck import (
    BEYOND,
    COMPUTE,
    INPUT,
    SHARING,
    UNDECIDED,
    Rates,
    ReadingCost,
    undecided,
    verdict,
)
from deploykit.transforms.common.documents import document
from tests.support import Containing, assert_golden, because, shows


def rates(both, compute, input, cpu=0.5, cores=2.0, **more):  # noqa: A002  the field's name
    return Rates(both, compute, input, cpu, cores, **more)


def said(style, kind, found, computes="cpu"):
    each = verdict(style, kind, found, computes)
    return f"{each.limit}: {each.reason}; {each.advice}"


def test_ceiling_and_floor():
    found = rates(40, 100, 50)
    assert found.ceiling == 50
    assert found.floor == pytest.approx(100 / 3)
    assert found.share == pytest.approx(0.8)
    assert rates(1, 10, 10).floor == pytest.approx(5)


SLOW = ReadingCost(cpu=0.1, idle_share=0.9, read=2e6, asked=2e6, iowait=0.4)
MEMORY = ReadingCost(cpu=1.9, idle_share=0.0, read=0, asked=2e8, iowait=0.0)


FUSE = replace(SLOW, read=0, iowait=0.0)  # storage that the kernel does not count
BESIDE = rates(60, 100, 80, 1.0, idle=0.0, foreign=1.0, wanted=2.4)
TABLE = [
    # both, compute, input, cpu: style and data -> limit
    (99, 100, 1000, 0.2, "tfdata", "records", COMPUTE),
    (100, 100, 101, 1.9, "queue", "csv", COMPUTE),
    (90, 100, 100, 1.9, "tfdata", "csv", COMPUTE),
    (49, 100, 50, 0.5, "tfdata", "csv", INPUT),
    (50, 100, 50, 2.0, "tfdata", "images", INPUT),
    (50, 100, 50, 0.2, "tfdata", "records", INPUT),
    (49, 100, 50, 1.0, "queue", "csv", INPUT),
    (33, 100, 50, 0.6, "feed", "csv", INPUT),
    (66, 100, 200, 1.6, "feed", "csv", INPUT),
    (60, 100, 80, 1.8, "tfdata", "csv", SHARING),
    (60, 100, 80, 1.8, "tfdata", "images", SHARING),
    (60, 100, 80, 1.8, "tfdata", "records", SHARING),
    (60, 100, 80, 1.8, "queue", "records", SHARING),
    (60, 100, 80, 1.8, "feed", "arrays", SHARING),
    (60, 100, 80, 1.5, "tfdata", "arrays", INPUT),
]
SAID = {
    "a slow disk": [(style, kind, rates(50, 1000, 50, reading=SLOW)) for style, kind in (
        ("feed", "csv"), ("queue", "images"), ("tfdata", "records"), ("pipeline", "csv"))],
    "what is read from memory": [("tfdata", "csv", rates(50, 1000, 50, reading=MEMORY)),
                                 ("feed", "csv", rates(50, 1000, 50, reading=MEMORY))],
    "what waits for a core and not for the disk": [
        ("tfdata", "csv", rates(50, 1000, 50, reading=replace(
            SLOW, idle_share=0.05, iowait=0.0, cpu=0.4)))],
    "storage that the kernel does not count": [
        ("feed", "csv", rates(5, 100, 5, reading=FUSE)),
        ("feed", "csv", rates(5, 100, 5, reading=replace(FUSE, idle_share=0.4))),
        ("pipeline", "own", rates(5, 100, 5, reading=replace(FUSE, asked=0)))],
    "idle cores": [("feed", "csv", rates(60, 100, 200, 0.5, idle=1.4, foreign=0.0, wanted=0.5))],
    "cores of others": [
        ("feed", "csv", rates(60, 100, 200, 0.5, idle=0.0, foreign=1.5, wanted=0.9))],
    "shared cores": [("tfdata", "csv", BESIDE), ("feed", "csv", replace(BESIDE, wanted=1.1)),
                     ("tfdata", "csv", BESIDE, "simulated")],
    "a rate beyond its ceiling": [
        ("queue", "csv", rates(130, 100, 200)), ("queue", "csv", rates(101, 100, 200)),
        ("feed", "csv", rates(50, 101, 9999))],
    "decoding": [(style, kind, rates(50, 1000, 50, reading=replace(MEMORY, decoding=share)))
                 for style, kind, share in (("tfdata", "images", 0.96), ("tfdata", "records", 0.96),
                                            ("feed", "images", 0.96), ("tfdata", "images", 0.2))],
    "shares of the ceiling": [("queue", "csv", rates(60, 100, 200, 0.5)),
                              ("queue", "csv", rates(60, 100, 200, 1.8)),
                              ("queue", "csv", rates(97, 100, 200))],
    "where it computes": [
        ("tfdata", "csv", rates(99, 100, 1000), each) for each in ("cpu", "gpu", "simulated")],
    "the next thing to try": [(style, kind, rates(*made)) for *made, style, kind, _ in TABLE],
}  # fmt: skip


@pytest.mark.golden("input_verdicts")
def test_what_is_said():
    assert_golden(*(
        "\n".join([name, *(f"{each[:2]}: {said(*each)}" for each in several), ""])
        for name, several in SAID.items()
    ))  # fmt: skip


RATE = st.floats(1, 1e6)
CORES = st.floats(0, 4)
SHARE = st.floats(0, 1)
MADE = st.builds(
    Rates, RATE, RATE, RATE, CORES, st.just(4.0), idle=CORES | st.none(), iowait=CORES | st.none(),
    foreign=CORES | st.none(), wanted=st.floats(0, 20) | st.none(),
    reading=st.builds(
        ReadingCost, CORES, SHARE | st.none(), st.floats(0, 1e9) | st.none(),
        st.floats(0, 1e9) | st.none(), CORES | st.none(), SHARE | st.none(),
    ),
)  # fmt: skip
STYLE = st.sampled_from(["feed", "queue", "tfdata", "pipeline"])
KIND = st.sampled_from(["csv", "images", "records", "arrays"])
WHERE = st.sampled_from(["cpu", "gpu", "simulated"])


@pytest.mark.sampled
@given(MADE, STYLE, KIND, WHERE)
def test_rules_hold_for_all_rates(made, style, kind, computes):
    found = verdict(style, kind, made, computes)
    text = said(style, kind, made, computes)
    assert (found.limit == UNDECIDED) == bool(made.unstable)
    assert made.unstable or made.both <= BEYOND * made.ceiling
    if made.unstable:
        assert found.advice == because("measure-again")
        return
    assert not shows(text, "cores-idle") or made.idle >= 0.5
    assert shows(text, "others-take-cores") == (made.foreign is not None and made.foreign >= 0.25)
    if found.limit == COMPUTE:
        assert made.compute <= made.input
        assert max(made.both, made.floor) >= 0.9 * made.compute
    else:
        assert min(made.both, made.floor) < 0.9 * made.compute or made.input < made.compute
    if found.limit == SHARING:
        assert computes != "simulated"
    share = made.reading.decoding
    decodes = kind == "images" and (share is None or share >= 0.5)
    assert not (found.limit == INPUT and decodes and "deploykit records" in text)
    assert shows(text, "disk-is-limit") == (found.limit == INPUT and made.reading.slow_disk)


@given(RATE, RATE, SHARE, STYLE, KIND, WHERE)
def test_other_work_alone_changes_no_limit(compute, input_rate, overlap, style, kind, computes):
    """All rates are halved, and own threads want as much as before."""
    alone = rates(0, compute, input_rate, 1.2, idle=0.8, foreign=0.0, wanted=1.2)
    alone = replace(alone, both=alone.floor + overlap * (alone.ceiling - alone.floor))
    beside = rates(alone.both / 2, compute / 2, input_rate / 2, 0.6, idle=0.0, foreign=1.4,
                   wanted=1.2)  # fmt: skip
    assert (
        verdict(style, kind, alone, computes).limit == verdict(style, kind, beside, computes).limit
    )


def test_rounds_that_contradict_each_other_decide_nothing():
    found = undecided(rates(60, 100, 80, foreign=1.5), {INPUT: 2, COMPUTE: 2, SHARING: 1})
    assert found.limit == "inconclusive"
    assert shows(found.reason, "others-take-cores", used="1.5")
    assert found.reason == Containing(INPUT, "2", COMPUTE, "2", SHARING, "1")


@pytest.mark.parametrize(("both", "c", "i", "cpu", "style", "kind", "limit"), TABLE)
def test_one_verdict(both, c, i, cpu, style, kind, limit):
    found = verdict(style, kind, rates(both, c, i, cpu))
    assert found.limit == limit
    assert document(found) == {
        "verdict": limit, "reason": found.reason, "next": found.advice,
    }  # fmt: skip
