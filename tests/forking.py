"""Children that start at once: each is forked from a process that has imported TensorFlow.

That import takes four seconds of a core, and most tests that need a child are about what it does
and not about its start. A forked child is a process of its own all the same: it crashes, hangs, is
killed and is capped alone, and it ends with the process of the tests, however that one ends.
Libraries read variables when they are loaded, so there is one process to fork from for each set of
these. A child whose log is shown is started as outside the tests.
"""

import contextlib
import gc
import importlib
import itertools
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from typing import IO, Any

import psutil

from deploykit.__main__ import main
from deploykit.system import machine
from deploykit.transforms.runtime import child_main, child_process

# What children do: an import in each of them would take longer than most of their work.
_IMPORTED = (
    "tensorflow",
    "deploykit.batch_inference.formats.binary_formats",
    "deploykit.batch_inference.formats.text_formats",
    "deploykit.batch_inference.part_worker",
    "deploykit.benchmarking.devices",
    "deploykit.benchmarking.worker_sessions",
    "deploykit.data.tfdata_service",
    "deploykit.evaluation.examiner",
    "deploykit.exporting.deployment",
    "deploykit.exporting.photo_inputs",
    "deploykit.importers.keras.keras_files",
    "deploykit.importers.resaving",
    "deploykit.inspection.step_stats",
    "deploykit.pipelines.live_keras",
    "deploykit.quantization.accuracy",
    "deploykit.quantization.observers",
    "deploykit.quantization.rounding_session",
    "deploykit.quantization.timing.layer_times",
    "deploykit.records.images",
    "deploykit.transforms.engines.engine_session",
    "deploykit.transforms.runtime.importing",
    "deploykit.verification.running",
    "pyarrow.csv",
    "pyarrow.parquet",
)
# Others are read at the first use, which is in the child, or change nothing but how fast it is.
_READ_LATER = (
    "DNNL_",
    "GLIBC_",
    "GOMP_",
    "KMP_",
    "MALLOC_",
    "OMP_",
    "ONEDNN_",
    "TF_NUM_",
    "TF_ONEDNN_",
)
_READ_WHEN_LOADED = ("PYTHONPATH", *machine._VARIABLES)
_DEFAULTS = {("KERAS_BACKEND", "tensorflow")}  # which change nothing
_AT_ONCE = 5  # parents, each of which takes 0.2 GB of memory
_IDLE = 2  # children that wait for the next test
_LARGE = 1 << 30  # bytes of memory of a child that does not
_NUMBER = 8  # bytes of a process id and of a status
_LARGEST = 1 << 20  # bytes of a request


def end_idle_children() -> None:
    """End the children that wait to be used again, but for the last ones that are small."""
    places = itertools.count()

    def is_kept(pid: int) -> bool:
        try:
            return next(places) < _IDLE and psutil.Process(pid).memory_info().rss < _LARGE
        except psutil.NoSuchProcess:  # it died
            return False

    child_process.end_idle_children(is_kept)


running: "Forks | None" = None  # those of this run of the tests


class Forks:
    """What stands in for `subprocess` where children are started."""

    DEVNULL = subprocess.DEVNULL

    def __init__(self) -> None:
        self._parents: dict[frozenset[tuple[str, str]], Parent] = {}

    def Popen(self, command: list[str], **given: Any) -> "Fork | subprocess.Popen[bytes]":
        environment, log = given["env"], given["stderr"]
        if log is None:
            return subprocess.Popen(command, **given)
        files = [*given["pass_fds"], log.fileno()]
        return Fork(self._parent(environment).requests, environment, files)

    def command(
        self, arguments: list[str], environment: dict[str, str], log: IO[bytes]
    ) -> "Command":
        """Start a command of deploykit, whose standard error is `log`."""
        return Command(self._parent(environment).requests, environment, log, arguments)

    def _parent(self, environment: Mapping[str, str]) -> "Parent":
        found = {kv for kv in environment.items() if kv[0].startswith(_READ_WHEN_LOADED)}
        read = frozenset(kv for kv in found - _DEFAULTS if not kv[0].startswith(_READ_LATER))
        parent = self._parents.pop(read, None) or Parent(environment)
        self._parents[read] = parent  # the last is the one that was used last
        if len(self._parents) > _AT_ONCE:
            self._parents.pop(next(iter(self._parents))).close()
        return parent

    def close(self) -> None:
        for parent in self._parents.values():
            parent.close()


class Parent:
    """A process that has imported TensorFlow with certain variables, and forks when it is asked."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-BP", "-m", __name__, str(theirs.fileno())],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # TensorFlow's import says what nobody asked for
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()

    def close(self) -> None:
        self.requests.close()
        self._process.kill()
        self._process.wait()


class Fork:
    """What `subprocess.Popen` is to a child that was started."""

    def __init__(
        self,
        parent: socket.socket,
        environment: dict[str, str],
        files: list[int],
        arguments: list[str] | None = None,
    ):
        self._news, theirs = os.pipe()
        request = pickle.dumps((os.getcwd(), environment, arguments))
        socket.send_fds(parent, [request], [*files, theirs])
        os.close(theirs)
        self.pid = self._next()
        self._status: int | None = None

    def kill(self) -> None:
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self._status is None:
            self._status = self._next()
            os.close(self._news)
        return self._status

    def _next(self) -> int:
        number = os.read(self._news, _NUMBER)
        assert number, "the parent of the forked children has died"
        return int.from_bytes(number, sys.byteorder, signed=True)


class Command(Fork):
    """What `subprocess.Popen` is to a command whose standard output is a pipe of text."""

    returncode: int | None = None

    def __init__(
        self,
        parent: socket.socket,
        environment: dict[str, str],
        log: IO[bytes],
        arguments: list[str],
    ):
        output, theirs = os.pipe()
        super().__init__(parent, environment, [theirs, theirs, log.fileno()], arguments)
        os.close(theirs)
        self.stdout = os.fdopen(output)

    def wait(self, timeout: float | None = None) -> int:
        if self._status is None and not select.select([self._news], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("deploykit", timeout or 0)
        self.returncode = super().wait()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        self.wait(timeout)
        text = "" if self.stdout.closed else self.stdout.read()
        self.stdout.close()
        return text, None


def _answer_requests(requests: socket.socket) -> None:
    """Fork a child for each request, and a process that waits for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # of those that wait
    while True:
        request, files, _, _ = socket.recv_fds(requests, _LARGEST, 4)
        if not request:
            return
        if not os.fork():
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _keep(request, *files)
        for file in files:
            os.close(file)


def _keep(request: bytes, questions: int, answers: int, log: int, news: int) -> None:
    """Tell the number of a new child, and, when it has ended, how; end it if nobody listens."""
    pid = os.fork()
    if not pid:
        os.close(news)
        _be_child(request, questions, answers, log)
    for file in (questions, answers, log):
        os.close(file)
    os.write(news, pid.to_bytes(_NUMBER, sys.byteorder))
    if not _ends_first(pid, news):
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know
        os.write(news, status.to_bytes(_NUMBER, sys.byteorder, signed=True))
    os._exit(0)


def _ends_first(pid: int, news: int) -> bool:
    """Wait for the end of a child or of who wants to know; return whether the child ended."""
    ended = os.pidfd_open(pid)
    events = select.poll()
    events.register(ended, select.POLLIN)
    events.register(news, 0)  # a pipe without a reader is an error, which is told unasked
    return any(file == ended for file, _ in events.poll())


def _be_child(request: bytes, questions: int, answers: int, log: int) -> None:
    folder, environment, arguments = pickle.loads(request)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for file, standard in ((nothing, 0), (nothing if arguments is None else answers, 1), (log, 2)):
        os.dup2(file, standard)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # the parent may have looked for it elsewhere
    if arguments is not None:
        for file in (questions, answers, log):
            os.close(file)
        sys.argv[1:] = arguments
        main()  # raises SystemExit
    try:
        child_main.serve(questions, answers)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    for _name in _IMPORTED:
        with contextlib.suppress(ImportError):  # tests hide some
            importlib.import_module(_name)
    gc.freeze()  # no child has to look through all this, nor to copy its pages
    with socket.socket(fileno=int(sys.argv[1])) as inlet:
        _answer_requests(inlet)
