"""Memory is given back after calls that took much, and good small calls cost nothing."""

import ctypes
import queue
import subprocess
import sys
import threading

import pytest

from deploykit.serving.execution.uploads import SpentMemory

MIB = 1 << 20


@pytest.fixture
def given_back():
    return queue.SimpleQueue()


def spent_memory(given_back, pause=0.0):
    return SpentMemory(lambda: given_back.put(threading.current_thread()), pause)


@pytest.mark.parametrize("size", [MIB, None])
def test_a_large_request_gives_memory_back_in_a_thread_of_its_own(given_back, size):
    spent_memory(given_back).note(size)
    assert given_back.get(timeout=60) is not threading.current_thread()


def test_small_calls_that_are_answered_start_nothing(given_back):
    spent = spent_memory(given_back)
    for _ in range(10_000):
        spent.note(600_000)
    assert spent._thread is None
    assert given_back.empty()


def test_many_small_refusals_count_together(given_back):
    spent = spent_memory(given_back)
    for _ in range(255):
        spent.note(0, refused=True)
    assert spent._thread is None
    spent.note(0, refused=True)
    assert given_back.get(timeout=60)


def test_a_call_that_ends_while_memory_is_given_back_counts_again():
    began, go_on = queue.SimpleQueue(), queue.SimpleQueue()

    def slowly():
        began.put(None)
        go_on.get()

    spent = SpentMemory(slowly, 0.0)
    spent.note(MIB)
    began.get(timeout=60)
    spent.note(MIB)
    go_on.put(None)
    began.get(timeout=60)
    go_on.put(None)


SCRIPT = """
import ctypes, psutil, time
from deploykit.serving.execution.uploads import spent

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: what is freed stays in the heap
blocks = [libc.malloc(100_000) for _ in range(2000)]
for block in blocks:
    ctypes.memset(ctypes.c_void_p(block), 1, 100_000)
for block in blocks[:-1]:  # the last one keeps the top of the heap
    libc.free(block)
held = psutil.Process().memory_info().rss
spent.note(1 << 20)
while psutil.Process().memory_info().rss > held - 150_000_000:
    time.sleep(0.01)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="no glibc")
def test_the_kernel_has_it_back():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)
