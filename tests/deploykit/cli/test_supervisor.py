"""A command ends with a status that has a meaning, and all that it started ends with it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import pairwise
from tests.deploykit.conftest import FASHION
from tests.pairwise import once_each
from tests.support import Containing, says, shows

PATIENCE = 30  # seconds for what takes a moment on an idle machine
START = (
    "from tests.deploykit.cli.supervised import {}; from deploykit.cli.supervisor import supervise"
)


def started(name, *given, folder, arguments=(), **options):
    code = f"{START.format(name)}; supervise(lambda: {name}(*{given}), {arguments})"
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": os.getcwd()}
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def ended(name, *arguments, folder):
    process = started(name, *arguments, folder=folder)
    _, log = process.communicate(timeout=60)
    return process.returncode, log


def alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.sampled
@once_each(["status"], [0, 6, 1, 2, 5], quick=2)
def test_the_status_of_the_command_is_passed_on(status, tmp_path):
    assert ended("ends", status, folder=tmp_path) == (status, "")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("number", "status", "said"),
    pairwise.drawn(
        "a_death_is_one_sentence_and_a_status",
        [
            (signal.SIGSEGV, 2, says("command-crashed", how=Containing("SIGSEGV"))),
            (signal.SIGABRT, 2, says("command-crashed", how=Containing("SIGABRT"))),
            (signal.SIGKILL, 6, says("command-killed")),
            (signal.SIGALRM, 6, says("command-timeout")),
        ],
        1,
        quick=2,
    ),
)
def test_a_death_is_one_sentence_and_a_status(number, status, said, tmp_path):
    code, log = ended("dies", int(number), folder=tmp_path)
    assert code == status
    assert re.match(f"deploykit: error: {said}", log)
    assert log.count("\n") == 1
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.sampled
@once_each(
    ("number", "status", "code", "arguments", "is_json"),
    [(signal.SIGSEGV, 2, "command-crashed"), (signal.SIGKILL, 6, "command-killed"),
     (signal.SIGALRM, 6, "command-timeout"), (-1, 6, "command-killed")],
    [(["m.pb", "--json"], True), (["m.pb"], False), (["m.pb", "-o", "-"], True),
     (["-o", "--json", "m.pb"], False), (["m.pb", "-o", "o.json"], False)],
    quick=2,
)  # fmt: skip
def test_a_death_is_a_document_for_a_command_that_prints_json(
    number, status, code, arguments, is_json, small, tmp_path
):
    (tmp_path / "m.pb").write_bytes(small.read_bytes())
    arguments = ["inspect", *arguments]
    process = started(
        "inspects", arguments, int(number), False, folder=tmp_path, arguments=arguments
    )
    output, log = process.communicate(timeout=60)
    assert (process.returncode, log.count("\n")) == (status, 1), log
    assert bool(output) is is_json
    if is_json:
        (key, error), *others = json.loads(output).items()
        assert (key, error["code"], error["exit_status"], others) == ("error", code, status, [])
        assert log == f"deploykit: error: {error['message']}\n"


@pytest.mark.sampled
@pytest.mark.parametrize("arguments", [["m.pb", "--json"], ["m.pb", "-o", "-"], ["x", "--json"]])
def test_a_death_behind_the_document_adds_no_second_one(arguments, small, tmp_path):
    (tmp_path / "m.pb").write_bytes(small.read_bytes())
    arguments = ["inspect", *arguments]
    process = started("inspects", arguments, 9, True, folder=tmp_path, arguments=arguments)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 6
    assert ("error" in json.loads(output)) is (arguments[1] == "x")


@pytest.mark.sampled
def test_a_death_before_the_options_are_known_follows_the_arguments(tmp_path):
    for arguments, is_json in ((["x", "--json"], True), (["--", "--json"], False)):
        process = started("dies", 9, folder=tmp_path, arguments=arguments)
        assert bool(process.communicate(timeout=60)[0]) is is_json


def test_own_work_has_a_deadline_that_a_loop_in_c_does_not_get_around(tmp_path):
    assert ended("computes_for_ever", folder=tmp_path)[0] == 6


@pytest.mark.slow
def test_the_deadline_of_own_work_rests_while_another_process_computes(tmp_path):
    assert ended("waits_for_another_process", folder=tmp_path) == (0, "")


def test_own_work_has_a_memory_cap(tmp_path):
    assert ended("takes_memory", folder=tmp_path) == (6, "")


def test_a_command_that_grows_beyond_its_limit_is_killed(tmp_path):
    code, log = ended("fills_shared_memory", folder=tmp_path)
    assert code == 6
    assert "--memory-limit" in log


@pytest.mark.sampled
def test_a_child_is_watched_while_its_parent_computes(tmp_path):
    code, log = ended("starts_a_child_that_grows_while_it_computes", folder=tmp_path)
    assert (code, log) == (0, "")


@pytest.mark.sampled
def test_a_limit_of_the_user_that_linux_ignores_changes_nothing(tmp_path):
    """Batch systems set it, and no process can raise it."""
    model = FASHION / "fashion.keras"
    command = [sys.executable, "-m", "deploykit", "freeze", model, "-o", tmp_path / "f.pb"]
    shell = ["bash", "-c", 'ulimit -m 100000; exec "$@"', "bash"]
    outcome = subprocess.run([*shell, *command], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    outcome = subprocess.run([*shell, *command, "--force", "--memory-limit=30"],
                             capture_output=True, text=True, check=False)  # fmt: skip
    assert outcome.returncode == 6
    assert shows(outcome.stderr, "child-memory-limit", size="30 MiB")


@pytest.mark.sampled
def test_too_little_address_space_is_a_lack_of_memory():
    model = FASHION / "fashion.keras"
    command = [sys.executable, "-m", "deploykit", "verify", model, model]
    shell = ["bash", "-c", 'ulimit -v 500000; exec "$@"', "bash"]
    outcome = subprocess.run([*shell, *command], capture_output=True, text=True, check=False)
    assert outcome.returncode == 6
    assert shows(outcome.stderr, "not-enough-memory")


@pytest.mark.sampled
def test_a_share_of_the_available_memory_is_the_cap_where_none_is_given(tmp_path):
    assert ended("has_default_caps", folder=tmp_path) == (0, "")


@pytest.mark.sampled
@once_each(["how"], [1, -signal.SIGABRT, -signal.SIGSEGV], quick=2)
def test_a_library_that_ends_the_process_under_a_cap_has_reached_it(how, tmp_path):
    code, log = ended("dies_under_a_cap", int(how), folder=tmp_path)
    assert code == 6
    assert "--memory-limit" in log


def test_a_library_that_ends_the_process_is_no_status_of_the_command(tmp_path):
    code, log = ended("leaves_at_once", folder=tmp_path)
    assert code == 2
    assert shows(log, "exited-with", status=0)


def test_in_a_process_that_nobody_watches_nothing_is_bounded():
    from deploykit.transforms.runtime import process_limits

    process_limits.bound(seconds=0.01, memory=1)
    time.sleep(0.05)
    assert len(bytearray(1 << 20)) == 1 << 20


def test_what_a_killed_command_began_is_removed(tmp_path):
    assert ended("leaves_files", folder=tmp_path)[0] == 6
    assert [path.name for path in tmp_path.rglob("*.tmp")] == ["other.tmp"]
    assert not list((tmp_path / "tmp").iterdir())


@once_each(["number"], [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP], quick=2)
def test_no_process_outlives_a_signal(number, tmp_path):
    process = started("starts_children", folder=tmp_path)
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 3
    assert all(alive(pid) for pid in pids)
    process.send_signal(number)
    status = process.wait(PATIENCE)
    end = time.monotonic() + PATIENCE
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.01)
    assert not [pid for pid in pids if alive(pid)]
    if number == signal.SIGKILL:
        assert status == -number
    else:
        assert status == 128 + number
        assert not list((tmp_path / "tmp").iterdir())


def test_an_interrupt_in_a_callback_interrupts_too(tmp_path):
    assert ended("is_interrupted_in_a_callback", folder=tmp_path) == (130, "")


@pytest.mark.slow
def test_a_command_that_was_stopped_goes_on(tmp_path):
    process = started("starts_children", folder=tmp_path)
    pids = [int(pid) for pid in process.stdout.readline().split()]
    process.send_signal(signal.SIGTSTP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 143
    assert not [pid for pid in pids if alive(pid)]


@pytest.mark.slow
def test_the_folder_of_a_command_that_was_killed_with_its_parent_is_removed_later(tmp_path):
    process = started("starts_children", folder=tmp_path)
    process.stdout.readline()
    process.kill()
    process.wait()
    (left,) = (tmp_path / "tmp").iterdir()
    ended("ends", 0, folder=tmp_path)
    assert left.exists()  # it may be new, and not locked yet
    os.utime(left, (0, 0))
    running = started("starts_children", folder=tmp_path)
    running.stdout.readline()
    (held,) = (tmp_path / "tmp").iterdir()
    assert held != left
    os.utime(held, (0, 0))
    ended("ends", 0, folder=tmp_path)
    assert held.exists()
    running.terminate()
    running.wait()


@pytest.mark.slow
def test_a_ctrl_c_during_the_start_leaves_no_traceback(tmp_path):
    for wait in (0.03, 0.06, 0.1, 0.2):
        process = subprocess.Popen(
            [sys.executable, "-m", "deploykit", "doctor"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        log = process.communicate(timeout=60)[1]
        assert "/deploykit/cli/" not in log  # Python itself may have been starting
