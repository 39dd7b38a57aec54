"""A function over many items, in forked processes that take turns: results come in order.

Each process takes every n-th item and waits until its result was read, so no more than one result a
process is held. The processes are forked, not started anew: work that takes a third of a second is
worth sharing. They must not use TensorFlow, which does not survive a fork.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from transforms.core.errors import Error, LimitError

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def in_order(
    function: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Generator[Result, None, None]:
    """Yield what the function returns for each item; with one process, in this one.

    An Error raised there is raised here. Error: a process died.
    """
    count = min(processes, len(items))
    if count <= 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    workers = [
        context.Process(target=_work, args=(function, items, number, pipes), daemon=True)
        for number in range(count)
    ]
    try:
        for worker in workers:
            worker.start()
        for _, inlet in pipes:
            inlet.close()
        for number in range(len(items)):
            yield _received(pipes[number % count][0], workers[number % count])
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.kill()  # it holds nothing that could be lost
                worker.join()
        for outlet, inlet in pipes:
            outlet.close()
            inlet.close()


def _received(outlet: "Connection[Any, Any]", worker: Any) -> Any:
    try:
        kind, value = outlet.recv()
    except EOFError:
        worker.join()
        raise _death(worker.exitcode) from None
    if kind == "value":
        return value
    if isinstance(value, Exception):
        raise value
    raise RuntimeError(value)


def _death(status: int) -> Error:
    if status == -signal.SIGKILL:
        return LimitError("a process was killed, perhaps for want of memory; try fewer --processes")
    name = signal.Signals(-status).name if status < 0 else f"status {status}"
    return Error(f"a process that read the data ended with {name}")


def _work(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    number: int,
    pipes: Sequence[tuple["Connection[Any, Any]", "Connection[Any, Any]"]],
) -> None:
    """Send the results of every n-th item, and end without what the parent would clean up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent ends its children
    inlet = pipes[number][1]
    for place, (outlet, other) in enumerate(pipes):
        outlet.close()  # so that writing fails where the parent is dead
        if place != number:
            other.close()
    with contextlib.suppress(BrokenPipeError):
        try:
            for item in items[number :: len(pipes)]:
                inlet.send(("value", function(item)))
        except (Error, MemoryError) as error:
            inlet.send(("error", error))
        except BrokenPipeError:
            raise
        except Exception as error:
            inlet.send(("bug", f"{type(error).__name__}: {error}"))
    os._exit(0)
