"""Run a function, or keep an object, in a child process with its own environment and limits.

TensorFlow can abort or kill the process that runs a bad graph, and reads several settings from the
environment when it starts. So whatever runs a model is a module-level function or class of plain
data, and is run here. This limits accidents; it is no sandbox.
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
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from deploykit.transforms.common.errors import (
    CrashError,
    Error,
    LimitError,
    says_no_memory,
)
from deploykit.transforms.runtime import child_main, process_limits


@dataclass
class ResourceLimits:
    """What each run in TensorFlow is given at most, which is in a child process.

    Within a `with` block these hold for what starts there. On the command line they also hold for
    deploykit's own work between two such runs.

    Example:
        >>> with deploykit.ResourceLimits(seconds=60, memory=4 << 30):
        ...     graph = deploykit.freeze("fashion.keras")
    """

    seconds: float = 600.0
    """Of each run that the caller asks for."""
    memory: int | None = None
    """In bytes. Default: on the command line 70 % of the memory that is available when the command
    starts, but for `serve`; else what the machine has."""
    show_log: bool = False
    """Whether lines of TensorFlow's log are shown."""
    internal_seconds: float = 30.0
    """Of each run that deploykit starts for itself: constant folding, and verification on synthetic
    inputs. Loading a model does not count. `seconds` holds where it is less; --timeout sets both.
    """

    def __enter__(self) -> "ResourceLimits":
        """Let these limits hold."""
        self._before = replace(limits)
        limits.take(self)
        return self

    def __exit__(self, *exception: object) -> None:
        """Let those hold that held before."""
        limits.take(self._before)

    def take(self, other: "ResourceLimits") -> None:
        """Become what another one is."""
        self.seconds, self.memory, self.show_log = other.seconds, other.memory, other.show_log
        self.internal_seconds = other.internal_seconds

    @property
    def internal(self) -> float:
        """The seconds that hold for each run that deploykit starts for itself."""
        return min(self.seconds, self.internal_seconds)


limits = ResourceLimits()

_STACK = re.compile(r"\*\*\* |@ +0x")
_STAMP = re.compile(r"^[IWEF]\d{4} \S+ +\d+ ")  # severity, time and thread of a line of the log
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}  # whichever the user shows: a GPU is asked for


def call(
    function: str,
    *arguments: Any,
    env: Mapping[str, str] | None = None,
    forced: Mapping[str, str | None] | None = None,
    runs: str = "TensorFlow",
    kept: bool = False,
) -> Any:
    """Return what `function` ("package.module:name") returns in a child process.

    `env` sets variables for the child; what the user has set wins, but not over `forced`. `runs` is
    what runs there, as errors call it, and `kept` is that of `Worker`. An Error raised there is
    raised here. LimitError: the deadline or the memory cap was reached. CrashError: the child died.
    BugError: the function failed.
    """
    worker = Worker(function, *arguments, env=env, forced=forced, runs=runs, kept=kept)
    with contextlib.closing(worker):
        return worker.created()


@contextlib.contextmanager
def reused_children() -> Iterator[None]:
    """Within the block, a child whose work is done does the next one in the same environment.

    So TensorFlow, whose import takes seconds, is imported less often. A child with settings that
    are `forced` serves once, unless it is `kept`, and so does one that failed: nothing measured
    depends on earlier work. A block within another one ends the children that it added. Each
    thread has blocks of its own.
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
    """As `reused_children`, and start a child that imports what sessions need for the first work.

    It does so while this process still reads its files.
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
    """A process that creates objects and answers questions on them, one after the other."""

    process: "subprocess.Popen[bytes]"
    environment: Mapping[str, str]
    questions: BinaryIO
    answers: BinaryIO
    log: BinaryIO
    """What it writes to standard error."""
    shows_log: bool
    """Whether it writes to this process's standard error instead."""
    folder: str
    """The current folder when it started."""
    is_dropping: bool = False
    """Whether it has still to say that it dropped what it held."""

    @classmethod
    def started(cls, environment: Mapping[str, str]) -> "_Child":
        """Start it, in a session of its own."""
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
        """Return one of `reused_children` that has this environment, if there is one."""
        children = _idle.get() or []
        needed = environment, limits.show_log, _folder()
        for child in [*children]:
            if (child.environment, child.shows_log, child.folder) == needed:
                children.remove(child)
                if child.is_free():
                    child.log.seek(0)
                    child.log.truncate()
                    return child
                child.end()  # earlier work ended it, or keeps it busy: later work must not suffer
        return None

    def drop(self) -> None:
        """Let it drop what it holds, and say so."""
        self.send(_NOTHING)
        self.send(None)
        self.is_dropping = True

    def is_free(self) -> bool:
        """Say whether it lives and has dropped what it held."""
        if self.is_dropping:
            self.is_dropping = False
            try:
                self.answer(min(_TEARDOWN, limits.seconds))
            except (TimeoutError, EOFError):
                return False
        return not select.select([self.answers], [], [], 0)[0]  # unasked, it only says its end

    def send(self, message: Any) -> None:
        """Send what is to be created or answered; that it died, its answer will say."""
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(message, self.questions, protocol=5)  # large arrays are not copied
            self.questions.flush()

    def answer(self, seconds: float) -> Any:
        """Return its next answer. TimeoutError: there is none in time. EOFError: it died."""
        if not select.select([self.answers], [], [], seconds)[0]:
            raise TimeoutError
        try:
            return pickle.load(self.answers)
        except pickle.UnpicklingError:
            raise EOFError from None

    def end(self) -> None:
        """End it at once; it holds nothing that could be lost."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):  # of what was not read any more
            self.questions.close()
        self.answers.close()
        self.log.close()


_NOTHING = ("builtins:dict", (), limits)  # for a child to create
_TEARDOWN = 5.0  # seconds for a child to drop what it holds
_idle: ContextVar[list[_Child] | None] = ContextVar("_idle", default=None)
"""The children to reuse. None: each child ends when its work is done."""


def _folder() -> str:
    """Return the current folder; empty: it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


class Worker:
    """What a function or class ("package.module:name") makes in a child process, and its methods.

    The child is in a session of its own, so that a Ctrl-C reaches this process alone, and it ends
    with this process, however that one ends.
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
        """Start the child; it works while the caller goes on, and `created` or `ask` wait for it.

        `env` is what the user may have set otherwise, `forced` what was asked for on the command
        line: it wins, and None removes a variable. The child sees a GPU only where
        CUDA_VISIBLE_DEVICES is in `forced`. `runs` is what runs there, as errors call it. `kept`:
        whether `reused_children` may reuse the child although variables are forced.
        """
        self._runs, self._serves_once = runs, forced is not None and not kept
        self._is_closed = False
        self._is_ready = False  # to be reused: all that it was asked it has answered
        environment = _environment(env or {}, forced or {})
        result = None if self._serves_once else _Child.idle(environment)
        self._child = result or _Child.started(environment)
        memory = process_limits.default_cap() if limits.memory is None else limits.memory
        try:
            self._child.send((kind, arguments, replace(limits, memory=memory)))
        except BaseException:  # such as a Ctrl-C: nobody else would end it
            self._child.end()
            raise

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._child.process.pid

    def created(self) -> Any:
        """Return what was created, where it is plain data; raises what `ask` raises."""
        return self._ask(None)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method of what was created returns.

        An Error raised there is raised here. LimitError: the deadline or the memory cap was
        reached. CrashError: the child died. BugError: the method failed.
        """
        return self._ask((method, arguments))

    def close(self) -> None:
        """End the process at once, unless another worker is to reuse it."""
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
        status = self._child.process.wait()
        self._child.log.seek(0)
        log = self._child.log.read().decode(errors="replace")
        said = [line.strip() for line in log.splitlines()]
        lines = [line for line in said if line and not _STACK.match(line)]
        fatal = [line for line in lines if line.startswith("F") and _STAMP.match(line)]
        result = fatal or lines  # what ended it may go on for many lines, as a whole node does
        last = _STAMP.sub("", result[-1])[:300] if result else "it said nothing"
        if says_no_memory(log):
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
    """Return the PYTHONPATH with which another process imports this very deploykit.

    A folder of installed packages is found anyway, behind Python's own modules. In PYTHONPATH it
    would go before them, and an old backport in it, such as `dataclasses`, would take their place.
    """
    root = str(Path(__file__).parents[3])
    given = os.environ.get("PYTHONPATH", "")
    results = [*given.split(os.pathsep), *site.getsitepackages(), site.getusersitepackages()]
    return given if root in results else os.pathsep.join(filter(None, [root, given]))
