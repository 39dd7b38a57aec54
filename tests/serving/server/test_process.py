"""A signal ends the wait of a process, whichever of its threads the kernel gives it to."""

import signal
import subprocess
import sys

CODE = """
import queue, signal, threading, time
from deploykit.serving.server.process import next_of, own_process

reports = queue.SimpleQueue()
own_process()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # so the other thread gets it
print("waiting", flush=True)
try:
    next_of(reports)
except KeyboardInterrupt:
    print("stop")
"""


def test_a_signal_that_another_thread_gets():
    process = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=30)[0] == "stop\n"
    finally:
        process.kill()
