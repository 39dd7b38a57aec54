"""Run a function, or keep an object, in a child process with its own environment and limits.

TensorFlow can abort or kill the process that runs a bad graph, and reads several settings from the
environment when it starts. So code that runs a model is a module-level function or class with plain
data as arguments, and runs in a child. This limits accidents; it is not a sandbox.
"""

import contextlib
import os
import pickle
import re
import select
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from deploykit.transforms.common.errors import (
    CrashError,
    Error,
    LimitError,
    reports_no_memory,
)
from deploykit.transforms.runtime import child_main, process_limits, resident_memory
from deploykit.transforms.untrusted.files import readable_size


@dataclass
class ResourceLimits:
    """Limits for each run of TensorFlow, which happens in a child process.

    Within a `with` block they apply to runs that start there. On the command line they also apply
    to deploykit's process between two such runs.

    Example:
        >>> with deploykit.ResourceLimits(seconds=60, memory=4 << 30):
        ...     graph = deploykit.freeze("fashion.keras")
    """

    seconds: float = 600.0
    """Time limit in seconds of each run that the caller starts."""
    memory: int | None = None
    """Limit in bytes of the resident memory of each process that runs a model, beyond what its
    engine takes. Default: on the command line 70 % of the memory available at the start; otherwise
    unlimited."""
    show_log: bool = False
    """Whether to show TensorFlow's log."""
    internal_seconds: float = 30.0
    """Time limit in seconds of each internal run: constant folding, and verification on synthetic
    inputs. Loading a model does not count. `seconds` applies if it is less; --timeout sets both.
    """

    def __enter__(self) -> "ResourceLimits":
        """Apply these limits."""
        self._before = replace(limits)
        limits.take(self)
        return self

    def __exit__(self, *exception: object) -> None:
        """Restore the previous limits."""
        limits.take(self._before)

    def take(self, other: "ResourceLimits") -> None:
        """Copy the limits of another object."""
        self.seconds, self.memory, self.show_log = other.seconds, other.memory, other.show_log
        self.internal_seconds = other.internal_seconds

    @property
    def internal(self) -> float:
        """Time limit in seconds of each internal run of deploykit."""
        return min(self.seconds, self.internal_seconds)


limits = ResourceLimits()

_STACK = re.compile(r"\*\*\* |@ +0x")
_STAMP = re.compile(r"^[IWEF]\d{4} \S+ +\d+ ")  # severity, time and thread of a line of the log
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}  # even if the user exposes GPUs: runs must request one


def call(
    function: str,
    *arguments: Any,
    env: Mapping[str, str] | None = None,
    forced: Mapping[str, str | None] | None = None,
    runs: str = "TensorFlow",
    kept: bool = False,
) -> Any:
    """Return the result of `function` ("package.module:name") in a child process.

    `env` sets variables for the child unless the user has set them; `forced` overrides both. `runs`
    is the name of the program in errors, and `kept` is that of `Worker`. An Error raised there is
    raised here. LimitError: the deadline or the memory limit was reached. CrashError: the child
    died. BugError: the function failed.
    """
    worker = Worker(function, *arguments, env=env, forced=forced, runs=runs, kept=kept)
    with contextlib.closing(worker):
        return worker.created()


@contextlib.contextmanager
def reused_children() -> Iterator[None]:
    """Within the block, idle children are reused for work in the same environment.

    This saves imports of TensorFlow, which take seconds. A child with `forced` settings is used
    only once, unless it is `kept`, and so is one that failed, so that no measurement depends on
    earlier work. A nested block ends the children that it added. Each thread has separate blocks.
    """
    outer = _idle.get() or []
    inner = [*outer]
    token = _idle.set(inner)
    try:
        yield
    finally:
        _idle.reset(token)
        for child in inner:
            if child not in outer:
                child.end()
        outer[:] = [child for child in inner if child in outer]


@contextlib.contextmanager
def started_ahead() -> Iterator[None]:
    """As `reused_children`, and start a child that imports the modules of a session in advance.

    The import runs while this process reads its files.
    """
    with reused_children():
        child, children = _Child.started(_environment({}, {})), _idle.get()
        assert children is not None
        children.append(child)
        started = replace(limits, memory=process_limits.default_cap())
        child.send((f"{child_main.START}:start_tensorflow", (), started))
        yield


@dataclass(eq=False)
class _Child:
    """A process that creates objects and calls their methods, one call after the other."""

    process: "subprocess.Popen[bytes]"
    environment: Mapping[str, str]
    questions: BinaryIO
    answers: BinaryIO
    log: BinaryIO
    """Its standard error."""
    shows_log: bool
    """Whether it writes to the standard error of this process instead."""
    folder: str
    """The current folder at its start."""
    is_dropping: bool = False
    """Whether the child has not yet confirmed that it dropped its object."""

    @classmethod
    def started(cls, environment: Mapping[str, str]) -> "_Child":
        """Start the child in a separate session."""
        read_questions, write_questions = os.pipe()
        read_answers, write_answers = os.pipe()
        log = tempfile.TemporaryFile(prefix="deploykit-")  # noqa: SIM115  see end
        ends = [read_questions, write_answers]
        numbers = map(str, (*ends, os.getpid()))
        process = process_limits.start(
            lambda: subprocess.Popen(
                [sys.executable, "-P", "-m", child_main.__name__, *numbers],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr if limits.show_log else subprocess.DEVNULL,
                stderr=None if limits.show_log else log,
                pass_fds=ends,
                start_new_session=True,
            )
        )
        for end in ends:
            os.close(end)
        questions, answers = os.fdopen(write_questions, "wb"), os.fdopen(read_answers, "rb")
        return cls(process, environment, questions, answers, log, limits.show_log, _folder())

    @classmethod
    def idle(cls, environment: Mapping[str, str]) -> "_Child | None":
        """Return a free child of `reused_children` with this environment, or None."""
        children = _idle.get() or []
        needed = environment, limits.show_log, _folder()
        for child in [*children]:
            if (child.environment, child.shows_log, child.folder) == needed:
                children.remove(child)
                if child.is_free():
                    child.log.seek(0)
                    child.log.truncate()
                    return child
                child.end()  # it died or still runs earlier work, which must not affect later work
        return None

    def drop(self) -> None:
        """Tell the child to drop its object and confirm it."""
        self.send(_NOTHING)
        self.send(None)
        self.is_dropping = True

    def is_free(self) -> bool:
        """Return whether the child is alive and has dropped its object."""
        if self.is_dropping:
            self.is_dropping = False
            try:
                self.answer(min(_TEARDOWN, limits.seconds))
            except (TimeoutError, EOFError):
                return False
        return not select.select([self.answers], [], [], 0)[0]  # readable only if it died

    def send(self, message: Any) -> None:
        """Send a request; if the child died, reading the answer reports it."""
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(message, self.questions, protocol=5)  # large arrays are not copied
            self.questions.flush()

    def answer(self, seconds: float) -> Any:
        """Return the next answer. TimeoutError: none arrived in time. EOFError: the child died."""
        if not select.select([self.answers], [], [], seconds)[0]:
            raise TimeoutError
        try:
            return pickle.load(self.answers)
        except pickle.UnpicklingError:
            raise EOFError from None

    def end(self) -> None:
        """Kill the child; it has no state that could be lost."""
        resident_memory.unwatch(self.process.pid)
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):  # unread data
            self.questions.close()
        self.answers.close()
        self.log.close()


_NOTHING = ("builtins:dict", (), limits)  # an empty object for a child to create
_TEARDOWN = 5.0  # seconds for a child to drop its object
_idle: ContextVar[list[_Child] | None] = ContextVar("_idle", default=None)
"""The children to reuse. None: each child ends after its work."""


def end_idle_children(is_kept: Callable[[int], bool]) -> None:
    """End the idle children of `reused_children`, except those whose process ID `is_kept` accepts.

    The child that was used last comes first.
    """
    children = _idle.get() or []
    for child in children[::-1]:
        if not is_kept(child.process.pid):
            children.remove(child)
            child.end()


def _folder() -> str:
    """Return the current folder; empty: it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


class Worker:
    """An object of a function or class ("package.module:name") in a child process.

    The child is in a separate session, so that a Ctrl-C reaches only this process. It ends with
    this process, even if this process is killed.
    """

    def __init__(
        self,
        kind: str,
        *arguments: Any,
        env: Mapping[str, str] | None = None,
        forced: Mapping[str, str | None] | None = None,
        runs: str = "TensorFlow",
        kept: bool = False,
    ) -> None:
        """Start the child; it runs in parallel, and `created` or `ask` wait for it.

        `env` contains defaults that the user's environment overrides. `forced` contains settings
        from the command line, which override the environment; None removes a variable. The child
        sees a GPU only if CUDA_VISIBLE_DEVICES is in `forced`. `runs` is the name of the program in
        errors. `kept`: whether `reused_children` may reuse the child although variables are forced.
        """
        self._runs, self._serves_once = runs, forced is not None and not kept
        self._is_closed = False
        self._is_ready = False  # whether all requests were answered, so it can be reused
        environment = _environment(env or {}, forced or {})
        result = None if self._serves_once else _Child.idle(environment)
        self._child = result or _Child.started(environment)
        memory = process_limits.default_cap() if limits.memory is None else limits.memory
        if memory is not None:
            resident_memory.watch(self.pid)
        self._memory = memory
        try:
            self._child.send((kind, arguments, replace(limits, memory=memory)))
        except BaseException:  # such as a Ctrl-C, after which the child would keep running
            self._child.end()
            raise

    @property
    def pid(self) -> int:
        """The process ID of the child."""
        return self._child.process.pid

    def created(self) -> Any:
        """Return the created object if it is plain data; raises what `ask` raises."""
        return self._ask(None)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method of the created object.

        An Error raised there is raised here. LimitError: the deadline or the memory limit was
        reached. CrashError: the child died. BugError: the method failed.
        """
        return self._ask((method, arguments))

    def close(self) -> None:
        """End the process at once, unless `reused_children` keeps it for later work."""
        if self._is_closed:
            return
        self._is_closed = True
        children = _idle.get()
        if children is None or self._serves_once or not self._is_ready:
            self._child.end()
        else:
            self._child.drop()
            children.append(self._child)

    def _ask(self, message: Any) -> Any:
        self._is_ready = False
        with process_limits.waiting():
            self._child.send(message)
            try:
                kind, value = self._child.answer(limits.seconds)
            except TimeoutError:
                self._child.process.kill()
                raise LimitError("child-timeout", runs=self._runs, seconds=limits.seconds) from None
            except EOFError:
                raise self._death() from None
        if kind == "error":
            raise value
        self._is_ready = True
        return value

    def _death(self) -> Error:
        lacks_memory = resident_memory.unwatch(self.pid)
        status = self._child.process.wait()
        self._child.log.seek(0)
        log = self._child.log.read().decode(errors="replace")
        stripped = [line.strip() for line in log.splitlines()]
        lines = [line for line in stripped if line and not _STACK.match(line)]
        fatal = [line for line in lines if line.startswith("F") and _STAMP.match(line)]
        result = fatal or lines  # a fatal message may continue for many lines
        last = _STAMP.sub("", result[-1])[:300] if result else "it logged nothing"
        if lacks_memory and self._memory is not None:
            size = readable_size(self._memory)
            return LimitError("child-memory-limit", runs=self._runs, size=size)
        if reports_no_memory(log):
            return LimitError("child-out-of-memory", runs=self._runs)
        if status == -signal.SIGALRM:
            return LimitError("child-internal-timeout", runs=self._runs, seconds=limits.internal)
        if status == -signal.SIGKILL:
            return LimitError("child-killed", runs=self._runs)
        if status < 0:
            name = signal.Signals(-status).name
            return CrashError("child-died", runs=self._runs, signal=name, reason=last)
        return CrashError("child-ended", runs=self._runs, exit_status=status, reason=last)


def _environment(defaults: Mapping[str, str], forced: Mapping[str, str | None]) -> dict[str, str]:
    own = {**_QUIET, **defaults, **os.environ, **_NO_GPU}
    given = {**own, **forced, "PYTHONPATH": python_path()}
    return {name: value for name, value in given.items() if value is not None}


def python_path() -> str:
    """Return a PYTHONPATH with which another process imports this deploykit.

    The path omits site-packages folders, which Python finds after its standard library. In
    PYTHONPATH they would come first, and an old backport in them, such as `dataclasses`, would
    replace a module.
    """
    root = str(Path(__file__).parents[3])
    given = os.environ.get("PYTHONPATH", "")
    results = [*given.split(os.pathsep), *site.getsitepackages(), site.getusersitepackages()]
    return given if root in results else os.pathsep.join(filter(None, [root, given]))
