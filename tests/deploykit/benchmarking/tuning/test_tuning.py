"""The search finds what is planted in a cost model; a real run is resumable and can be used."""

import contextlib
import json
import weakref
from dataclasses import replace

import numpy as np
import pytest

from deploykit.api.tuning import tune
from deploykit.benchmarking import worker_sessions
from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.measurement import Job, Measurement, Turn
from deploykit.benchmarking.results import BenchmarkResult, load_tuned
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tuning import tuning
from deploykit.benchmarking.tuning.recommendation import Recommendation, without_one
from deploykit.benchmarking.tuning.search import TURNS, Figures, Search, SettingsTrial, Trials
from deploykit.benchmarking.tuning.search_space import TuneOptions, coordinates, held
from deploykit.benchmarking.worker_sessions import ProcessSessions
from deploykit.importers.graph_files import load_graph
from deploykit.importers.open_model import open_model
from deploykit.rendering.formatters.tuning import lines, options
from deploykit.storage.resume_file import State
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import CrashError, GraphError
from tests.deploykit.benchmarking.nets import dense
from tests.deploykit.conftest import refusals
from tests.support import Containing, assert_golden, because, shows

START = RunConfig(batch=1)
SIZES = (1, 8, 32)


class Model:
    """Costs that are planted; each trial takes `seconds` on a clock of its own."""

    def __init__(self, cost=None, seconds=1.0, dies=lambda settings: False, noise=0.0):
        self.cost, self.seconds, self.dies = cost or planted, seconds, dies
        self.now, self.noise = 0.0, noise
        self.tried = []
        self.random = np.random.default_rng(0)

    def __call__(self, settings):
        self.now += self.seconds
        self.tried.append(settings)
        if self.dies(settings):
            raise CrashError("child-died", runs="TensorFlow", signal="SIGABRT", reason="it crashed")
        p50, rate = self.cost(settings)
        usual, usual_rate = self.cost(START)
        scatter = self.random.lognormal(0, self.noise, (2, 5))
        return Figures(p50, 1.5 * p50, rate, tuple(usual / p50 * scatter[0]),
                       tuple(rate / usual_rate * scatter[1]))  # fmt: skip

    def search(self, cores=2, kept=(), seconds=1e9, variables=(), last=lambda best: 0.0, **more):
        kept = dict.fromkeys(kept, ("X",))
        found = Search(
            trial=self,
            start=replace(START, env=variables[0] if variables else {}),
            coordinates=coordinates(cores, SIZES, True, kept, variables=variables),
            left=lambda best: seconds - self.now - last(best),
            clock=lambda: self.now,
            **more,
        )
        found.run()
        return found


CALLER = {"TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD": "1"}


def in_callers_thread(settings):
    """Return whether the thread that calls oneDNN runs a share of the work."""
    return CALLER.items() <= dict(settings.env).items()


def planted(settings):
    """Two cores. Alone: caller thread and 2x1; most items: 1x2, batch 8, memory kept."""
    alone = 10.0
    alone *= 1.8 if settings.onednn is False else 1.0
    alone *= 0.85 if in_callers_thread(settings) else 1.0
    alone *= {None: 1.0, (2, 1): 0.9}.get(settings.threads, 1.7)
    an_item = alone * {1: 1.0, 8: 0.9, 32: 1.3}[settings.batch]
    if settings.batch > 1 and settings.keep_memory:
        an_item *= 0.7
    rate = 1000 / an_item
    if settings.concurrency == 2:
        rate *= 2.2 if settings.threads == (1, 2) else 1.1
    return settings.batch * settings.concurrency * 1000 / rate, rate


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(tuning.os, "sched_getaffinity", lambda pid: {0, 1})


def lowest(cost, of=lambda settings: True, key=0, sign=1):
    """Return the best of all settings there are."""
    found = [
        RunConfig(batch, threads, onednn, caller, keep, concurrency=flight)
        for batch in SIZES
        for threads, flight in ((None, 1), ((2, 1), 1), ((1, 1), 1), (None, 2), ((1, 2), 2))
        for onednn in (None, False)
        for caller in ({}, CALLER)
        for keep in (None, True)
    ]
    return min(filter(of, found), key=lambda each: sign * cost(each)[key])


def test_the_planted_optimum_is_found():
    model = Model()
    found = model.search()
    alone = lowest(planted, lambda each: (each.batch, each.concurrency) == (1, 1))
    assert planted(found.best["latency"]) == planted(alone)
    assert planted(found.best["throughput"]) == planted(lowest(planted, key=1, sign=-1))
    assert found.best["latency"] == replace(START, env=CALLER, threads=(2, 1))
    assert found.best["throughput"].keep_memory
    assert found.complete
    assert len(model.tried) == len(set(model.tried)) < 40  # of 120


def with_variables(settings):
    """Costs where B=2 makes a call 12 % shorter."""
    p50, rate = planted(settings)
    share = 0.88 if dict(settings.env).get("B") == "2" else 1.0
    return p50 * share, rate / share


def test_every_value_of_the_given_variables_is_tried():
    variables = TuneOptions(env={"A": "1", "B": ["1", "2", None]}).variables
    found = Model(with_variables).search(variables=variables)
    assert dict(found.best["latency"].env) == {"A": "1", "B": "2"} | CALLER
    assert dict(found.trials[0].settings.env) == {"A": "1", "B": "1"}
    tried = {dict(each.settings.env)["B"] for each in found.trials}
    assert tried == {"1", "2", None}
    assert {dict(each.settings.env)["A"] for each in found.trials} == {"1"}


def test_what_did_better_but_not_clearly_is_measured_in_the_end():
    def cost(settings):
        p50 = 10.0 * (0.8 if settings.executor else 1.0)
        p50 *= 0.96 if settings.keep_memory else 1.0
        return p50, 1000 / p50

    search = Model(cost).search()
    best = replace(START, executor="caller")
    assert search.best["latency"] == best
    assert search.runner_up.settings == replace(best, keep_memory=True)
    assert tuning._measured_last(search)[:3] == [START, best, search.runner_up.settings]
    assert Model(lambda settings: (5.0, 200.0)).search().runner_up is None


def test_ops_in_turn_are_tried_with_one_thread_as_well():
    """Where each alone brings nothing, as where threads hand small ops to each other."""

    def cost(settings):
        p50 = 7.0 if settings.executor and settings.threads == (1, 1) else 10.0
        return p50, 1000 / p50

    found = Model(cost).search(seconds=6)
    assert found.best["latency"] == replace(START, executor="caller", threads=(1, 1))
    assert {each.settings.threads for each in Model(cost).search(kept=["threads"]).trials} == {None}


def test_one_thread_is_measured_in_the_end_where_ops_take_turns():
    def cost(settings):
        p50 = 10.0 * (0.8 if settings.executor else 1.0)
        return p50, 1000 / p50

    search = Model(cost).search()
    assert replace(START, executor="caller", threads=(1, 1)) in tuning._measured_last(search)
    search = Model(planted).search()
    assert not [each for each in tuning._measured_last(search) if each.threads == (1, 1)]


def test_threads_that_bring_nothing_are_said_by_tune():
    one = measured(replace(START, threads=(1, 1)), 10.0)
    more = measured(replace(START, threads=(2, 1)), 10.0)
    text = "\n".join(map(str, lines(recommended(one, more))))
    assert text == Containing("threads 2x1", "(1.00x")


def test_where_nothing_is_better_the_default_stays():
    model = Model(lambda settings: (settings.batch * 5.0, 200.0))
    found = model.search()
    assert set(found.best.values()) == {START}


def test_noise_is_no_gain():
    model = Model(lambda settings: (5.0, 200.0), noise=0.2)
    found = model.search()
    assert set(found.best.values()) == {START}
    assert all(max(each.figures.faster) != 1 for each in found.trials)  # there was noise


def test_a_gain_that_is_not_clear_is_left_alone():
    def cost(settings):
        p50 = 9.8 if in_callers_thread(settings) else 10.0
        return p50, 1000 / p50

    assert set(Model(cost).search().best.values()) == {START}


@pytest.mark.parametrize("limit", [15.0, 20.0, 30.0, 90.0])
def test_a_latency_limit_binds_the_throughput_choice(limit):
    free = Model().search().best["throughput"]
    found = Model().search(latency_limit=limit).best["throughput"]
    assert 1.5 * planted(found)[0] <= limit < 1.5 * planted(free)[0]
    assert planted(found)[1] > planted(START)[1]


def test_a_limit_that_is_wide_enough_changes_nothing():
    assert Model().search(latency_limit=1e3).best == Model().search().best


def test_where_nothing_meets_the_limit_the_search_comes_as_near_as_it_can():
    found = Model().search(latency_limit=1.0)
    assert found.best["throughput"] == found.best["latency"] != START


def test_a_default_that_misses_the_limit_gives_way():
    found = Model().search(latency_limit=12.0)
    assert 1.5 * planted(START)[0] > 12.0 >= 1.5 * planted(found.best["throughput"])[0]


def test_what_crashes_is_noted_and_left():
    model = Model(dies=lambda settings: in_callers_thread(settings))
    found = model.search()
    assert found.best["latency"] == replace(START, threads=(2, 1))
    failed = [each for each in found.trials if each.failure]
    assert all(in_callers_thread(each.settings) and "SIGABRT" in each.failure for each in failed)
    assert failed
    assert all(each.figures is None for each in failed)


def test_a_default_that_crashes_is_an_error():
    with pytest.raises(CrashError):
        Model(dies=lambda settings: settings == START).search()


@pytest.mark.parametrize("seconds", [0, 1, 5.5, 12])
def test_the_budget_is_kept(seconds):
    model = Model()
    found = model.search(seconds=seconds)
    assert model.now <= max(seconds, 1)  # the default is always tried
    assert len(model.tried) == max(1, int(seconds))
    assert not found.complete
    assert set(found.best) == {"latency", "throughput"}


def test_time_is_kept_for_the_last_measurement():
    model = Model()
    found = model.search(seconds=20, last=lambda best: 3.0 * len(best))
    assert len(found.finalists) == 3
    assert model.now + 9.0 == 20


@pytest.mark.parametrize("after", [1, 4, 11])
def test_an_interrupted_search_goes_on(after):
    kept = []

    def keep(trials):
        kept[:] = [json.loads(json.dumps(document(each))) for each in trials]
        if len(trials) == after:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        Model().search(keep=keep)
    assert len(kept) == after
    model = Model(dies=lambda settings: settings.onednn is False)
    found = model.search(done=[SettingsTrial.of(each) for each in kept])
    assert found.best == Model().search().best
    assert not {RunConfig.of(each["settings"]) for each in kept} & set(model.tried)
    spent = Model().search(done=[SettingsTrial.of(each) for each in kept], seconds=after + 2)
    assert len(spent.trials) == after + 2  # the time of the first part counts


def test_a_failed_trial_is_not_repeated():
    trial = SettingsTrial(RunConfig(threads=(1, 2)), None, "TensorFlow died", 2.0)
    assert SettingsTrial.of(json.loads(json.dumps(document(trial)))) == trial


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {}),
        ({"TF_ENABLE_ONEDNN_OPTS": "0"}, {"onednn": ("TF_ENABLE_ONEDNN_OPTS",)}),
        ({"TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD": "1"},
         {"caller_thread": ("TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD",)}),
        ({"MALLOC_TOP_PAD_": "1", "MALLOC_MMAP_MAX_": "0"},
         {"keep_memory": ("MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")}),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_max=0"},
         {"keep_memory": ("GLIBC_TUNABLES",)}),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, {}),
        ({"LD_PRELOAD": "/a/libjemalloc.so.2"}, {}),
        ({"TF_NUM_INTEROP_THREADS": "1"}, {"threads": ("TF_NUM_INTEROP_THREADS",)}),
    ],
)  # fmt: skip
def test_what_the_user_has_set_is_not_searched(variables, expected):
    assert held(variables) == expected
    found = Model().search(kept=expected)

    def tried(name):
        return {tuple(each.settings.env) if name == "caller_thread" else
                getattr(each.settings, name) for each in found.trials}  # fmt: skip

    for name in expected:
        assert len(tried(name)) == 1
    for name in {"onednn", "caller_thread", "keep_memory", "threads"} - set(expected):
        assert len(tried(name)) > 1
    assert {each.settings.concurrency for each in found.trials} == {1, 2}


def test_threads_follow_the_quota(monkeypatch):
    monkeypatch.setattr(tuning.os, "sched_getaffinity", lambda pid: set(range(64)))
    found = [change for each in coordinates(4, SIZES, True, {}) for change in each]
    threads = {change["threads"] for change in found if "threads" in change}
    assert threads == {(4, 4), (1, 4), (1, 2), (4, 1), (2, 1), (1, 1)}
    assert {"onednn": False} in found
    flipped = [change for each in coordinates(4, SIZES, False, {}) for change in each]
    assert {"onednn": True} in flipped


def measured(settings, p50, samples=1, slowest=None):
    calls = (p50,) * 98 + (slowest or p50,) * 2
    seconds = sum(calls) / 1000 / settings.concurrency
    return Measurement(str(settings), "m.pb", "0", settings, samples, 1, 1, (), True,
                       (calls,) * 10, (seconds,) * 10)  # fmt: skip


def recommended(*more, goal="latency", limit=None):
    final = BenchmarkResult((measured(START, 10.0), *more), {}, "")
    model = replace(open_model(dense()), source="m.pb")
    return Recommendation(model, goal, limit, final, (), {}, True)


FAST = replace(START, env=CALLER, threads=(2, 1))
WIDE = replace(START, batch=8, threads=(1, 2), keep_memory=True, concurrency=2)


@pytest.mark.sampled
def test_figures_come_from_the_last_measurement():
    found = recommended(measured(FAST, 5.0), measured(WIDE, 40.0, samples=8))
    assert (found.latency.settings, found.throughput.settings) == (FAST, WIDE)
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert document["latency"]["times_faster"]["value"] == pytest.approx(2)
    assert document["latency"]["times_faster"]["significant"]
    assert document["throughput"]["times_the_items"]["value"] == pytest.approx(4)
    assert RunConfig.of(document["settings"]) == FAST
    assert recommended(measured(WIDE, 40.0, 8), goal="throughput").settings == WIDE
    text = "\n".join(map(str, lines(found)))
    assert "MALLOC_MMAP_MAX_=0" in text
    assert "inter_op_parallelism_threads=1" in text
    assert f"deploykit benchmark m.pb {options(WIDE)}" in text
    assert options(replace(START, env={"KMP_AFFINITY": "a,b c", "B": None})) == (
        "--batch 1 --env B= --env 'KMP_AFFINITY=a,b c'"
    )
    assert options(WIDE) == "--batch 8 --threads 1x2 --keep-memory on --concurrency 2"


def scattered(settings, p50, seed):
    """Return a measurement whose sessions are far apart."""
    levels = p50 * np.random.default_rng(seed).lognormal(0, 0.4, 10)
    calls = tuple((float(each),) * 10 for each in levels)
    return replace(measured(settings, p50), rounds_ms=calls, rounds_seconds=tuple(
        10 * each[0] / 1e3 for each in calls))  # fmt: skip


def test_what_is_not_faster_for_sure_is_not_recommended_and_said():
    found = recommended(scattered(FAST, 8.0, 0))
    assert found.settings == START
    text = "\n".join(map(str, lines(found)))
    undecided = {"settings": Containing(f"{FAST} (")}
    assert text == Containing(because("nothing-faster"))
    assert shows(text, "tuning-inconclusive", **undecided)
    assert recommended(measured(FAST, 10.0)).undecided == []


def test_of_what_is_alike_the_fewest_changes_are_recommended():
    one = replace(START, threads=(1, 1))
    both = replace(one, keep_memory=True)
    for p50, settings in ((4.0, both), (4.7, both), (4.8, one), (5.0, one), (6.0, one)):
        assert recommended(measured(both, p50), measured(one, 5.0)).settings == settings


def test_a_change_is_worth_it_where_it_is_sure_and_not_small():
    """Sessions scatter by 1 %, and a change brings 8, 3 or, with more scatter, an unknown share."""

    def near(settings, p50, scatter, seed):
        levels = p50 * np.random.default_rng(seed).lognormal(0, scatter, 10)
        calls = tuple((float(each),) * 10 for each in levels)
        return replace(measured(settings, p50), rounds_ms=calls, rounds_seconds=tuple(
            10 * each[0] / 1e3 for each in calls))  # fmt: skip

    one = replace(START, executor="caller")
    both = replace(one, keep_memory=True)
    for gain, scatter, settings in ((1.08, 0.01, both), (1.03, 0.005, one), (1.08, 0.2, one)):
        found = recommended(near(one, 5.0, 0.005, 1), near(both, 5.0 / gain, scatter, 2))
        assert found.settings == settings


def test_variables_that_no_file_sets_are_not_in_the_settings_and_said():
    loads = {"LD_PRELOAD": "a.so", "OMP_NUM_THREADS": "2"}
    found = recommended(measured(replace(FAST, env=loads), 5.0))
    document = json.loads(json.dumps(found.document()))
    assert document["settings"]["env"] == {"OMP_NUM_THREADS": "2"}
    assert document["not_stored"] == {"LD_PRELOAD": "a.so"}
    assert document["latency"]["settings"]["env"] == loads
    assert RunConfig.of(document["settings"]) == replace(FAST, env={"OMP_NUM_THREADS": "2"})
    preload = because("set-it-yourself", variables="LD_PRELOAD=a.so")
    assert any(preload in str(line) for line in lines(found))
    assert "not_stored" not in recommended(measured(FAST, 5.0)).document()


def test_trials_are_resumed_with_variables_that_the_user_gives_again(tmp_path):
    trial = SettingsTrial(RunConfig(env={"LD_PRELOAD": "a.so"}), None, "it died", 2.0)
    state = State(tmp_path / "state", "tuning", {})
    state.keep("trials", document([trial]))
    assert tuning._resumed(state, [{"LD_PRELOAD": "a.so", "OMP_NUM_THREADS": "2"}]) == (trial,)
    for others in ({}, {"LD_PRELOAD": "b.so"}):
        assert tuning._resumed(state, [others]) == ()


@pytest.mark.sampled
def test_an_engine_that_is_not_here_is_said():
    found = replace(recommended(measured(FAST, 5.0)), lacking={"openvino": "no wheel"})
    assert because("not-searched", what="openvino", reason="no wheel") in list(lines(found))
    assert found.document()["lacking"] == {"openvino": "no wheel"}


def test_each_change_is_taken_back_once():
    assert set(without_one(START, WIDE)) == {
        replace(WIDE, batch=1),
        replace(WIDE, keep_memory=None),
        replace(WIDE, threads=None, concurrency=1),
    }
    start = replace(START, env={"A": "1"})
    changed = replace(start, env={"A": "2", "B": "3"})
    assert set(without_one(start, changed)) == {
        replace(start, env={"A": "1", "B": "3"}),
        replace(start, env={"A": "2"}),
    }
    named_like_settings = replace(start, env={"A": "1", "batch": "1", "changes": "2"})
    assert set(without_one(start, named_like_settings)) == {
        replace(start, env={"A": "1", "batch": "1"}),
        replace(start, env={"A": "1", "changes": "2"}),
    }
    assert list(without_one(START, replace(START, threads=(1, 1)))) == []


def test_more_than_the_cores_allow_is_called_unstable():
    """Ten times the items at the same CPU time for each, on two cores."""

    def with_cpu(measurement, milliseconds):
        turns = tuple(Turn(i, 0, i, milliseconds * 100, 0, 0) for i in range(10))
        return replace(measurement, turns=turns)

    default, fast = with_cpu(measured(START, 10.0), 2.0), with_cpu(measured(FAST, 1.0), 2.0)
    final = BenchmarkResult((default, fast), {}, "")
    found = Recommendation(replace(open_model(dense()), source="m.pb"), "latency", None, final, (),
                           {}, True)  # fmt: skip
    assert found.at_most(fast) == usable_cores()
    assert shows(found.impossible, "gain-beyond-cores", gain="10.00")
    assert any(found.impossible in str(line) for line in lines(found))
    assert found.document()["impossible"] == found.impossible
    assert recommended(measured(FAST, 1.0)).impossible == "", "CPU times are not known"


def test_a_finalist_that_is_slower_in_the_end_is_not_recommended():
    found = recommended(measured(FAST, 11.0), measured(WIDE, 200.0, samples=8))
    assert found.latency is found.throughput is found.default


def test_the_throughput_choice_keeps_to_the_limit_in_the_end():
    wide = measured(WIDE, 40.0, samples=8, slowest=90.0)
    assert recommended(wide, limit=95.0).throughput is wide
    found = recommended(wide, limit=60.0)
    assert found.throughput is found.default
    found = recommended(wide, measured(FAST, 5.0), limit=2.0, goal="throughput")
    assert found.throughput is None
    assert found.settings == FAST
    assert found.document()["throughput"] is None
    assert Containing("p99", " 2 ms", " 5 ms") in list(lines(found))


@pytest.mark.parametrize("batch", [(4,), (1, 2)])
def test_batches_that_cannot_be_tried(small, batch):
    data = {"x": np.zeros((1, 8, 8, 3), np.float32)}
    with pytest.raises(GraphError) as error:
        tune(small, batch=batch, data=data)
    assert shows(error.value, "batch-cannot-be-tried", size=batch[-1])


@pytest.mark.slow
@pytest.mark.alone
def test_trials_share_a_start(small):
    graph = load_graph(small)

    def job(settings):
        return Job(
            str(small), graph.inputs, graph.outputs, batches(graph, settings.batch), settings
        )

    with contextlib.closing(Trials(job, START, open_model(small))) as trials:
        assert trials(START).faster == (1.0,) * TURNS
        threads = replace(START, threads=(1, 2))
        one = trials(threads)
        pid = trials._worker.pid
        two = trials(replace(threads, batch=8, concurrency=2))
        assert trials._worker.pid == pid
        assert one.p50_ms > 0
        assert two.items_per_second > one.items_per_second
        assert two.p99_ms >= two.p50_ms
        with pytest.raises(GraphError):
            trials(replace(threads, batch=0))
        assert trials(threads).p50_ms > 0  # another process


def test_trials_that_cannot_be_read_are_left(tmp_path):
    state = State(tmp_path / "state", "tuning", {})
    assert tuning._resumed(state, [{}]) == ()
    state.keep("trials", [{"settings": {"x": 1}}])
    assert tuning._resumed(State(tmp_path / "state", "tuning", {}), [{}]) == ()


class MadeUpRunner:
    """A runner that refers to itself, as a session and its graph do, and takes any job."""

    bytes_before = 0

    def __init__(self, job):
        self.job, self.itself = job, self

    def is_graph_of(self, job):
        return False

    def go_on_with(self, job):
        self.job = job


def test_a_session_is_replaced_where_more_than_the_batch_differs(small, monkeypatch):
    graph, sessions, opened = load_graph(small), ProcessSessions(), []

    def job(batch, **more):
        settings = RunConfig(batch=batch, **more)
        return Job(str(small), graph.inputs, graph.outputs, batches(graph, batch), settings)

    def open_one(job, like):
        assert not [each for each in opened if each() is not None], "two are in memory"
        runner = MadeUpRunner(job)
        opened.append(weakref.ref(runner))
        return runner

    monkeypatch.setattr(worker_sessions, "opened", open_one)
    for changes, count in (({}, 1), ({"concurrency": 2}, 1), ({"executor": "caller"}, 2)):
        asked = job(8, **changes)
        assert sessions.renew(asked) == 0
        assert sessions._runners[0].job is asked
        assert len(opened) == count


def test_the_command(deploykit, small, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    target, state = tmp_path / "small.tuned.json", tmp_path / "small.tuned.json.state"
    command = ("tune", small, "--budget", 0.2, "--batch", "1,4", "--goal", "throughput")

    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "measure", interrupted)
        found = deploykit(*command)
    assert (found.status, found.printed) == (130, "")
    assert shows(found.stderr, "trials-stored", file=state)
    assert not target.exists()
    earlier = json.loads(state.read_text())["found"]["trials"]

    found = deploykit(*command)
    assert found.status == 0, found.stderr
    assert f"{len(earlier)} trials" in found.stderr
    assert found.stdout == Containing("oneDNN (TF_ENABLE_ONEDNN_OPTS")
    assert not state.exists()
    document = json.loads(target.read_text())
    assert document["kind"] == "tuned"
    assert document["not_searched"] == {"onednn": ["TF_ENABLE_ONEDNN_OPTS"]}
    assert document["lacking"] == {}
    assert document["default"]["settings"] == {"batch": 1}
    assert document["trials"][: len(earlier)] == earlier
    assert load_tuned(target) == RunConfig.of(document["throughput"]["settings"])
    assert deploykit(*command).status == 4  # the file exists


WRONG = (
    "--batch=0", "--budget=0", "--budget=-1", "--budget=nan", "--latency-limit=0",
    "--latency-limit=-5", "--goal=speed", "--timeout=0", "--memory-limit=-1", "--shape=y=1,8",
    "--data=none.npz", "--outputs=gone", "-o none/tuned.json",
)  # fmt: skip


@pytest.mark.golden("usage/tune")
def test_wrong_usage(deploykit, small):
    assert_golden(*refusals(deploykit, ("tune", small), WRONG, small.parent))
    assert list(small.parent.iterdir()) == [small]
