"""Tokens are computed in parts where that is right and significantly faster, and nowhere else."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from deploykit.benchmarking.measurement import Measurement, Turn
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.run_config import RunConfig
from deploykit.quantization import search
from deploykit.quantization.quantize_options import QuantizeOptions
from deploykit.quantization.result import Quantized
from deploykit.quantization.search_task import DEPTHS, Budget
from deploykit.quantization.timing import token_parts
from deploykit.quantization.timing.token_parts import choose_parts, in_parts, later, ways
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.samples import Dataset
from tests.real import encoder
from tests.support import building, built, error, ops, random, tf

SIZE = encoder.TINY
ASKED = RunConfig(batch=1)
BAR = 1e-6 * 11  # design: 1e-6 * (5 + depth)


def net(typed: bool = False, tokens: int | None = SIZE.tokens) -> Graph:
    """Return an encoder; `typed`: it also reads the types of tokens, as BERT does."""

    with building(["mask", "ids", *(["types"] if typed else [])], ["out"]) as graph:
        names = ("mask", "ids", "types")[: 3 if typed else 2]
        mask, ids, *types = (
            tf.compat.v1.placeholder(tf.int32, (None, tokens), name=name) for name in names
        )
        if typed:
            ids = tf.gather(tf.constant(np.arange(SIZE.words, dtype=np.int32)), ids) + types[0]
        tf.identity(encoder._plain("bert", encoder.weights(SIZE), SIZE)(ids, mask), name="out")
    graph.prune()
    return graph


def feeds(graph: Graph, count: int) -> dict[str, np.ndarray]:
    texts = encoder.texts(count, SIZE)
    named = {"ids": texts["input_ids"] // 2, "mask": texts["attention_mask"]}
    named["types"] = named["mask"]
    return {name: named[name] for name in graph.inputs}


class Clock:
    """What graphs take in ms, by whether they are in parts, and their threads."""

    def __init__(self, whole: dict, parts: dict, scatter: float = 0.002) -> None:
        self.ms, self.scatter = {False: whole, True: parts}, scatter
        self.asked = list[str]()

    def __call__(self, graph, named, *, data, depth, advance, decided) -> BenchmarkResult:
        random = np.random.default_rng(0)
        self.asked = [*named]
        found = []
        for name, (run, how) in named.items():
            ms = self.ms[run is not graph][how.threads]
            rounds = tuple((float(ms * random.lognormal(0, self.scatter)),) for _ in range(12))
            turns = tuple(Turn(n % 3, n % 3, n, 2 * ms, 0, 0) for n in range(12))
            found.append(Measurement(name, "m.pb", "0", how, 1, 1, 1, (), True, rounds,
                                     tuple(e[0] / 1000 for e in rounds), turns=turns))  # fmt: skip
        return BenchmarkResult(tuple(found), {}, "")


SLOW = {None: 10.0, (1, 2): 8.0, (1, 1): 8.0, (2, 1): 9.0}


def chosen(monkeypatch, graph: Graph, clock: Clock, settings: RunConfig = ASKED, minutes=9.0):
    monkeypatch.setattr(token_parts, "measured_in_turn", clock)
    monkeypatch.setattr(token_parts, "usable_cores", lambda: 2)
    return choose_parts(
        graph, settings, data=Dataset.of(graph, feeds(graph, 8)), budget=Budget(minutes)
    )


FAST = {None: 9.0, (1, 2): 5.0}
CHOICES = {
    "with threads that suit": (FAST, True, "two parts at once, as that is with threads 1x2 faster"),
    "with all": ({None: 5.0, (1, 2): 5.1}, True, "two parts at once, as that is faster"),
    "not beside one thread": ({None: 9.0, (1, 2): 8.0}, False, "as that is no difference"),
    "slower": ({None: 11.0, (1, 2): 9.0}, False, "as that is slower"),
    "slower as asked": ({None: 12.0, (1, 2): 5.0}, False, "slower with TensorFlow's own threads"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_choice_follows_the_times(name, monkeypatch, in_process):
    graph, (parts, is_kept, said) = net(), CHOICES[name]
    result, note = chosen(monkeypatch, graph, Clock(SLOW, parts))
    assert (result is not graph) == is_kept
    assert said in note
    assert "tokens of ids" in note


def test_times_that_scatter_keep_the_whole(monkeypatch, in_process):
    graph = net()
    result, note = chosen(monkeypatch, graph, Clock(SLOW, {None: 9, (1, 2): 7.8}, scatter=0.3))
    assert result is graph
    assert "inconclusive" in note


@pytest.mark.parametrize("typed", [False, True])
def test_the_parts_are_right_in_every_batch(typed):
    graph = net(typed)
    found = in_parts(graph)
    assert found is not None
    assert ops(found.graph)["MatMul"] == 2 * ops(graph)["MatMul"]
    for count in (1, 2, 7):
        assert error(graph, found.graph, feeds(graph, count)) <= BAR


def test_parts_that_differ_are_not_chosen(monkeypatch, in_process):
    def broken(graph):
        found = in_parts(graph)
        whole = next(n for n in found.graph if n.op == "ConcatV2")
        *parts, axis = whole.inputs
        found.graph.replace(whole, whole.with_data_inputs(*parts[::-1], axis))
        return found

    graph, clock = net(), Clock(SLOW, FAST)
    monkeypatch.setattr(token_parts, "in_parts", broken)
    result, note = chosen(monkeypatch, graph, clock)
    assert result is graph
    assert not clock.asked
    assert "computed in two" in note


def test_only_ways_that_were_asked_for_are_measured(monkeypatch, in_process):
    graph, clock = net(), Clock(SLOW, FAST)
    result, _ = chosen(monkeypatch, graph, clock, replace(ASKED, threads=(1, 2)))
    assert result is not graph
    assert len(clock.asked) == 2
    result, note = chosen(monkeypatch, graph, clock, replace(ASKED, threads=(2, 1)))
    assert (result, note) == (graph, "")
    monkeypatch.setattr(token_parts, "usable_cores", lambda: 1)
    assert ways(graph, graph, ASKED) == {}


def test_no_time_is_said(monkeypatch, in_process):
    graph, clock = net(), Clock(SLOW, FAST)
    result, note = chosen(monkeypatch, graph, clock, minutes=0.0)
    assert result is graph
    assert not clock.asked
    assert "--budget measures it" in note


def test_time_is_put_aside_for_it(monkeypatch):
    monkeypatch.setattr(token_parts, "usable_cores", lambda: 2)
    budget = Budget(1.0)
    budget.start = 1.0
    before = budget.end
    budget.later = later(net(), ASKED)
    assert budget.later == 3
    assert budget.end == pytest.approx(before + budget.to_compare(DEPTHS[-1], 3))


@built(["x"], ["out"])
def images():
    x = tf.compat.v1.placeholder(tf.float32, (None, 8, 8, 3), name="x")
    y = tf.reshape(tf.nn.conv2d(x, random(3, 3, 3, 4), 1, "SAME"), [-1, 256])
    tf.identity(y @ random(256, 3), name="out")


@pytest.mark.parametrize("make", [images, lambda: rows(8), lambda: rows(None)])
def test_other_graphs_are_left_as_they_are(make):
    assert in_parts(make()) is None
    assert later(make(), ASKED) == 0


@built(["x"], ["out"])
def rows(tokens: int | None):
    """Return products of each token's channels: of a known number of tokens in no sequence."""
    x = tf.compat.v1.placeholder(tf.float32, (None, tokens), name="x")
    tf.identity(x @ random(8, 3), name="out")


def test_quantize_asks_unless_tokens_are_to_be_whole(monkeypatch):
    graph = net()
    asked = []

    def choose(graph, settings, **more):
        asked.append(settings)
        return graph.copy(), "said"

    class Task:
        how, timed_with, budget = QuantizeOptions(threads=(1, 2)), None, None

        def step(self, name):
            return contextlib.nullcontext()

    monkeypatch.setattr(search, "choose_parts", choose)
    outcome = Quantized(graph, False, "faster", (), notes=("first",))
    found = search._in_parts(Task(), outcome)
    assert found.graph is not graph
    assert found.notes == ("first", "said")
    assert asked == [RunConfig(threads=(1, 2))]
    assert search._in_parts(Task(), replace(outcome, is_float=True)).graph is graph
    Task.how = replace(Task.how, whole_tokens=True)
    assert search._in_parts(Task(), outcome) is outcome
