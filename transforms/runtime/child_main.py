"""The child process of `child_process`: it creates objects and calls their methods."""

import contextlib
import gc
import importlib
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

from deploykit.transforms.common.errors import BugError, Error, LimitError, lacks_memory
from deploykit.transforms.engines.packages import missing_package
from deploykit.transforms.runtime import memory as free_memory
from deploykit.transforms.runtime import process_limits, resident_memory

_CREATING = 3  # items of a message that creates an object: its name, arguments, and limits
START = "deploykit.transforms.runtime.tensorflow_start"
"""The module that starts TensorFlow; the parent does not need it."""


def serve(questions: int, answers: int) -> None:
    """Create an object for each message of three items, and answer the others, until EOF."""
    created: tuple[str, Any] = "value", None
    with (
        open(questions, "rb") as inbox,
        open(answers, "wb") as outbox,
        contextlib.suppress(EOFError),
    ):
        while True:  # until the parent closes the pipe
            message = pickle.load(inbox)
            if message is not None and len(message) == _CREATING:
                kind, arguments, given = message
                resident_memory.limit(given.memory)
                process_limits.bound_internal_runs(given.internal)
                if created[1] is not None:  # two objects would need more memory than one
                    created = "value", None
                    gc.collect()  # sessions and their graphs are a reference cycle
                    free_memory.give_back()
                created = _outcome(lambda: _named(kind)(*arguments))  # noqa: B023
                continue
            answer = created
            if message is not None and created[0] == "value":
                method, arguments = message
                answer = _outcome(lambda: getattr(created[1], method)(*arguments))  # noqa: B023
            pickle.dump(answer, outbox, protocol=5)
            outbox.flush()


def _named(name: str) -> Any:
    module, attribute = name.split(":")
    return getattr(importlib.import_module(module), attribute)


def _outcome(act: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "value", act()
    except Error as error:
        return "error", error
    except Exception as error:  # errors that the user can fix are of type Error
        if lacks_memory(error):
            return "error", LimitError("memory-cap-reached")
        if isinstance(error, ImportError) and (missing := missing_package(error)) is not None:
            return "error", missing
        bug = BugError("child-bug", kind=type(error).__name__, reason=error)
        bug.add_note(traceback.format_exc())
        return "error", bug


if __name__ == "__main__":
    _questions, _answers, _parent = map(int, sys.argv[1:])
    process_limits.end_with_parent(_parent)
    resident_memory.count_engines_out()
    with contextlib.suppress(Exception):  # a broken TensorFlow is reported by the work itself
        importlib.import_module(START).expect_sessions()
    serve(_questions, _answers)
