"""Maps a function over items in forked processes, with results in order.

Each process takes the next item when it is done, because cores differ in speed. Only a few items
are offered ahead of the next result, which limits the memory for results. The processes are forked,
as starting them would take too long. They must not use TensorFlow, which does not support forks.
Each process has its own pipe. In concurrent.futures they share one, and the reader waits forever if
a process is killed while it writes a large result, as by the kernel when memory is short.
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
from deploykit.transforms.runtime import process_limits, resident_memory

_PIPE = 1 << 20  # bytes: the default maximum of a pipe for unprivileged users
_AHEAD = 4  # items offered ahead for each process
_NUMBER = 8  # bytes of an item number; a pipe delivers such a small message to one reader

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Generator[Result, None, None]:
    """Yield the results of the function in order; one process means this process.

    An Error of the function is raised here in order. Error: a worker process died.
    """
    count = min(processes, len(items))
    if count <= 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("fork")
    numbers = os.pipe()  # numbers of the items that may start
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    for _, inlet in pipes:
        with contextlib.suppress(OSError):  # larger pipes make workers wait less
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
            resident_memory.watch(worker.pid)
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
            kind, value = names.pop(number)
            if kind != "value":
                raise value if isinstance(value, Exception) else RuntimeError(value)
            yield value
    finally:
        for worker in workers.values():
            if worker.pid is not None:
                resident_memory.unwatch(worker.pid)
                worker.kill()  # it has no unsaved data
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
        status = worker.exitcode
        if status == -signal.SIGKILL:
            raise LimitError("reader-killed") from None
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        raise Error("reader-died", signal=name) from None
    return {number: (kind, value)}


def _work(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    place: int,
    pipes: Sequence[tuple["Connection[Any, Any]", "Connection[Any, Any]"]],
    numbers: tuple[int, int],
    parent: int,
) -> None:
    """Send the results of the offered items, and exit without the parent's cleanup."""
    process_limits.end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent ends its children
    inlet = pipes[place][1]
    for item, (outlet, other) in enumerate(pipes):
        outlet.close()  # so that writing fails if the parent is dead
        if item != place:
            other.close()
    os.close(numbers[1])  # so that reading ends if the parent is dead
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
