"""A function over many items, in forked processes: results come in order.

A process takes the next item when it has done one, as cores are not equally fast at all times; a
few items are offered ahead of the one whose turn it is, so no more than those results are held. The
processes are forked, not started anew: work that takes a third of a second is worth sharing. They
must not use TensorFlow, which does not survive a fork.
"""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from deploykit.transforms.common.errors import Error, LimitError
from deploykit.transforms.runtime import process_limits

_PIPE = 1 << 20  # the most that the system gives without being asked
_AHEAD = 4  # items for each process
_NUMBER = 8  # bytes, which a pipe hands to one reader whole

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Generator[Result, None, None]:
    """Yield what the function returns for each item; with one process, in this one.

    An Error raised there is raised here, when its item has its turn. Error: a process died.
    """
    count = min(processes, len(items))
    if count <= 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("fork")
    numbers = os.pipe()  # of the items that may be begun
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    for _, inlet in pipes:
        with contextlib.suppress(OSError):  # so that a process need not wait for this one
            fcntl.fcntl(inlet.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)
    workers: dict[Any, Any] = {
        pipes[place][0]: context.Process(
            target=_work, args=(function, items, place, pipes, numbers, os.getpid()), daemon=True
        )
        for place in range(count)
    }
    try:
        for worker in workers.values():
            process_limits.start(worker.start)
        for _, inlet in pipes:
            inlet.close()
        ahead = _AHEAD * count
        _offer(numbers, range(min(ahead, len(items))))
        names: dict[int, tuple[str, Any]] = {}
        for number in range(len(items)):
            while number not in names:
                for outlet in wait(list(workers)):
                    names |= _received(outlet, workers[outlet])
            _offer(numbers, range(number + ahead, min(number + ahead + 1, len(items))))
            yield _value(*names.pop(number))
    finally:
        for worker in workers.values():
            if worker.pid is not None:
                worker.kill()  # it holds nothing that could be lost
                worker.join()
        for outlet, inlet in pipes:
            outlet.close()
            inlet.close()
        for end in numbers:
            os.close(end)


def _offer(numbers: tuple[int, int], items: Iterable[int]) -> None:
    for number in items:
        os.write(numbers[1], number.to_bytes(_NUMBER, sys.byteorder))


def _received(outlet: Any, worker: Any) -> dict[int, tuple[str, Any]]:
    try:
        number, kind, value = outlet.recv()
    except EOFError:
        worker.join()
        raise _death(worker.exitcode) from None
    return {number: (kind, value)}


def _value(kind: str, value: Any) -> Any:
    if kind == "value":
        return value
    if isinstance(value, Exception):
        raise value
    raise RuntimeError(value)


def _death(status: int) -> Error:
    if status == -signal.SIGKILL:
        return LimitError("reader-killed")
    name = signal.Signals(-status).name if status < 0 else f"status {status}"
    return Error("reader-died", signal=name)


def _work(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    place: int,
    pipes: Sequence[tuple["Connection[Any, Any]", "Connection[Any, Any]"]],
    numbers: tuple[int, int],
    parent: int,
) -> None:
    """Send the results of the items that it gets, and end without what the parent cleans up."""
    process_limits.end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent ends its children
    inlet = pipes[place][1]
    for item, (outlet, other) in enumerate(pipes):
        outlet.close()  # so that writing fails where the parent is dead
        if item != place:
            other.close()
    os.close(numbers[1])  # so that reading ends there
    with contextlib.suppress(BrokenPipeError):
        while content := os.read(numbers[0], _NUMBER):
            number = int.from_bytes(content, sys.byteorder)
            try:
                inlet.send((number, "value", function(items[number])))
            except (Error, MemoryError) as error:
                inlet.send((number, "error", error))
            except BrokenPipeError:
                raise
            except Exception as error:
                inlet.send((number, "bug", f"{type(error).__name__}: {error}"))
    os._exit(0)
