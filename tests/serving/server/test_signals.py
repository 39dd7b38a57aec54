"""A signal ends the wait of a process, whatever its threads do; the second one ends it at once."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

START = """
import contextlib, queue, signal, sys, threading, time
from deploykit.serving.server.process import next_of, own_process

own_process()

def begun():
    print("begun", flush=True)

def wait():
    try:
        next_of(queue.SimpleQueue())
    except KeyboardInterrupt:
        print("stop", flush=True)
"""
ANOTHER_THREAD = """
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # so the other thread gets it
begun()
wait()
"""
LOCKED = """
begun()
# A handler in Python runs in the main thread, where it cannot have a lock that this line holds.
events = [each for name, module in list(sys.modules.items()) for each in vars(module).values()
          if name.startswith("deploykit.serving.server") and isinstance(each, threading.Event)]
assert events
with contextlib.ExitStack() as held:
    for each in events:
        held.enter_context(each._cond)
    signal.raise_signal(signal.SIGTERM)
    time.sleep(0)
wait()
"""
TWICE = """
begun()
wait()
print("drains", flush=True)
time.sleep(60)
"""


@contextmanager
def running(code: str):
    process = subprocess.Popen(
        [sys.executable, "-c", START + code], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "begun\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_signal_that_another_thread_gets():
    with running(ANOTHER_THREAD) as process:
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=30)[0] == "stop\n"


@pytest.mark.sampled
def test_a_signal_while_the_main_thread_has_a_lock():
    with running(LOCKED) as process:
        assert process.communicate(timeout=30)[0] == "stop\n"


@pytest.mark.sampled
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process(number):
    with running(TWICE) as process:
        process.send_signal(number)
        assert process.stdout.readline() == "stop\n"
        assert process.stdout.readline() == "drains\n"
        process.send_signal(number)
        assert process.wait(30) == 128 + number


@pytest.mark.sampled
def test_two_signals_at_once_are_one():
    """timeout(1) sends one to its child and one to the group."""
    with running(TWICE) as process:
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stop\n"
        assert process.stdout.readline() == "drains\n"
