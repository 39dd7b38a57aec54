"""Runs a command in a worker process with limits, which ends together with this process.

A model or data file may be malicious: reading it may use all memory, hang or crash. So the process
that the user starts reads nothing. It waits for a worker, kills it with all its child processes if
needed, cleans up, and always exits with a documented status.
"""

import contextlib
import math
import mmap
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from deploykit.cli import failures
from deploykit.cli.failures import complain
from deploykit.transforms.common.errors import CrashError, Error, LimitError
from deploykit.transforms.runtime.resident_memory import INTERVAL, Family
from deploykit.transforms.untrusted.file_locks import locked

_PREFIX = "deploykit-run-"  # unique to these temporary folders
_GRACE = 1.5  # seconds in which a command that must end may clean up by itself
_YOUNG = 60.0  # seconds in which a new folder may not be locked by its process yet
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOPPING = (signal.SIGTSTP, signal.SIGCONT)
_ENDED, _CAPPED, _OF_FAILURES = range(3)  # indices of the flags that a worker shares
_WATCHED = {signal.SIGCHLD, *_ENDING, *_STOPPING}


def supervise(command: Callable[[], int], arguments: Sequence[str] = ()) -> NoReturn:
    """Run a command in a worker process, and exit with its status.

    If the worker cannot print the error, this process does, also as JSON for a command that prints
    JSON; `arguments` are its arguments.

    130 and 143: Ctrl-C or SIGTERM ended it. 6: it was killed at a memory or time limit. 2: its
    input crashed it.
    """
    with _own_folder() as folder:
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        this = os.getpid()
        reported = mmap.mmap(-1, _OF_FAILURES + failures.SHARED)  # shared with the worker
        worker = os.fork()
        if not worker:
            _work(command, this, folder, reported)
        with contextlib.suppress(OSError):  # the worker may have done so first
            os.setpgid(worker, worker)
        memory = Family(worker)
        result, ending = _watch(worker, memory)
        capped = bool(reported[_CAPPED]) or memory.was_near
        status = _status(result, ending, bool(reported[_ENDED]), capped)
        if isinstance(status, Error):
            status = failures.fail_for_another(status, arguments, reported[_OF_FAILURES:])
        if folder is not None:
            from deploykit.transforms.untrusted.file_locks import remove_noted

            remove_noted(folder / "unfinished")
    sys.exit(status)


def _work(
    command: Callable[[], int], parent: int, folder: Path | None, reported: mmap.mmap
) -> NoReturn:
    """Run the command in the worker, which ends with its parent and sets its own limits.

    It sets shared flags: whether a requested limit applies, and that the command itself has ended,
    because a library may end the process too.
    """
    from deploykit.transforms.runtime import process_limits
    from deploykit.transforms.untrusted import file_locks

    os.setpgid(0, 0)
    sys.unraisablehook = _interrupt_again
    process_limits.end_with_parent(parent)
    process_limits.watched(lambda: reported.__setitem__(_CAPPED, 1))
    failures.share_with(memoryview(reported)[_OF_FAILURES:])
    if folder is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        file_locks.note_in(folder / "unfinished")
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        status = command()
    except KeyboardInterrupt:  # before the command, or after it
        status = 128 + signal.SIGINT
    reported[_ENDED] = 1
    sys.exit(status)


def _interrupt_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Interrupt again where Python ignores it, as in the callback of a weak reference."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        main = threading.main_thread().ident
        # Later, as it would be ignored here too.
        threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(ignored)


def _watch(worker: int, memory: Family) -> tuple[int, signal.Signals | None]:
    """Wait for the end of a worker; return its status, and the signal that ended it or None.

    A worker that has grown beyond its memory limit is killed.
    """
    ending: signal.Signals | None = None
    kill_at = math.inf
    while True:
        number = _next_signal(memory, kill_at)
        if number is None or (number in _ENDING and ending is not None):
            _signal_group(worker, signal.SIGKILL)
            return os.waitpid(worker, 0)[1], ending
        if number in _ENDING:
            ending, kill_at = signal.Signals(number), time.monotonic() + _GRACE
            _signal_group(worker, signal.SIGINT)
            _signal_group(worker, signal.SIGCONT)
        elif number == signal.SIGTSTP:  # Ctrl-Z does not reach the worker's process group
            _signal_group(worker, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
        elif number == signal.SIGCONT:
            _signal_group(worker, signal.SIGCONT)
        else:
            ended, status = os.waitpid(worker, os.WNOHANG)
            if ended:
                return status, ending


def _next_signal(memory: Family, kill_at: float) -> int | None:
    """Return the next signal; None: it is time to kill the worker, or it takes too much memory."""
    while (left := kill_at - time.monotonic()) > 0 and not memory.look():
        info = signal.sigtimedwait(_WATCHED, min(left, INTERVAL))
        if info is not None:
            return info.si_signo
    return None


def _signal_group(worker: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker, number)


def _status(status: int, ending: signal.Signals | None, ended: bool, capped: bool) -> int | Error:
    """Return the exit status for a worker's end, or the error if the worker could not print it."""
    code = os.waitstatus_to_exitcode(status)
    if ending is not None:
        if code < 0 and not ended:  # otherwise the command has printed it, and hung in a library
            complain("interrupted")
        return 128 + ending
    if ended and code >= 0:
        return code
    if code == -signal.SIGALRM:
        return LimitError("command-timeout")
    if code == -signal.SIGKILL:
        return LimitError("command-killed")
    how = f"crashed with {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
    return (
        LimitError("command-memory", how=how) if capped else CrashError("command-crashed", how=how)
    )


@contextlib.contextmanager
def _own_folder() -> Iterator[Path | None]:
    """Yield a temporary folder, which is removed at the end; None if it cannot be created.

    The folder is locked. An unlocked one was left by a command that was killed with its parent.
    """
    with contextlib.ExitStack() as undo:
        folder = None
        try:
            place = Path(tempfile.gettempdir())
            _remove_left(place)
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            undo.enter_context(locked(folder))
        except OSError:  # a full or read-only disk: code that needs a folder reports the error
            pass
        yield folder


def _remove_left(place: Path) -> None:
    """Remove the folders of commands that were killed together with their parents."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            is_old = time.time() - status.st_mtime > _YOUNG and status.st_uid == os.getuid()
            if is_old and folder.is_dir():
                with locked(folder) as is_dead:
                    if is_dead:
                        shutil.rmtree(folder, ignore_errors=True)
