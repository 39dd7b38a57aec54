"""Signatures that need TensorFlow on a machine without it: each request is told what to install."""

from collections.abc import Mapping, Sequence
from typing import NoReturn

from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.core.engines.engines import TENSORFLOW
from deploykit.transforms.core.engines.extras import how_to_install
from deploykit.transforms.core.tensors import Array


def reason() -> str:
    """Return why a signature is refused, and which extra brings TensorFlow."""
    return f"needs TensorFlow. {how_to_install(TENSORFLOW)}"


class MissingEngine:
    """Stands for TensorFlow, beside an engine that runs the other signatures of a version."""

    name = TENSORFLOW
    version = ""
    spreads = False
    hands_over = False
    any_shape: frozenset[str] = frozenset()
    needs_rows = False

    def compute(
        self,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float | None,
        slot: int,
    ) -> NoReturn:
        """Raise ServingError: FAILED_PRECONDITION, with the extra that brings TensorFlow."""
        raise ServingError(
            "FAILED_PRECONDITION", "signature-needs-engine", signature=signature, reason=reason()
        )

    def close(self) -> None:
        """Do nothing: there is no memory to give back."""
