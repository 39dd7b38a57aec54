"""The engines by name, and which of them this machine has."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from deploykit.transforms.core.engines.extras import how_to_install, is_installed, missing
from deploykit.transforms.core.engines.tensorflow_wheel import tensorflow_wheel
from deploykit.transforms.core.errors import GraphError

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

    engine: str
    version: str
    """That of the engine."""
    precision: str = "f32"
    """In which floats it computed what is not in 8 bits."""
    settings: Mapping[str, int] = field(default_factory=dict)
    """`threads` and `streams`, where they are known to be good."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, document: Any) -> "EngineUse":
        """Read what `document` gave. GraphError: it is no such document, or of no engine here."""
        try:
            found = cls(**{**document, "settings": dict(document.get("settings", {}))})
            words = (found.engine, found.version, found.precision)
            numbers = found.settings.values()
            is_sound = all(isinstance(each, str) for each in words) and all(
                type(each) is int and 0 < each <= MOST_THREADS for each in numbers
            )
        except (AttributeError, TypeError, ValueError):
            is_sound = False
        if not is_sound or found.engine not in ENGINES or found.precision not in PRECISIONS:
            raise GraphError("engine-not-said")
        return found


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
