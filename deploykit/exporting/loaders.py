"""TensorFlow opens a version with both of its loaders before the version gets its number."""

from collections.abc import Callable
from pathlib import Path

from deploykit.serving.protocol.signatures import SERVE
from deploykit.transforms.core.errors import (
    CrashError,
    LimitError,
    VerificationError,
    failed,
)
from deploykit.transforms.core.running.child import call
from deploykit.transforms.core.running.session import Session, sentence


def check_loads(folder: Path) -> None:
    """Open a SavedModel with both loaders, in a child process.

    VerificationError: one of them refuses it. LimitError: there is not enough memory or time.
    """
    try:
        refused = call("deploykit.exporting.loaders:refusals", str(folder))
    except CrashError as error:
        refused = [f"TensorFlow's process ends while it loads: {error}"]
    if refused:
        raise VerificationError("export-not-loadable", reason=refused[0])


def refusals(folder: str) -> list[str]:
    """Return why each loader refuses a SavedModel; for a child process.

    LimitError: there is not enough memory.
    """
    import tensorflow as tf

    loaders: dict[str, Callable[[], object]] = {
        "tf.compat.v1.saved_model.load": lambda: Session.of_saved_model(folder, [SERVE]),
        "tf.saved_model.load": lambda: tf.saved_model.load(folder, tags=[SERVE]),
    }
    found = []
    for name, load in loaders.items():
        try:
            load()
        except Exception as error:  # they raise much, from KeyError to errors of their own
            reason = failed("server-cannot-load", error, name=name, reason=sentence(error))
            if isinstance(reason, LimitError):
                raise reason from None
            found.append(str(reason))
    return found
