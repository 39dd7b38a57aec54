"""What limits a run follows from its rates and the cores in use."""

import pytest

from deploykit.input.verdict import COMPUTE, INPUT, SHARING, Rates, verdict


def rates(both, compute, input, cpu=0.5, cores=2.0):  # noqa: A002  the field's name
    return Rates(both, compute, input, cpu, cores)


def test_ceiling_and_floor():
    found = rates(40, 100, 50)
    assert found.ceiling == 50
    assert found.floor == pytest.approx(100 / 3)
    assert found.share == pytest.approx(0.8)
    assert rates(1, 10, 10).floor == pytest.approx(5)


TABLE = [
    # both, compute, input, cpu: style and data -> limit, a word of the advice
    (99, 100, 1000, 0.2, "tfdata", "records", COMPUTE, "deploykit optimize"),
    (100, 100, 101, 1.9, "queue", "csv", COMPUTE, "deploykit optimize"),
    (90, 100, 100, 1.9, "tfdata", "csv", COMPUTE, "deploykit optimize"),
    (49, 100, 50, 0.5, "tfdata", "csv", INPUT, "deploykit records"),
    (50, 100, 50, 2.0, "tfdata", "images", INPUT, "deploykit records"),
    (50, 100, 50, 2.0, "tfdata", "records", INPUT, "all cores read"),
    (50, 100, 50, 0.2, "tfdata", "records", INPUT, "faster disk"),
    (49, 100, 50, 1.0, "queue", "csv", INPUT, "--input tfdata"),
    (33, 100, 50, 0.6, "feed", "csv", INPUT, "--input tfdata"),
    (66, 100, 200, 1.6, "feed", "csv", INPUT, "--input tfdata"),
    (60, 100, 80, 1.8, "tfdata", "csv", SHARING, "deploykit records"),
    (60, 100, 80, 1.8, "tfdata", "images", SHARING, "decoding"),
    (60, 100, 80, 1.8, "tfdata", "records", SHARING, "thread pool"),
    (60, 100, 80, 1.8, "queue", "records", SHARING, "thread pool"),
    (60, 100, 80, 1.8, "feed", "arrays", SHARING, "less CPU than Python"),
    (60, 100, 80, 1.5, "tfdata", "arrays", INPUT, "cache"),
]


@pytest.mark.parametrize(("both", "c", "i", "cpu", "style", "kind", "limit", "advice"), TABLE)
def test_one_verdict_with_the_next_thing_to_try(both, c, i, cpu, style, kind, limit, advice):
    found = verdict(style, kind, rates(both, c, i, cpu))
    assert found.limit == limit
    assert advice in found.advice
    assert found.document() == {
        "verdict": limit, "reason": found.reason, "next": found.advice,
    }  # fmt: skip


def test_reasons_state_their_figures():
    assert "60 % of the ceiling" in verdict("queue", "csv", rates(60, 100, 200, 0.5)).reason
    assert "1.8 of 2 cores" in verdict("queue", "csv", rates(60, 100, 200, 1.8)).reason
    assert "97 % of the compute-only rate" in verdict("queue", "csv", rates(97, 100, 200)).reason


def test_what_is_not_computed_on_the_cpu_is_not_quantized():
    advice = {
        where: verdict("tfdata", "csv", rates(99, 100, 1000), where).advice
        for where in ("cpu", "gpu", "simulated")
    }
    assert ["quantize" in each for each in advice.values()] == [True, False, False]
    assert "simulate a faster one" in advice["simulated"]
