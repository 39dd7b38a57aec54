"""TensorFlow is quiet, and starts once in a test process and once for its children.

Golden files know their tests. What hangs ends.
"""

import contextlib
import gc
import os
import random
import subprocess
import sys

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
from tests import hanging, pairwise, support  # noqa: E402
from tests.forking import Forks  # noqa: E402


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
    """Fork the children that run TensorFlow."""
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(Forks()) as forks:
        patch.setattr(child_process, "subprocess", forks)
        yield


@pytest.fixture
def started_children(monkeypatch):
    """Start the children of this test as they are outside the tests."""
    monkeypatch.setattr(child_process, "subprocess", subprocess)


@pytest.fixture
def official():
    """A server of the official stubs, which answers with what it was sent."""
    from tests.serving.official import Official

    server = Official()
    yield server
    server.close()
