"""TensorFlow is quiet, and starts once in a test process and once for its children.

Golden files know their tests. What hangs ends.
"""

import contextlib
import gc
import os
import random
import subprocess
import sys
from contextvars import ContextVar

import hypothesis
import pytest

# No property test fails because the machine is slow.
hypothesis.settings.register_profile(
    "without a clock", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("without a clock")

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("DEPLOYKIT_CACHE_DIR", "")  # no test finds what another run compiled

pytest.register_assert_rewrite("tests.support")  # it shows how texts differ

from deploykit.transforms.runtime import child_process  # noqa: E402
from tests import forking, hanging, pairwise, support  # noqa: E402
from tests.forking import Forks  # noqa: E402

# pytest names the test in the environment, and a child is only used again in the same one.
CURRENT_TEST = "PYTEST_CURRENT_TEST"
ENVIRONMENT = os.environ


def pytest_addoption(parser):
    parser.addoption(
        "--shuffle-files",
        action="store_true",
        help=f"take files in an order drawn by {pairwise.SEED}",
    )


def pytest_configure(config):
    config.pluginmanager.register(hanging)
    config.pluginmanager.register(pairwise)


@pytest.hookimpl(tryfirst=True)  # before `-m` and `-k` take some away
def pytest_collection_modifyitems(config, items):
    config.stash[support.COLLECTED] = tuple(items)
    if config.getoption("shuffle_files"):
        files = sorted({item.path for item in items})
        random.Random(pairwise.seed()).shuffle(files)
        order = {file: place for place, file in enumerate(files)}
        items.sort(key=lambda item: order[item.path])


def pytest_collection_finish():
    gc.freeze()  # what has been imported stays, and is not looked through again and again


def pytest_runtest_setup(item):
    support.running = item


@pytest.fixture(autouse=True)
def control_flow_of_today():
    """Build conditions and loops as functions, whatever the test before has set."""
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.compat.v1.enable_control_flow_v2()


@pytest.fixture(scope="session", autouse=True)
def forked_children():
    """Fork the children that run TensorFlow, and use them in several tests."""
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(Forks()) as forks:
        patch.setattr(child_process, "subprocess", forks)
        patch.setattr(forking, "running", forks)
        with child_process.reused_children():
            yield


@pytest.fixture(autouse=True)
def few_idle_children():
    """Keep few children for the next tests, and none that takes much memory."""
    yield
    forking.end_idle_children()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup():
    os.environ.pop(CURRENT_TEST, None)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call():
    os.environ.pop(CURRENT_TEST, None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown():
    """Let pytest find its variable to remove it, also where a test has put another environment."""
    ENVIRONMENT.setdefault(CURRENT_TEST, "")


@pytest.fixture
def new_children(monkeypatch):
    """Use no child of another test in this one."""
    monkeypatch.setattr(child_process, "_idle", ContextVar("_idle", default=None))


@pytest.fixture
def started_children(monkeypatch, new_children):
    """Start the children of this test as they are outside the tests."""
    monkeypatch.setattr(child_process, "subprocess", subprocess)


@pytest.fixture
def official():
    """A server of the official stubs, which answers with what it was sent."""
    from tests.serving.official import Official

    server = Official()
    yield server
    server.close()
