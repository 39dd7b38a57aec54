"""What a figure asks, and whether it is reached; no clock is asked here."""

import json

import numpy as np
import pytest

from tests.benchmarks import figures
from tests.benchmarks.figures import Figure


@pytest.mark.parametrize(
    ("bars", "asked", "reached"),
    [
        ({}, "", None),
        ({"at_most": 2}, "<= 2 s", True),
        ({"at_most": 1.9}, "<= 1.9 s", False),
        ({"at_least": 2.5}, ">= 2.5 s", False),
        ({"at_most_ratio": 0.5}, "ratio <= 0.5", True),
        ({"at_most_ratio": 0.4, "at_most": 1000}, "<= 1,000 s, ratio <= 0.4", False),
    ],
)
def test_a_figure_is_judged_by_its_medians(bars, asked, reached):
    figure = Figure("act", "s", ours=(1, 2, 9), peer=(2, 8, 18), **bars)
    assert figure.ratio == 0.5  # the ratio of each round counts, not that of the medians
    assert (figure.asked, figure.reached) == (asked, reached)


def test_a_ratio_without_a_peer_is_not_reached():
    assert Figure("act", "s", (1,), at_most_ratio=2).reached is False


@pytest.mark.parametrize(
    ("rounds", "interval"),
    [
        ([5, 4, 3, 2, 1], None),  # one outcome of 16 lies outside: too many for 95 %
        ([6, 5, 4, 3, 2, 1], (1, 6)),  # one of 32
        (range(9), (1, 7)),  # one, and nine more, of 256
        ([*range(14), 1000], (3, 11)),
    ],
)
def test_an_interval_lies_where_the_order_of_rounds_puts_it(rounds, interval):
    assert Figure("act", "s", list(rounds)).interval == interval


def test_the_interval_is_that_of_the_ratio_where_there_is_a_peer():
    peer = [10, 10, 10, 100, 100, 100]
    assert Figure("act", "s", (1, 2, 3, 40, 50, 60), peer).interval == (0.1, 0.6)
    assert Figure("act", "s", (1, 2, 3, 4, 5, 6), (0, *peer[1:])).interval is None


def test_an_interval_covers_the_median_as_often_as_it_says():
    random = np.random.default_rng(0)
    for count in (6, 10, 15, 20):
        drawn = random.exponential(1, (2000, count))
        found = [Figure("act", "s", list(each)).interval for each in drawn]
        covered = np.mean([low <= np.log(2) <= high for low, high in found])
        assert 0.94 < covered < 0.99


def test_a_table_and_a_file_show_what_was_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results")
    figures.show("speed", [Figure("act", "s", (1.0, 3.0, 2.0), (4.0, 6.0, 4.0), at_most=1)])
    shown = capsys.readouterr().out
    assert "2 s" in shown
    assert "0.5" in shown
    assert "NO" in shown
    document = json.loads((tmp_path / "results" / "speed.json").read_text())
    assert f": {', '.join(document['machine']['flags'])}\n" in shown
    (found,) = document["figures"]
    assert found["ours"] == [1.0, 3.0, 2.0]
    assert (found["ratio"], found["reached"]) == (0.5, False)
