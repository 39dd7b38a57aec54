"""Hanging tests fail with their stacks, and a hanging end changes no status."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import pairwise

ROOT = Path(__file__).parents[1]
CONFTEST = """
from tests import hanging

hanging.{} = 5

def pytest_configure(config):
    config.pluginmanager.register(hanging)
"""
HANGS = """
import time

def test_is_well():
    pass

def test_hangs():
    time.sleep(1000)
"""
HANGS_AFTERWARDS = """
import threading
import pytest

@pytest.fixture(scope="session")
def hangs():
    yield
    threading.Event().wait()

def test_is_well():
    pass

def test_fails(hangs):
    assert not "this"
"""
LEFT = """
import threading

def test_leaves_a_thread_behind():
    threading.Thread(target=threading.Event().wait).start()
    assert {}
"""


def pytest_of(
    folder: Path, limit: str, content: str, *options: str
) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST.format(limit))
    (folder / "test_it.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "name"),
    [
        (HANGS, "test_hangs"),
        (HANGS_AFTERWARDS, "test_fails"),
    ],
    ids=["itself", "after its failure"],
)
def test_a_test_that_hangs_fails(tmp_path, content, name):
    done = pytest_of(tmp_path, "SECONDS", content, "-n1", "--max-worker-restart=0", "-rA")
    assert done.returncode == 1
    assert f"FAILED test_it.py::{name}" in done.stdout
    assert "PASSED test_it.py::test_is_well" in done.stdout
    assert re.search(r"test_it.py\", line \d+ in (test_)?hangs", done.stderr)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kept", "status"),
    pairwise.drawn(
        "the_end_of_a_process_that_hangs_has_the_status_of_its_tests",
        [("True", 0), ("False", 1)],
        1,
        quick=1,
    ),
)
def test_the_end_of_a_process_that_hangs_has_the_status_of_its_tests(tmp_path, kept, status):
    done = pytest_of(tmp_path, "END_SECONDS", LEFT.format(kept), "-p", "no:xdist")
    assert done.returncode == status
    assert f"1 {'failed' if status else 'passed'}" in done.stdout
    assert "in _shutdown" in done.stderr
