"""The sample of combinations contains every pair, is small, and belongs to its seed."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import pairwise

pytest_plugins = "pytester"

LARGE = list(itertools.product(range(50), "abcdefg", "ABCD", (True, False)))


@st.composite
def possible(draw):
    """Return the possible combinations of a few dimensions."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    product = list(itertools.product(*map(range, sizes)))
    return draw(st.lists(st.sampled_from(product), min_size=1, unique=True))


def missed(combinations, chosen):
    """Return the pairs of any two dimensions that occur and are not in the sample."""
    found = [
        {(a, b, each[a], each[b]) for each in some for a in range(len(each)) for b in range(a)}
        for some in (combinations, chosen)
    ]
    return found[0] - found[1]


@given(possible(), st.integers(0, 99))
def test_every_possible_pair_is_covered(combinations, seed):
    chosen = pairwise.sample(combinations, pairwise.pairs, seed)
    assert not missed(combinations, chosen)
    assert set(chosen) <= set(combinations)
    assert len(set(chosen)) == len(chosen)


@given(possible(), st.integers(0, 99), st.data())
def test_what_is_tested_anyway_is_not_covered_again(combinations, seed, data):
    covered = data.draw(st.lists(st.sampled_from(combinations), unique=True))
    chosen = pairwise.sample(combinations, pairwise.pairs, seed, covered)
    assert not missed(combinations, covered + chosen)
    assert not set(chosen) & set(covered)


def test_it_is_far_smaller_than_the_product():
    least = 50 * 7  # the pairs of the two largest dimensions
    assert least <= len(pairwise.sample(LARGE, pairwise.pairs, 1)) < 1.2 * least < len(LARGE) / 6


def test_no_pair_is_covered_where_nothing_is_new():
    assert pairwise.sample([(1, 2), (1, 3)], pairwise.pairs, 0, [(1, 2), (1, 3)]) == []


def test_a_sample_belongs_to_its_seed():
    first, again, other = (pairwise.sample(LARGE, pairwise.pairs, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first == sorted(first, key=LARGE.index)


def test_a_pair_is_of_two_values_and_their_dimensions():
    assert len(pairwise.pairs(("a", "a", "a"))) == 3
    assert pairwise.pairs(("a", "b")) != pairwise.pairs(("b", "a"))


def test_what_is_neither_quick_nor_slow_is_full():
    found = [pairwise.marks(each, {"a", "b"}, {"a"}) for each in "abc"]
    assert [[mark.name for mark in each] for each in found] == [[], ["slow"], ["full"]]


def test_the_seed_draws_some_for_the_slow_tests(monkeypatch):
    found = set()
    for seed in range(20):
        monkeypatch.setenv(pairwise.SEED, str(seed))
        drawn = pairwise.drawn("letters", "abcd", 2)
        assert [each.values for each in drawn] == [(letter,) for letter in "abcd"]
        names = [mark.name for each in drawn for mark in each.marks]
        assert sorted(names) == ["full", "full", "slow", "slow"]
        found |= {each.values for each, name in zip(drawn, names, strict=True) if name == "slow"}
    assert len(found) == 4


def test_quick_ones_are_spread_and_the_same_for_each_seed(monkeypatch):
    values = [(number, -number) for number in range(10)]
    for seed in range(20):
        monkeypatch.setenv(pairwise.SEED, str(seed))
        drawn = pairwise.drawn("numbers", values, 3, quick=4)
        assert [each.values for each in drawn] == values
        names = [mark.name for each in drawn for mark in each.marks]
        assert (names.count("slow"), names.count("full")) == (3, 3)
        assert [place for place, each in enumerate(drawn) if not each.marks] == [0, 2, 5, 7]


def test_lists_of_equal_length_are_drawn_independently(monkeypatch):
    found = set()
    for seed in range(20):
        monkeypatch.setenv(pairwise.SEED, str(seed))
        first, again, other = (
            tuple(mark.name for each in pairwise.drawn(name, "ab", 1) for mark in each.marks)
            for name in ("first", "first", "other")
        )
        assert first == again
        found.add((first, other))
    assert len(found) == 4


def collected(pytester, *options: str) -> set[str]:
    """Return the tests of which a run with these options consists."""
    found = pytester.runpytest_inprocess("--collect-only", "-q", *options)
    return {line.partition("::")[2] for line in found.outlines if "::" in line}


def test_a_third_of_the_sampled_tests_are_slow_and_the_others_full(pytester, monkeypatch):
    names = [f"test_{number}" for number in range(60)]
    tests = [f"@pytest.mark.sampled\ndef {name}(value): pass\n" for name in names]
    mark = '@pytest.mark.parametrize("value", "ab")\n'
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(f"import pytest\n{mark}{mark.join(tests)}{mark}def test_quick(value): pass")
    pytester.makeini("[pytest]\nmarkers =\n    sampled\n    slow\n    full")
    runs = []
    for seed in "1123":
        monkeypatch.setenv(pairwise.SEED, seed)
        slow, full = collected(pytester, "-m", "slow"), collected(pytester, "-m", "full")
        quick = collected(pytester, "-m", "not slow and not full")
        assert quick == {"test_quick[a]", "test_quick[b]"}
        assert slow | full == {f"{name}[{value}]" for name in names for value in "ab"}
        assert not slow & full
        assert {each[:-3] + "[b]" for each in slow} <= slow, "a test runs with all its values"
        assert 20 <= len(slow) <= 60
        runs.append(slow)
    assert runs[0] == runs[1] != runs[2] != runs[3]


def test_the_environment_has_the_seed(monkeypatch):
    monkeypatch.setenv(pairwise.SEED, "12")
    assert pairwise.seed() == 12
    monkeypatch.setenv(pairwise.SEED, "twelve")
    with pytest.raises(pytest.UsageError, match="twelve"):
        pairwise.seed()


def test_a_random_seed_is_handed_to_children(monkeypatch):
    monkeypatch.setenv(pairwise.SEED, "")
    chosen = pairwise.seed()
    assert os.environ[pairwise.SEED] == str(chosen)
    assert pairwise.seed() == chosen


SHOWING = """
import os
import pytest
from tests import pairwise

@pytest.mark.parametrize("number", range(6))
def test_it(number, worker_id):
    with open(f"seed-{os.environ['PYTEST_XDIST_WORKER']}", "w") as file:
        file.write(str(pairwise.seed()))
"""
CONFTEST = """
from tests import pairwise

def pytest_configure(config):
    config.pluginmanager.register(pairwise)
"""


@pytest.mark.sampled
@pytest.mark.parametrize(
    "given", pairwise.drawn("all_workers_have_the_seed_that_is_printed", ["", "7"], 1, quick=1)
)
def test_all_workers_have_the_seed_that_is_printed(given, tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(SHOWING)
    command = [sys.executable, "-m", "pytest", "-q", "-n2", "-p", "no:cacheprovider", "."]
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), pairwise.SEED: given}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    printed = re.findall(rf"^{pairwise.SEED}=(\d+) ", done.stdout, re.M)
    assert [path.read_text() for path in tmp_path.glob("seed-*")] == printed * 2
    assert printed == [given] or not given


@pytest.mark.parametrize(("quick", "expected"), [(None, ["ax1", "bx2", "ay3"]), (1, ["ax1"])])
def test_quick_tests_take_each_value_once(quick, expected):
    mark = pairwise.once_each(["a", "b", "c"], "ab", [("x", 1), ("x", 2), ("y", 3)], quick=quick)
    names, found = mark.args
    assert names == ["a", "b", "c"]
    assert len(found) == 6
    few = ["".join(map(str, each.values)) for each in found if not each.marks]
    assert sorted(few) == sorted(expected)
