"""The engines by name, and which of them this machine has."""

import importlib.util
from importlib import metadata

from deploykit.transforms.core.errors import GraphError

TENSORFLOW, OPENVINO = "tensorflow", "openvino"
ENGINES = (TENSORFLOW, OPENVINO)
PRECISIONS = ("f32", "bf16")
"""In which floats an engine computes what is not in 8 bits."""
INSTALL = "pip install 'deploykit[openvino]'"


def lacking(engine: str) -> str:
    """Say why an engine cannot be had on this machine; nothing: it is there. It is not imported."""
    if engine == OPENVINO and importlib.util.find_spec("openvino") is None:
        return f"OpenVINO is not installed ({INSTALL})"
    return ""


def version_of(engine: str) -> str:
    """Return the version of an engine that is installed."""
    return metadata.version(engine)


def check_engine(engine: str) -> None:
    """Raise GraphError for an engine that does not exist, or that this machine lacks."""
    if engine not in ENGINES:
        raise GraphError(f"there is no engine {engine!r}; there are: {', '.join(ENGINES)}")
    if why := lacking(engine):
        raise GraphError(f"the engine {engine} cannot be had here: {why}")
