"""Two results side by side: who is whose partner, what is warned of, and how the command ends."""

import json
import re
from dataclasses import replace

import pytest

from deploykit.api.compare import compare
from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.benchmarking.made_up import in_turns, measurement, result, times
from tests.deploykit.conftest import refusals
from tests.support import (
    Containing,
    assert_error,
    assert_golden,
    because,
    raises,
    says,
    showing,
    shows,
)

ON, OFF = RunConfig(onednn=True), RunConfig(onednn=False)


def named(name: str, settings: RunConfig = ON, factor: float = 1.0):
    return measurement(times(factor), name=name, model=name, settings=settings)


def pairs(a, b) -> list[tuple[str, str]]:
    return [(each.a.name, each.b.name) for each in compare(result(*a), result(*b)).pairs]


def test_partners_have_the_same_name_and_settings():
    assert pairs([named("x"), named("y")], [named("y"), named("x")]) == [("x", "x"), ("y", "y")]


def test_the_only_two_are_partners():
    assert pairs([named("x", ON)], [named("y", OFF)]) == [("x", "y")]


def test_partners_are_the_only_ones_with_their_settings():
    a, b = [named("x", ON), named("x off", OFF)], [named("y off", OFF), named("y", ON)]
    assert pairs(a, b) == [("x", "y"), ("x off", "y off")]


def test_what_has_no_partner_is_listed():
    found = compare(result(named("x"), named("p")), result(named("x"), named("q"), named("r")))
    assert [each.name for each in found.pairs] == ["x"]
    assert (found.only_a, found.only_b) == (("p",), ("q", "r"))


def test_no_partners_at_all():
    with raises(GraphError, "no-measurement-pairs", other_measurements=["r"]):
        compare(result(named("p"), named("q")), result(named("r")))


def test_b_is_faster_above_1():
    (pair,) = compare(result(named("x", factor=2)), result(named("x"))).pairs
    assert pair.ratio.value == pytest.approx(2)
    assert pair.judgement.significant


@pytest.mark.parametrize(
    ("b", "warning"),
    [
        (
            result(named("x"), cpu="another"),
            showing("machines-differ", changes=Containing("made up", "another")),
        ),
        (
            result(named("x"), load=[3.5, 1.0, 1.0]),
            showing("measured-under-load", side="b", load=3.5),
        ),
        (
            result(replace(named("x"), facts={"tensorflow": "2.20.0", "inputs": None})),
            showing("facts-differ", name="x", fact="TensorFlow", a="2.21.0", b="2.20.0"),
        ),
        (
            result(replace(named("x"), facts={"tensorflow": "2.21.0", "inputs": {"y": "int8"}})),
            Containing("x: ", "float32 [4]", "int8"),
        ),
        (result(named("x", OFF)), Containing("x: ", "oneDNN on", "oneDNN off")),
        (
            result(replace(named("x"), settled=False)),
            showing("measured-unstable", name="x", side="b"),
        ),
    ],
)  # fmt: skip
def test_warnings(b, warning):
    a = result(named("x"))
    assert compare(a, a).warnings == ()
    assert warning in compare(a, b).warnings


@pytest.fixture
def file(tmp_path):
    def write(name: str, *measurements):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(result(*measurements).document()))
        return path

    return write


def test_command(deploykit, file):
    a, b = file("a", named("x", factor=2), named("p")), file("b", named("x"), named("q", OFF))
    outcome = deploykit("compare", a, b)
    assert outcome.status == 0
    assert "x" in outcome.stdout
    assert "2.000" in outcome.stdout
    assert outcome.stdout == Containing("x: faster", "2.00x", "a: p", "b: q")


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (1.0, says("high-variance", ratio=Containing("1.00x (99.8 % CI 0.8"))),
        (1.2, "inconclusive: " + says("machine-changes", percent=10)),
    ],
)
def test_what_is_not_sure_is_said(deploykit, file, factor, verdict):
    outcome = deploykit("compare", file("a", named("x", factor=factor)), file("b", named("x")))
    assert re.search(f"x: {verdict}", outcome.stdout)


@pytest.mark.parametrize(("bar", "status"), [(0.4, 0), (0.7, 5)])
def test_fail_below(deploykit, file, bar, status):
    a, b = file("a", named("x")), file("b", named("x", factor=2))
    outcome = deploykit("compare", a, b, "--fail-below", bar, "--json")
    assert outcome.status == status
    (found,) = outcome.document["comparisons"]
    assert found["ratio"]["high"] < 0.7
    if status:
        assert shows(outcome.stderr, "slower-than-allowed", worst="x")
        assert outcome.stderr.count("\n") == 1


def test_what_is_not_sure_does_not_fail(deploykit, file):
    """One round tells no interval, so nothing lies below the bar for sure."""
    a, b = file("a", named("x")), file("b", measurement([[90.0] * 50], name="x", settings=ON))
    outcome = deploykit("compare", a, b, "--fail-below", 0.7, "--json")
    assert outcome.status == 0
    (found,) = outcome.document["comparisons"]
    assert (found["ratio"]["low"], found["ratio"]["high"]) == (None, None)
    assert "CI" not in deploykit("compare", a, b).stdout, "the interval is unknown"


def broken(**changes: object) -> str:
    document = result(named("x")).document()
    document["measurements"][0] |= changes
    return json.dumps(document)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("no JSON", says("json-expected")),
        ("[]", says("document-kind", kind="benchmark")),
        ('{"kind": "tuned", "format": 1}', says("document-kind", got="tuned")),
        ('{"kind": "benchmark", "format": 9}', says("format-unsupported", got=9)),
        (broken(rounds_ms=[]), says("not-a")),
        (broken(rounds_ms=[[1.0], []], rounds_seconds=[1, 1]), says("not-a")),
        (broken(rounds_ms=[[0.0]], rounds_seconds=[1]), says("not-a")),
        (broken(rounds_ms=[[float("nan")]], rounds_seconds=[1]), says("not-a")),
        (broken(settings={"speed": 9}), says("not-a")),
    ],
)
def test_wrong_files(deploykit, file, tmp_path, content, says):
    wrong = tmp_path / "wrong.json"
    wrong.write_text(content)
    outcome = deploykit("compare", file("a", named("x")), wrong)
    assert (outcome.status, outcome.printed) == (2, "")
    assert re.search(says, outcome.stderr)
    assert outcome.stderr.startswith(f"deploykit: error: {wrong}: ")
    assert outcome.stderr.count("\n") == 1


WRONG = ("--fail-below=0", "--fail-below=-1", "--fail-below=nan", "--confidence=0",
         "--confidence=1", "--confidence=nan")  # fmt: skip


@pytest.mark.golden("usage/compare")
def test_wrong_numbers(deploykit, file):
    a = file("a", named("x"))
    assert_golden(*refusals(deploykit, ("compare", a, a), WRONG))


def several(factor, seed, **machine):
    """Return a result of three processes with their sessions, slower by a factor."""
    _, each = in_turns(seed, "plain", slowdown=factor, processes="apart", copies=3)
    return result(replace(each, name="x"), **machine)


def saved(path, found):
    path.write_text(json.dumps(found.document()))
    return path


def test_a_baseline_grows_by_what_is_not_slower(deploykit, tmp_path):
    baseline = tmp_path / "baseline.json"
    first = saved(tmp_path / "first.json", several(1.0, 0))
    outcome = deploykit("compare", first, "--baseline", baseline, "--fail-below", 0.95)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert shows(outcome.stdout, "baseline-written", file=baseline)
    for seed in (1, 2):
        outcome = deploykit("compare", saved(tmp_path / f"{seed}.json", several(1.0, seed)),
                            "--baseline", baseline, "--fail-below", 0.95, "--json")  # fmt: skip
        assert outcome.status == 0, outcome.stderr
        assert len(outcome.document["comparisons"]) == 1
    assert len(json.loads(baseline.read_text())["results"]) == 3
    slow = saved(tmp_path / "slow.json", several(1.15, 3))
    outcome = deploykit("compare", slow, "--baseline", baseline, "--fail-below", 0.95)
    assert outcome.status == 5
    assert "x: slower: " in outcome.stdout
    assert len(json.loads(baseline.read_text())["results"]) == 3, "a slower one is kept out"
    assert deploykit("compare", slow, "--baseline", baseline).status == 0
    assert len(json.loads(baseline.read_text())["results"]) == 4


def test_a_baseline_is_one_of_this_machine(deploykit, tmp_path):
    baseline = tmp_path / "baseline.json"
    here = saved(tmp_path / "here.json", several(1.0, 0))
    there = saved(tmp_path / "there.json", several(9.0, 0, cpu="another"))
    first = deploykit("compare", there, "--baseline", baseline, "--fail-below", 0.95, "--json")
    assert (first.status, first.document["is_first"]) == (0, True)
    outcome = deploykit("compare", here, "--baseline", baseline, "--fail-below", 0.95)
    assert outcome.status == 5
    assert shows(outcome.stderr, "nothing-compared"), "a green light means a comparison"
    assert deploykit("compare", here, "--baseline", baseline, "--fail-below", 0.95).status == 0


def test_a_scenario_of_version_0_1_is_not_compared(tmp_path):
    """Nor is it joined with later measurements of the same name and settings."""
    baseline = tmp_path / "baseline.json"
    alone = replace(named("x", factor=9.0), scenario=True)
    assert compare(result(alone), baseline=baseline).is_first
    with raises(GraphError, "no-measurement-pairs", hint=Containing("0.1")):
        compare(result(named("x")), baseline=baseline)
    documents = [result(each).document() for each in (alone, named("x"))]
    stored = json.loads(baseline.read_text()) | {"results": documents}
    baseline.write_text(json.dumps(stored))
    found = compare(result(named("x")), baseline=baseline)
    assert [pair.ratio.value for pair in found.pairs] == [pytest.approx(1.0)]
    assert found.warnings[0] == because("scenario-of-0.1", name="x")


@pytest.mark.slow
def test_a_baseline_keeps_the_last_ten(tmp_path):
    baseline = tmp_path / "baseline.json"
    for seed in range(12):
        compare(several(1.0, seed), baseline=baseline)
    kept = json.loads(baseline.read_text())["results"]
    assert len(kept) == 10
    assert kept[-1] == json.loads(json.dumps(several(1.0, 11).document()))


@pytest.mark.parametrize("arguments", [[], ["b.json", "--baseline", "c.json"]])
def test_one_result_is_compared_with_one_thing(deploykit, file, arguments):
    outcome = deploykit("compare", file("a", named("x")), *arguments)
    assert outcome.status == 2
    assert_error(outcome.error, "give-one", options=["B.json", "--baseline"])


@pytest.mark.parametrize("content", ["{}", '{"kind": "history", "format": 1, "results": [3]}', "x"])
def test_a_baseline_that_is_none(deploykit, file, tmp_path, content):
    baseline = tmp_path / "wrong.json"
    baseline.write_text(content)
    outcome = deploykit("compare", file("a", named("x")), "--baseline", baseline)
    assert outcome.status == 2
    assert outcome.stderr.startswith(f"deploykit: error: {baseline}: ")
    assert baseline.read_text() == content
