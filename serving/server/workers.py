"""Several processes that serve on the same ports: starts, watches, replaces and drains them.

Each has its own TensorFlow and models, and polls the folders itself. While a version is replaced,
for about one poll interval, some workers use the old version and others the new one. The kernel
balances connections, not requests, among the workers that listen. While none does, it refuses them.
"""

import contextlib
import json
import logging
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace

from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.server.ports import bound
from deploykit.serving.server.process import Ready, RunningServer, next_of, own_process
from deploykit.serving.server.process import start as start_alone
from deploykit.serving.server.settings import ServerSettings
from deploykit.transforms.common.errors import Error
from deploykit.transforms.common.messages import log_to_stderr
from deploykit.transforms.runtime.child_process import python_path

logger = logging.getLogger("deploykit")

_SHORT_LIFE = 10.0  # a worker that served for less counts as unhealthy
_PAUSES = (0.0, 0.0, 0.5, 1.0, 2.0)  # before the restart of an unhealthy worker, by failures
_ENDING_SECONDS = 3.0  # time for a worker to exit after it drained
_ORPHAN_SECONDS = 1.0  # time for a worker to drain after its parent died
_ORPHANED = 128 + signal.SIGTERM  # exit status of a worker whose parent has died


class WorkerError(Error):
    """The error of workers that could not start, with the exit status of the failed one."""

    def __init__(self, code: str = "", /, exit_status: int = 2, **fields: object) -> None:
        super().__init__(code, **fields)
        self.exit_status = exit_status


def start(settings: ServerSettings) -> RunningServer:
    """Serve with several processes; return once all of them listen.

    Error: one of them could not start. KeyboardInterrupt: a signal stopped them during the start.
    """
    reports: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    with contextlib.ExitStack() as undo:
        reserved = undo.enter_context(_reserved(settings))
        workers = [_Worker(i, reserved, reports) for i in range(settings.workers)]
        undo.callback(_stop, workers, settings, False)
        for worker in workers:
            worker.start()
        ready = _all_ready(reports, len(workers))
        held = undo.pop_all()

        def end(lame_duck: bool) -> None:
            with held:
                _stop(workers, settings, lame_duck)

        return RunningServer(settings, ready, end)


def _all_ready(reports: "queue.SimpleQueue[tuple[str, str]]", count: int) -> Ready:
    """Return the report of the workers once all of them listen."""
    document = ""
    for _ in range(count):
        kind, document = next_of(reports)
        if kind == "failed":
            failure = json.loads(document)
            raise WorkerError("worker-failed", failure["exit_status"], reason=failure["error"])
    return Ready(**json.loads(document))


def _stop(workers: "list[_Worker]", settings: ServerSettings, lame_duck: bool) -> None:
    """Stop workers, optionally after a lame-duck phase; a second call has no effect."""
    seconds = settings.drain_seconds + (settings.lame_duck_seconds if lame_duck else 0.0)
    end = time.monotonic() + seconds + _ENDING_SECONDS
    for worker in workers:
        worker.stop(signal.SIGTERM if lame_duck else signal.SIGINT)
    for worker in workers:
        worker.join(max(0.0, end - time.monotonic()))
    for worker in workers:
        worker.kill()


@contextlib.contextmanager
def _reserved(settings: ServerSettings) -> Iterator[ServerSettings]:
    """Reserve the ports; yield settings with their numbers. FileError: one is in use."""
    held: list[socket.socket] = []

    def hold(port: int, flag: str) -> int:
        bound(settings.host, port, flag, shared=False).close()  # a shared bind would not fail
        held.append(bound(settings.host, port, flag, shared=True))
        return int(held[-1].getsockname()[1])

    try:
        port = hold(settings.port, "--port")
        rest = settings.rest_api_port
        rest = None if rest is None else hold(rest, "--rest_api_port")
        yield replace(settings, port=port, rest_api_port=rest)
    finally:
        for item in held:
            item.close()


class _Worker:
    """Keeps one process running until `stop`."""

    def __init__(
        self,
        number: int,
        settings: ServerSettings,
        reports: "queue.SimpleQueue[tuple[str, str]]",
    ) -> None:
        self._number, self._settings, self._reports = number, settings, reports
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until a stopped worker has exited."""
        self._thread.join(seconds)

    def _keep(self) -> None:
        """Start a process, and restart it whenever it ends."""
        # A process that is still starting would print a traceback for SIGINT.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        began, short_lives = False, 0
        while True:
            with self._lock:
                if self._stopping.is_set():
                    return
                process, status = self._new()
            with os.fdopen(status) as file:
                serves = self._tell(file.readline())
            began, since = began or serves, time.monotonic()
            code = process.wait()
            if self._stopping.is_set() or not began:  # a failure at startup would repeat
                return
            how = signal.Signals(-code).name if code < 0 else f"status {code}"
            logger.warning("worker %d ended with %s; it is replaced", self._number, how)
            healthy = serves and time.monotonic() - since >= _SHORT_LIFE
            short_lives = 0 if healthy else short_lives + 1
            self._stopping.wait(_PAUSES[min(short_lives, len(_PAUSES) - 1)])

    def stop(self, number: signal.Signals) -> None:
        """Send a signal that stops the process, and do not restart it."""
        with self._lock:
            self._stopping.set()
            if self._process is not None:
                self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()

    def _new(self) -> tuple["subprocess.Popen[bytes]", int]:
        """Start a process; return it, and the pipe that receives its report."""
        read, write = os.pipe()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "deploykit.serving.server.workers",
                str(self._number),
                str(write),
            ],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": python_path()},
            pass_fds=[write],
            start_new_session=True,  # the parent handles Ctrl-C and passes it on once
        )
        os.close(write)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            loading = replace(self._settings.loading, tells=self._number == 0)
            pickle.dump(replace(self._settings, loading=loading), self._process.stdin)
            self._process.stdin.flush()
        return self._process, read

    def _tell(self, line: str) -> bool:
        """Pass on the report of a process; return whether it serves."""
        died = json.dumps({"error": f"worker {self._number} died during startup",
                           "exit_status": Error.exit_status})  # fmt: skip
        is_whole = line.endswith("\n")  # it may die while it writes
        failed = not is_whole or "error" in json.loads(line)
        self._reports.put(("failed" if failed else "ready", line if is_whole else died))
        return not failed


def _work(number: str, status: int) -> None:
    """Run a worker with the settings from standard input, which closes when the parent ends."""
    log_to_stderr(f"worker {number}")
    own_process()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    try:
        settings = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):  # the parent died before it sent them
        os._exit(_ORPHANED)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with os.fdopen(status, "w") as file:

        def say(document: dict[str, object]) -> None:
            file.write(f"{json.dumps(document)}\n")
            file.flush()

        try:
            with start_alone(settings) as server:
                say(asdict(Ready(server.port, server.rest_api_port, server.models)))
                server.wait()
        except KeyboardInterrupt:  # before it listens
            pass
        except (Error, ServingError) as error:
            code = getattr(error, "exit_status", Error.exit_status)
            with contextlib.suppress(BrokenPipeError):
                say({"error": str(error), "exit_status": code})
            os._exit(code)
        except BrokenPipeError:  # the parent died
            os._exit(_ORPHANED)
    os._exit(0)


def _end_with_parent() -> None:
    """Wait until the parent has closed standard input, then drain for at most `_ORPHAN_SECONDS`."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_ORPHAN_SECONDS)
    os._exit(_ORPHANED)


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]))
