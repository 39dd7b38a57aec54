"""Loads and runs the written file, and compares its outputs with those of the original model."""

import contextlib
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deploykit.importers.graph_files import write_graph
from deploykit.importers.open_model import OpenedModel
from deploykit.transforms.common.errors import (
    GraphError,
    LimitError,
    LoadError,
    UnverifiedError,
    VerificationError,
)
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.verify import ADVICE, CHANGES, IN_MEMORY, Stored, Verification

logger = logging.getLogger("deploykit")


class Compare(Protocol):
    """Compares two graphs."""

    def __call__(self, reference: Graph, result: Graph, stored: Stored = IN_MEMORY) -> Verification:
        """Return the verification; with `stored`, the files are run instead."""


def by_calibration(error: UnverifiedError) -> UnverifiedError:
    """Return an error that names --calibration instead of --data."""
    error.fields = {
        name: value.replace("--data", "--calibration") if isinstance(value, str) else value
        for name, value in error.fields.items()
    }
    return error


@dataclass(frozen=True)
class Proof:
    """How a graph is compared with the model that it was made from, and when it is written."""

    model: OpenedModel
    reference: Graph
    """The model as it was read, or the closest graph that can run."""
    compare: Compare
    allow_unverified: bool = False
    """Whether a graph is also written if it could not be compared."""
    stops_at_doubt: bool = False
    """Whether to write nothing if the model's predictions on given samples cannot be right."""
    is_same: bool = False
    """Whether the written graph is the reference, which then needs no separate file."""

    def of(self, result: Graph, path: Path | None = None) -> Verification:
        """Compare a graph, or its file, with the model as it was read.

        UnverifiedError: nothing was compared, or the model's predictions cannot be right.
        LimitError: the comparison took too much time or memory.
        """
        try:
            verification = self._compared(result, path)
        except LimitError as error:
            if not self.allow_unverified:
                raise LimitError(
                    "not-compared-limit", source=self.model.source, reason=error
                ) from None
            verification = Verification(False, False, "", str(error), not_possible=str(error))
        except GraphError as error:
            if not self.allow_unverified or isinstance(error, LoadError):
                raise
            verification = Verification(False, False, "", str(error), not_possible=str(error))
        if not verification.verified:
            self._tell(verification.reason)
        elif verification.doubt:
            self._doubt(verification)
        return verification

    def _compared(self, result: Graph, path: Path | None) -> Verification:
        """Run the reference, from its file or a new one, and the graph or its file."""
        if path is None:
            return self.compare(self.reference, result)
        if self.is_same and self.model.original is not None:
            with contextlib.suppress(GraphError):
                value = self.compare(self.reference, result, Stored(self.model.original, str(path)))
                if not value.not_possible:
                    return value
        file = str(path) if self.is_same else self.model.file_of(self.reference)
        with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
            if file is None:  # a file, as memory already contains the model once
                file = str(Path(folder, "reference.pb"))
                write_graph(self.reference, file)
            return self.compare(self.reference, result, Stored(file, str(path)))

    def checked(self, result: Graph, path: Path | None = None) -> Verification:
        """Compare as `of` does. VerificationError: the result differs from the model."""
        value = self.of(result, path)
        if value.differs:
            raise VerificationError("result-differs", source=self.model.source, reason=value.reason)
        return value

    def _tell(self, reason: str) -> None:
        """Warn that nothing was compared, or raise UnverifiedError."""
        if not self.allow_unverified:
            advice = self._pins() if reason == CHANGES else ADVICE
            raise UnverifiedError(
                "not-verified-unwritten", source=self.model.source, reason=reason, advice=advice
            )
        logger.warning("%s: not verified: %s", self.model.source, reason)

    def _pins(self) -> str:
        """Return advice for a model that draws random numbers."""
        graph = self.reference
        switches = [
            node.name
            for node in graph
            if node.op == "PlaceholderWithDefault" and not graph.is_input(node.name)
        ]
        pins = ", ".join(f"--pin {name}=VALUE" for name in switches[:3])
        pinned = f"Turn its random ops off ({pins}), or accept" if pins else "Accept"
        return f"{pinned} an unverified result with --allow-unverified."

    def _doubt(self, verification: Verification) -> None:
        """Warn that the model's predictions cannot be right, or raise UnverifiedError."""
        if self.stops_at_doubt and verification.is_classifier:
            raise UnverifiedError(
                "outputs-doubtful", source=self.model.source, doubt=verification.doubt[:-1]
            )
        logger.warning("%s: %s", self.model.source, verification.doubt)
