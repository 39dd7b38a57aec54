"""TensorFlow is quiet and started at most once per test process; golden files know their tests."""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

pytest.register_assert_rewrite("tests.support")  # it shows how texts differ

from tests import support  # noqa: E402


@pytest.hookimpl(tryfirst=True)  # before `-m` and `-k` take some away
def pytest_collection_modifyitems(config, items):
    config.stash[support.COLLECTED] = tuple(items)


def pytest_runtest_setup(item):
    support.running = item
