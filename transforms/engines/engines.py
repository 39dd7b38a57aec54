"""The engines by name, and their availability on this machine."""

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
"""The engines of a server; AUTO is the engine that a model was exported for, if it is correct."""
TITLES = {TENSORFLOW: "TensorFlow", OPENVINO: "OpenVINO"}
"""Display names of the engines."""
PRECISIONS = ("f32", "bf16")
"""Types in which an engine runs layers that are not int8."""
MAX_THREADS, MAX_REQUESTS, MAX_BATCH = 4096, 1024, 1 << 20
"""Maximum values of options and files: threads of each kind, concurrent requests, and samples in a
batch. Beyond the first two, processes die while they start threads."""


@dataclass(frozen=True)
class EngineUse:
    """The engine for which a graph was verified, and its settings there."""

    engine: Annotated[str, Meta(pattern=rf"\A({'|'.join(ENGINES)})\Z")]
    version: str
    """Version of the engine."""
    precision: Annotated[str, Meta(pattern=rf"\A({'|'.join(PRECISIONS)})\Z")] = "f32"
    """Type in which it ran layers that are not int8."""
    settings: Mapping[str, Annotated[int, Meta(ge=1, le=MAX_THREADS)]] = field(default_factory=dict)
    """`threads` and `streams`, if good values are known."""

    @classmethod
    def of(cls, plain: Any) -> "EngineUse":
        """Parse the plain data. GraphError: it is invalid, or its engine is unknown."""
        try:
            return converted(plain, cls)
        except GraphError:
            raise GraphError("engine-not-said") from None


def lacking(engine: str) -> str:
    """Return why an engine is not available on this machine, or ''. The engine is not imported."""
    if engine == OPENVINO and not is_installed("openvino"):
        return how_to_install("openvino")
    if engine == OPENVINO and _has_tcmalloc():
        return "OpenVINO crashes or hangs with tcmalloc; run without it"
    return ""


def _has_tcmalloc(maps: Path = Path("/proc/self/maps")) -> bool:
    try:
        return "libtcmalloc" in maps.read_text(errors="replace")
    except OSError:
        return False


def version_of(engine: str) -> str:
    """Return the version of an installed engine."""
    if engine != TENSORFLOW:
        return metadata.version(engine)
    wheel = tensorflow_wheel()
    if wheel is None:
        raise missing("tensorflow")
    return wheel.version


def check_engine(engine: str) -> None:
    """Raise GraphError for an engine that is unknown or not available on this machine."""
    if engine not in ENGINES:
        raise GraphError("not-one-of", what="the engine", known=ENGINES, got=engine)
    if why := lacking(engine):
        raise GraphError("engine-unavailable", engine=engine, reason=why)
