"""The child process of `child_process`: it creates objects and answers questions on them."""

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
from deploykit.transforms.runtime import process_limits

_CREATING = 3  # parts of a message that asks for something new: what, of what, and limits
START = "deploykit.transforms.runtime.tensorflow_start"
"""The module with what TensorFlow needs to start, which is of no use to the parent."""


def serve(questions: int, answers: int) -> None:
    """Create what each message of three names, and answer the others, until there are no more."""
    created: tuple[str, Any] = "value", None
    with (
        open(questions, "rb") as inbox,
        open(answers, "wb") as outbox,
        contextlib.suppress(EOFError),
    ):
        while True:  # until whoever asks is gone
            message = pickle.load(inbox)
            if message is not None and len(message) == _CREATING:
                kind, arguments, given = message
                process_limits.lift_cap(given.memory)
                process_limits.bound_internal_runs(given.internal)
                if created[1] is not None:  # two would take more memory than one
                    created = "value", None
                    gc.collect()  # sessions and their graphs refer to each other
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
    except Exception as error:  # whatever the user can act on is an Error
        if isinstance(error, ImportError) and (missing := missing_package(error)) is not None:
            return "error", missing
        if lacks_memory(error):
            return "error", LimitError("memory-cap-reached")
        bug = BugError("child-bug", kind=type(error).__name__, reason=error)
        bug.add_note(traceback.format_exc())
        return "error", bug


if __name__ == "__main__":
    _questions, _answers, _parent = map(int, sys.argv[1:])
    process_limits.end_with_parent(_parent)
    with contextlib.suppress(Exception):  # of a broken TensorFlow, of which the work will tell
        importlib.import_module(START).expect_sessions()
    serve(_questions, _answers)
