"""A memory limit counts what a process holds, not the address space that it reserves."""

import mmap
import os
import time

import numpy as np
import pytest

from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.runtime import child_process, resident_memory
from deploykit.transforms.runtime.child_process import ResourceLimits
from tests.support import raises

HERE = "tests.transforms.runtime.test_resident_memory"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _started(started_children):
    """Start the children as outside the tests."""


def holds(size, reserved=0, engine=0, ends=False):
    """Import an engine that takes `engine` MiB, reserve some address space, and fill `size` MiB."""
    with resident_memory.importing_engine():
        parts = [np.ones(engine * MIB, np.uint8)]
    parts.append(mmap.mmap(-1, max(1, reserved) * MIB, flags=mmap.MAP_PRIVATE))
    for _ in range(size):  # in steps, as a model does that computes
        parts.append(np.ones(MIB, np.uint8))
        time.sleep(0.001)
    time.sleep(3 * resident_memory.INTERVAL)
    if ends:
        os.abort()
    return sum(len(part) for part in parts[2:]) // MIB


@pytest.mark.sampled
@pytest.mark.parametrize(
    "held",
    [{"size": 100, "reserved": 4000}, {"size": 100, "engine": 400}],
    ids=["address space", "the engine"],
)
def test_it_is_not_counted(held):
    with ResourceLimits(memory=200 * MIB):
        assert child_process.call(f"{HERE}:holds", *arguments(**held)) == 100


def arguments(size, reserved=0, engine=0, ends=False):
    return size, reserved, engine, ends


@pytest.mark.sampled
@pytest.mark.parametrize(
    "held",
    [{"size": 400}, {"size": 195, "ends": True}],
    ids=["above the limit", "near the limit, and an abort"],
)
def test_it_is_a_lack_of_memory(held):
    with (
        ResourceLimits(memory=200 * MIB),
        raises(LimitError, "child-memory-limit", runs="TensorFlow", size="200 MiB"),
    ):
        child_process.call(f"{HERE}:holds", *arguments(**held))


@pytest.mark.sampled
def test_an_abort_far_from_the_limit_is_a_crash():
    with ResourceLimits(memory=2000 * MIB), raises(Exception, "child-died"):
        child_process.call(f"{HERE}:holds", *arguments(size=10, ends=True))


@pytest.mark.sampled
def test_each_use_of_a_child_has_a_limit_of_its_own():
    with child_process.reused_children():
        for memory, size in ((200, 100), (600, 400), (200, 100)):
            with ResourceLimits(memory=memory * MIB):
                assert child_process.call(f"{HERE}:holds", size) == size
        with ResourceLimits(memory=200 * MIB), raises(LimitError, "child-memory-limit"):
            child_process.call(f"{HERE}:holds", 400)


def test_without_a_limit_no_child_is_watched():
    with ResourceLimits(memory=None):
        assert child_process.call(f"{HERE}:holds", 10) == 10
    assert not resident_memory._watched
