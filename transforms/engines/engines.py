"""The engines by name, and which of them this machine has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from deploykit.transforms.common.documents import converted
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.packages import (
    how_to_install,
    is_installed,
    missing,
    tensorflow_wheel,
)

TENSORFLOW, OPENVINO = "tensorflow", "openvino"
ENGINES = (TENSORFLOW, OPENVINO)
AUTO = "auto"
CHOICES = (AUTO, *ENGINES)
"""What to ask a server for; AUTO is the engine that a model was exported for, where it is right."""
TITLES = {TENSORFLOW: "TensorFlow", OPENVINO: "OpenVINO"}
"""What engines are called for people."""
PRECISIONS = ("f32", "bf16")
"""In which floats an engine computes what is not in 8 bits."""
MOST_THREADS, MOST_REQUESTS, MOST_BATCH = 4096, 1024, 1 << 20
"""What an option or a file may request at most: threads of each kind, requests at the same time,
and samples in a batch. Beyond the first two, processes die while they start threads."""


@dataclass(frozen=True)
class EngineUse:
    """The engine in which a graph was found right, and how it ran there."""

    engine: Annotated[str, Meta(pattern=rf"\A({'|'.join(ENGINES)})\Z")]
    version: str
    """That of the engine."""
    precision: Annotated[str, Meta(pattern=rf"\A({'|'.join(PRECISIONS)})\Z")] = "f32"
    """In which floats it computed what is not in 8 bits."""
    settings: Mapping[str, Annotated[int, Meta(ge=1, le=MOST_THREADS)]] = field(
        default_factory=dict
    )
    """`threads` and `streams`, where they are known to be good."""

    @classmethod
    def of(cls, plain: Any) -> "EngineUse":
        """Read what was written. GraphError: it is no such document, or of no engine here."""
        try:
            return converted(plain, cls)
        except GraphError:
            raise GraphError("engine-not-said") from None


def lacking(engine: str) -> str:
    """Say why an engine cannot be had on this machine; nothing: it is there. It is not imported."""
    if engine == OPENVINO and not is_installed("openvino"):
        return how_to_install("openvino")
    if engine == OPENVINO and _has_tcmalloc():
        return "OpenVINO ends or stops a process where tcmalloc gives the memory; do without it"
    return ""


def _has_tcmalloc(maps: Path = Path("/proc/self/maps")) -> bool:
    """Say whether this process was started with tcmalloc in front of the C library."""
    try:
        return "libtcmalloc" in maps.read_text(errors="replace")
    except OSError:
        return False


def version_of(engine: str) -> str:
    """Return the version of an engine that is installed."""
    if engine != TENSORFLOW:
        return metadata.version(engine)
    wheel = tensorflow_wheel()
    if wheel is None:
        raise missing("tensorflow")
    return wheel.version


def check_engine(engine: str) -> None:
    """Raise GraphError for an engine that does not exist, or that this machine lacks."""
    if engine not in ENGINES:
        raise GraphError("not-one-of", what="the engine", known=ENGINES, got=engine)
    if why := lacking(engine):
        raise GraphError("engine-unavailable", engine=engine, reason=why)
