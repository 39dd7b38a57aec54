"""Who runs where beside the peers, what is asked of whom, and what answers are worth."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deploykit.benchmarking.run_config import RunConfig
from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks import peers
from tests.benchmarks.peers.answers import least_cosine, sqnr_db
from tests.benchmarks.peers.contestants import Contestant
from tests.benchmarks.peers.nets import (
    ACCURATE,
    IN_OPENVINO,
    IN_PARTS,
    INT8,
    ON_ONE_THREAD,
    OVER_TENSORFLOW,
    Net,
)
from tests.benchmarks.peers.places import EIGHT, FLYING, ONE, PLACES, TWO
from tests.benchmarks.peers.turns import Entry, Taken
from tests.support import Containing

ASKED = {ONE: {"tflite": 1.5}, TWO: {ON_ONE_THREAD: 1.3}}
NET = Net("net", Path("m"), ("a",), "y", Path("c"), Path("s"), bars={"vnni": ASKED})
FLOAT = Contestant("TF", "float", NET, Path("f"), RunConfig(onednn=True))
OURS = Contestant("TF", "int8", NET, Path("i"), RunConfig(executor="caller"))
PLAIN = Contestant("TFLite", "float", NET, Path("p"), module="tflite")
SMALL = Contestant("TFLite", "int8", NET, Path("q"), module="tflite")
CODES = Contestant("OpenVINO", IN_OPENVINO, NET, Path("o"), module="open_vino")
ALL = [FLOAT, OURS, PLAIN, SMALL]


def test_places_have_names_and_count_a_call_in_flight_by_how_often_one_ends():
    assert [str(each) for each in PLACES] == ["b1 t1", "b1 t2", "b8 t2", "b1 t2, 2 in flight"]
    assert ONE.ms([1_000_000, 2_000_000, 9_000_000], 12_000_000) == 2
    assert FLYING.ms([3_000_000, 3_000_000, 4_000_000], 6_000_000) == 2


@pytest.mark.parametrize(
    ("place", "threads", "in_flight"),
    [(ONE, (1, 1), 1), (TWO, (2, 1), 1), (EIGHT, (2, 1), 1), (FLYING, (1, 2), 2)],
)
def test_calls_in_flight_share_the_threads_of_a_place(place, threads, in_flight):
    settings = OURS.in_place(place)
    assert (settings.threads, settings.concurrency) == (threads, in_flight)
    assert settings.executor == "caller"


def test_peers_run_in_8_bits_and_ours_also_on_one_thread_where_a_call_has_two():
    each = [Entry(FLOAT, TWO), Entry(OURS, TWO), Entry(SMALL, TWO), Entry(OURS, ONE)]
    assert peers.entries(ALL, TWO) == each
    for place in (ONE, EIGHT, FLYING):
        assert Entry(OURS, ONE) not in peers.entries(ALL, place)[2:]


@pytest.mark.parametrize("exact", [True, False])
def test_bars_hold_where_the_processor_is_the_one_they_are_for(monkeypatch, exact):
    monkeypatch.setattr(peers, "sums_exactly", lambda isa: exact)
    taken = {Entry(FLOAT, ONE): Taken([8, 8, 8], ""), Entry(OURS, ONE): Taken([2, 4, 2], ""),
             Entry(SMALL, ONE): Taken([3, 4, 5], "")}  # fmt: skip
    (found,) = peers.beside(NET, ONE, taken)
    assert list(found.ours) == [1.5, 1, 2.5]  # round by round
    assert found.at_least == (1.5 if exact else None)
    assert found.reached is (True if exact else None)


def test_two_threads_are_set_against_one(monkeypatch):
    monkeypatch.setattr(peers, "sums_exactly", lambda isa: True)
    taken = {Entry(OURS, TWO): Taken([4], ""), Entry(OURS, ONE): Taken([5], "")}
    (found,) = peers.beside(NET, TWO, taken)
    assert list(found.ours) == [1.25]
    assert (found.at_least, found.reached) == (1.3, False)


def test_the_last_of_our_graphs_has_to_keep_the_bars(monkeypatch):
    monkeypatch.setattr(peers, "sums_exactly", lambda isa: True)
    net = replace(NET, ours=(INT8, IN_PARTS))
    plain, parts = (replace(OURS, net=net, form=form) for form in net.ours)
    assert parts.is_ours
    assert parts.in_place(TWO).threads == (1, 2)  # they run side by side
    assert peers.entries([plain, parts], TWO)[2:] == [Entry(plain, ONE)]
    taken = {Entry(plain, TWO): Taken([6], ""), Entry(parts, TWO): Taken([3], ""),
             Entry(plain, ONE): Taken([5], "")}  # fmt: skip
    found = list(peers.beside(net, TWO, taken))
    assert [each.at_least for each in found] == [None, 1.3]
    assert [each.ours[0] for each in found] == [pytest.approx(5 / 6), pytest.approx(5 / 3)]
    assert found[1].what == Containing("b1 t2", "int8 in two", "int8 at b1", "t1 ")


def test_answers_are_judged_by_their_noise_and_their_direction():
    exact = np.array([[3.0, 4.0], [0.0, 5.0]], np.float32)
    assert sqnr_db(1.1 * exact, exact) == pytest.approx(20, abs=1e-3)
    assert least_cosine(1.1 * exact, exact) == pytest.approx(1)
    turned = np.array([[3.0, 4.0], [3.0, 4.0]], np.float32)
    assert least_cosine(turned, exact) == pytest.approx(0.8)


def test_a_benchmark_may_have_parts(monkeypatch):
    shown = []
    monkeypatch.setattr(benchmarks, "show", lambda *found: shown.append(found))
    monkeypatch.setattr(peers, "figures", lambda only="": only)
    benchmarks.main(["peers:lite0", "peers"])
    assert shown == [("peers-lite0", "lite0"), ("peers", "")]
    for name, said in (
        ("peers:lite1", "peers has no part lite1; it has: lite0, "),
        ("speed:lite0", "speed has no part lite0; it has: none"),
        ("lite0", "there is no benchmark lite0; there are: "),
    ):
        with pytest.raises(SystemExit, match=said):
            benchmarks.main([name])
    assert len(shown) == 2


def test_a_contestant_is_ours_in_tensorflow_and_in_8_bits_or_in_codes():
    assert [each.is_ours for each in ALL] == [False, True, False, False]
    assert [each.is_peer for each in ALL] == [False, False, True, True]
    assert not replace(OURS, form="float").is_ours
    assert CODES.is_ours
    assert CODES.is_int8


def test_our_codes_are_set_against_peers_of_both_kinds_and_our_graph_in_tensorflow(monkeypatch):
    monkeypatch.setattr(peers, "sums_exactly", lambda isa: True)
    bars = {"vnni": {TWO: {OVER_TENSORFLOW: 1.5}}}
    net = replace(NET, trained=True, bars=bars)
    exact = replace(SMALL, form=f"{ACCURATE}, 3 of 9 layers float")
    taken = {Entry(each, TWO): Taken([ms], "")
             for each, ms in ((OURS, 3), (SMALL, 1.9), (exact, 2), (CODES, 2))}  # fmt: skip
    found = [each for each in peers.beside(net, TWO, taken) if IN_OPENVINO in each.what]
    asked = {next(iter(each.ours)): (each.at_least, each.reached) for each in found}
    assert asked == {1.5: (1.5, True), 0.95: (0.95, True), 1: (1, True)}
