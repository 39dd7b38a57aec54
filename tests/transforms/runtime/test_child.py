"""Children that die, lie, hang or fail become one error each."""

import contextlib
import signal
import site
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import (
    BugError,
    CrashError,
    GraphError,
    LimitError,
    RefusedError,
)
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.runtime import child_process
from tests.support import Containing, raises, says
from tests.transforms.runtime import child_acts

HERE = child_acts.__name__


@pytest.fixture(autouse=True)
def kind(request, new_children):
    """Start children as outside the tests, unless a test asks for forked ones."""
    if getattr(request, "param", "started") == "started":
        request.getfixturevalue("started_children")


# Children that are forked for other tests are like those of every day.
both_kinds = pytest.mark.parametrize("kind", ["started", "forked"], indirect=True)


@both_kinds
def test_values_go_there_and_back():
    assert child_process.call(f"{HERE}:add", "a", "b") == "ab"


@pytest.mark.sampled
@both_kinds
@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("killed", GraphError, says("child-died", signal="SIGSEGV")),
        (
            "fails_a_check",
            GraphError,
            says(
                "child-died",
                signal="SIGABRT",
                reason=Containing("b.cc:5] Check failed", "'T' found"),
            ),
        ),
        ("out_of_memory", LimitError, says("child-killed")),
        ("leaves_without_an_answer", GraphError, says("child-ended", exit_status=0)),
        ("refuses", RefusedError, "not this one"),
    ],
)
def test_deaths(name, error, message):
    with pytest.raises(error, match=message):
        child_process.call(f"{HERE}:{name}")


def test_an_exception_of_ours_is_no_fault_of_the_graph():
    with raises(BugError, "child-bug", kind="KeyError") as caught:
        child_process.call(f"{HERE}:fails")
    assert any("in fails" in note for note in caught.value.__notes__)


@pytest.mark.sampled
def test_the_environment_is_given_and_what_the_user_has_set_wins(monkeypatch):
    names = ("DEPLOYKIT_TEST_A", "DEPLOYKIT_TEST_B", "TF_CPP_MIN_LOG_LEVEL")
    monkeypatch.setenv("DEPLOYKIT_TEST_B", "user")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    given = {"DEPLOYKIT_TEST_A": "given", "DEPLOYKIT_TEST_B": "given"}
    assert child_process.call(f"{HERE}:variables", *names, env=given) == ["given", "user", "3"]
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    assert child_process.call(f"{HERE}:variables", *names) == [None, "user", "0"]


@pytest.mark.slow
def test_a_child_has_a_gpu_where_it_is_asked_for_alone(monkeypatch):
    """What the user shows to TensorFlow is for runs on a GPU: to verify is none of them."""
    name = "CUDA_VISIBLE_DEVICES"
    for shown in ("0", "-1", None):
        monkeypatch.delenv(name, raising=False)
        if shown is not None:
            monkeypatch.setenv(name, shown)
        assert child_process.call(f"{HERE}:variables", name) == ["-1"]
        assert child_process.call(f"{HERE}:variables", name, env={name: "1"}) == ["-1"]
        assert child_process.call(f"{HERE}:variables", name, forced={name: shown}) == [shown]


def test_a_child_imports_this_deploykit_and_no_installed_package_for_a_module_of_python(
    monkeypatch,
):
    root = str(Path(deploykit.__file__).parents[1])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert child_process.python_path() == root
    monkeypatch.setenv("PYTHONPATH", "mine")
    assert child_process.python_path() == f"{root}:mine"
    monkeypatch.setenv("PYTHONPATH", f"mine:{root}")
    assert child_process.python_path() == f"mine:{root}"
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(site, "getsitepackages", lambda: ["other", root])
    assert child_process.python_path() == ""


def test_a_child_imports_nothing_from_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert not {"", str(tmp_path)} & set(child_process.call("pkgutil:resolve_name", "sys:path"))


@pytest.mark.sampled
@both_kinds
def test_deadline():
    with (
        child_process.ResourceLimits(seconds=1, memory=None, show_log=False),
        raises(LimitError, "child-timeout", seconds=1),
    ):
        child_process.call(f"{HERE}:hangs")


@both_kinds
def test_memory_cap():
    with child_process.ResourceLimits(seconds=60, memory=500 << 20, show_log=False):
        assert child_process.call(f"{HERE}:takes", 1000) == 1000
        with raises(LimitError, "memory-cap-reached"):
            child_process.call(f"{HERE}:takes", 1 << 30)
    assert child_process.limits.memory is None


def test_deadline_of_runs_that_deploykit_starts_for_itself():
    with (
        child_process.ResourceLimits(seconds=60, internal_seconds=0.2),
        raises(LimitError, "child-internal-timeout", seconds=0.2),
    ):
        child_process.call(f"{HERE}:loops", 60)


@pytest.mark.sampled
def test_runs_that_the_caller_asks_for_have_no_such_deadline():
    with child_process.ResourceLimits(seconds=60, internal_seconds=0.01):
        assert child_process.call("time:sleep", 0.1) is None
    assert child_acts.loops(0.0) == 0.0  # in no child


def test_a_shorter_deadline_holds_for_both():
    assert child_process.ResourceLimits().internal == 30
    assert child_process.ResourceLimits(seconds=3).internal == 3


@pytest.fixture
def counter():
    worker = child_process.Worker(f"{HERE}:Counter", 5)
    yield worker
    worker.close()


@pytest.mark.sampled
@both_kinds
def test_an_object_keeps_its_state_and_dies_with_one_sentence(counter):
    assert [counter.ask("add", 2), counter.ask("add", 3)] == [7, 10]
    with raises(CrashError, "child-died", signal="SIGSEGV"):
        counter.ask("die")
    with raises(CrashError, "child-died", signal="SIGSEGV"):
        counter.ask("add", 1)


def test_the_words_name_what_runs_in_the_child():
    with (
        contextlib.closing(child_process.Worker(f"{HERE}:Counter", 5, runs="OpenVINO")) as worker,
        raises(CrashError, "child-died", runs="OpenVINO", signal="SIGSEGV"),
    ):
        worker.ask("die")


def test_an_object_that_cannot_be_made_says_so_when_it_is_asked():
    with (
        contextlib.closing(child_process.Worker(f"{HERE}:Counter", -1)) as worker,
        pytest.raises(RefusedError, match="not below zero"),
    ):
        worker.ask("add", 1)


def test_what_is_asked_for_on_the_command_line_wins(monkeypatch):
    monkeypatch.setenv("DEPLOYKIT_TEST_A", "user")
    monkeypatch.setenv("DEPLOYKIT_TEST_B", "user")
    forced = {"DEPLOYKIT_TEST_A": "forced", "DEPLOYKIT_TEST_B": None}
    with contextlib.closing(child_process.Worker(f"{HERE}:Counter", 0, forced=forced)) as worker:
        names = ("DEPLOYKIT_TEST_A", "DEPLOYKIT_TEST_B")
        assert [worker.ask("variable", name) for name in names] == ["forced", None]


def counted(fails: bool = False, **settings) -> tuple[int, int]:
    with contextlib.closing(child_process.Worker(f"{HERE}:Counted", **settings)) as worker:
        found = worker.ask("found")
        if fails:
            with pytest.raises(BugError):
                worker.ask("no such method")
    worker.close()  # once more changes nothing
    return found


@pytest.mark.sampled
def test_a_child_is_reused_in_the_same_environment_alone():
    first, alone = counted(), counted()
    assert first[0] != alone[0]
    with child_process.reused_children():
        first = counted()
        assert counted() == (first[0], 2)
        assert counted(forced={})[0] != first[0]
        assert counted(env={"DEPLOYKIT_TEST": "1"})[0] != first[0]
        assert counted(fails=True) == (first[0], 3)
        assert counted()[0] != first[0]
    assert child_process._idle.get() is None


@pytest.mark.sampled
def test_a_child_with_forced_variables_is_reused_where_that_is_said():
    forced = {"DEPLOYKIT_TEST": "1"}
    with child_process.reused_children():
        first = counted(forced=forced, kept=True)
        assert counted(forced=forced, kept=True)[0] == first[0]
        assert counted(forced=forced)[0] != first[0]


@pytest.mark.sampled
def test_a_block_ends_the_children_that_it_added():
    with child_process.reused_children():
        first = counted()
        with child_process.reused_children():
            inner = counted(env={"DEPLOYKIT_TEST": "1"})
            assert counted()[0] == first[0]
        assert counted()[0] == first[0]
        assert counted(env={"DEPLOYKIT_TEST": "1"})[0] != inner[0]


def test_a_reused_child_has_the_limits_and_the_log_of_its_work():
    with child_process.reused_children():
        child_process.call(f"{HERE}:writes_to_its_log")
        with raises(CrashError, "child-ended", reason="it logged nothing"):
            child_process.call(f"{HERE}:leaves_without_an_answer")


def test_a_reused_child_frees_what_it_held():
    with child_process.reused_children():
        for number in range(3):
            with contextlib.closing(child_process.Worker(f"{HERE}:Cycle")) as worker:
                assert worker.ask("others") == [False] * number


@pytest.mark.parametrize("kind", ["Ending", "Lasting"])
def test_later_work_does_not_suffer_from_what_earlier_work_left(monkeypatch, kind):
    monkeypatch.setattr(child_process, "_TEARDOWN", 0.5)
    with child_process.reused_children():
        with contextlib.closing(child_process.Worker(f"{HERE}:{kind}")) as worker:
            worker.ask("__sizeof__")
        assert counted()[1] == 1


def test_threads_reuse_children_of_their_own():
    barrier = threading.Barrier(2)

    def work(number):
        with child_process.reused_children():
            barrier.wait()
            first, second = counted(), counted()
            barrier.wait()
            return first[0] == second[0], first[0]

    with ThreadPoolExecutor(2) as pool:
        (reused_a, a), (reused_b, b) = pool.map(work, range(2))
    assert (reused_a, reused_b) == (True, True)
    assert a != b


def test_the_first_work_takes_a_child_that_was_started_ahead():
    nodes = [Node.constant("c", np.array([1, 2], np.float32))]
    graph_def = b"".join(Graph(nodes).serialized())
    with child_process.started_ahead():
        number = child_process._idle.get()[0].process.pid
        found = [child_process.call(f"{HERE}:where_a_graph_runs", graph_def) for _ in range(2)]
        assert found == [(number, False)] * 2
        with child_process.reused_children():
            assert counted()[0] == number
        assert counted()[0] == number
    assert child_process._idle.get() is None


@pytest.mark.sampled
@pytest.mark.parametrize("more", [{"env": {"DEPLOYKIT_TEST": "1"}}, {"forced": {}}, {}])
def test_a_child_that_was_started_ahead_ends_where_it_is_not_taken(monkeypatch, more):
    with child_process.started_ahead():
        unused = child_process._idle.get()[0].process
        if not more:
            monkeypatch.setattr(child_process.limits, "show_log", True)
        assert counted(**more)[0] != unused.pid
        assert child_process._idle.get()[0].process is unused
    assert unused.returncode == -signal.SIGKILL
