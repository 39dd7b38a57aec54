"""A command in a process of its own, with limits, that ends when this process ends.

A model or a data file may come from anywhere, and what reads it may take all memory, never end, or
die. So the process that the user starts reads nothing: it waits for one that does, ends it with all
that it has started, tidies up, and always ends with an exit status that has a meaning.
"""

import contextlib
import mmap
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import click

from deploykit.transforms.untrusted.file_locks import locked

_PREFIX = "deploykit-run-"  # no other temporary folder is called so
_GRACE = 1.5  # seconds in which a command that is to end may tidy up by itself
_YOUNG = 60.0  # seconds in which a folder may not yet be held by its process
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOPPING = (signal.SIGTSTP, signal.SIGCONT)
_ENDED, _CAPPED = 0, 1  # places of what a worker tells
_WATCHED = {signal.SIGCHLD, *_ENDING, *_STOPPING}


def supervise(command: Callable[[], int]) -> NoReturn:
    """Run a command in a process of its own, and end with its exit status.

    130 and 143: a Ctrl-C or a SIGTERM ended it. 6: it was killed for want of memory or time. 2: it
    died of what it read.
    """
    with _own_folder() as folder:
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        this, reported = os.getpid(), mmap.mmap(-1, 2)  # shared with the worker
        worker = os.fork()
        if not worker:
            _work(command, this, folder, reported)
        with contextlib.suppress(OSError):  # it has done so itself
            os.setpgid(worker, worker)
        status = _status(*_watch(worker), bool(reported[_ENDED]), bool(reported[_CAPPED]))
        if folder is not None:
            from deploykit.transforms.untrusted.file_locks import remove_noted

            remove_noted(folder / "unfinished")
    sys.exit(status)


def _work(
    command: Callable[[], int], parent: int, folder: Path | None, reported: mmap.mmap
) -> NoReturn:
    """Be the process that works: it ends with its parent, and keeps within its own bounds.

    It tells whether it has a cap that was asked for, and that it came to its own end, as a library
    may end it too.
    """
    from deploykit.transforms.runtime import process_limits
    from deploykit.transforms.untrusted import file_locks

    os.setpgid(0, 0)
    process_limits.end_with_parent(parent)
    process_limits.watched(lambda: reported.__setitem__(_CAPPED, 1))
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


def _watch(worker: int) -> tuple[int, signal.Signals | None]:
    """Wait for the end of a worker; return its status, and which signal was to end it."""
    ending: signal.Signals | None = None
    kill_at = None
    while True:
        patience = None if kill_at is None else max(0.0, kill_at - time.monotonic())
        number = _next_signal(patience)
        if number is None or (number in _ENDING and ending is not None):
            _signal_group(worker, signal.SIGKILL)
            return os.waitpid(worker, 0)[1], ending
        if number in _ENDING:
            ending, kill_at = signal.Signals(number), time.monotonic() + _GRACE
            _signal_group(worker, signal.SIGINT)
            _signal_group(worker, signal.SIGCONT)
        elif number == signal.SIGTSTP:  # Ctrl-Z: the worker is in another group than the terminal's
            _signal_group(worker, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
        elif number == signal.SIGCONT:
            _signal_group(worker, signal.SIGCONT)
        else:
            ended, status = os.waitpid(worker, os.WNOHANG)
            if ended:
                return status, ending


def _next_signal(seconds: float | None) -> int | None:
    if seconds is None:
        return signal.sigwait(_WATCHED)
    result = signal.sigtimedwait(_WATCHED, seconds)
    return None if result is None else result.si_signo


def _signal_group(worker: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker, number)


def _status(status: int, ending: signal.Signals | None, ended: bool, capped: bool) -> int:
    """Return the exit status that a worker's end means; say it where the worker could not."""
    code = os.waitstatus_to_exitcode(status)
    if ending is not None:
        if code < 0 and not ended:  # otherwise the command has said it, and hung in its libraries
            _say("interrupted")
        return 128 + ending
    if ended and code >= 0:
        return code
    if code == -signal.SIGALRM:
        _say("error: the command did not finish within the seconds of --timeout")
        return 6
    if code == -signal.SIGKILL:
        _say("error: the command was killed, as a rule because the machine ran out of memory")
        return 6
    how = f"died of {signal.Signals(-code).name}" if code < 0 else f"was ended with status {code}"
    if capped:
        _say(f"error: the command {how}, as a rule because --memory-limit allows no more memory")
        return 6
    _say(f"error: the command {how} on what it was given to read")
    return 2


def _say(sentence: str) -> None:
    click.echo(f"deploykit: {sentence}", err=True)


@contextlib.contextmanager
def _own_folder() -> Iterator[Path | None]:
    """Yield a folder for temporary files, which is removed at the end; None: there can be none.

    It is locked: what nobody holds was left by a command that was killed with what watched it.
    """
    with contextlib.ExitStack() as undo:
        folder = None
        try:
            place = Path(tempfile.gettempdir())
            _remove_left(place)
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            undo.enter_context(locked(folder))
        except OSError:  # a full disk, or none that can be written to: what needs one will say so
            pass
        yield folder


def _remove_left(place: Path) -> None:
    """Remove the folders of commands that were killed together with what watched them."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            is_old = time.time() - status.st_mtime > _YOUNG and status.st_uid == os.getuid()
            if is_old and folder.is_dir():
                with locked(folder) as is_dead:
                    if is_dead:
                        shutil.rmtree(folder, ignore_errors=True)
