"""Which extra of deploykit brings which optional package, and what to say where one is missing."""

import importlib.util

from deploykit.transforms.core.errors import MissingPackageError

_EXTRAS = {
    "keras": ("TensorFlow", "tf"),
    "matplotlib": ("Matplotlib", "report"),
    "openvino": ("OpenVINO", "openvino"),
    "pyarrow": ("PyArrow", "parquet"),
    "pynvml": ("nvidia-ml-py", "cuda"),
    "ray": ("Ray", "ray"),
    "tensorflow": ("TensorFlow", "tf"),
    "tf_keras": ("Keras 2 (tf_keras)", "keras2"),
}
"""By module: what it is called, and the extra."""


def is_installed(module: str) -> bool:
    """Say whether a package can be imported; it is not."""
    return importlib.util.find_spec(module) is not None


def installed_extras() -> dict[str, bool]:
    """Say of each extra whether all that it brings can be imported."""
    found: dict[str, bool] = {}
    for module, (_, extra) in _EXTRAS.items():
        found[extra] = found.get(extra, True) and is_installed(module)
    return dict(sorted(found.items()))


def missing(module: str) -> MissingPackageError:
    """Return the error about a package that is missing, which says how to install it."""
    title, extra = _EXTRAS[module]
    return MissingPackageError("package-missing", title=title, extra=extra)


def how_to_install(module: str) -> str:
    """Return a sentence about a package that is missing."""
    return str(missing(module))


def require(*modules: str) -> None:
    """Raise MissingPackageError for the first package that is not installed."""
    for module in modules:
        if not is_installed(module):
            raise missing(module)


def missing_package(error: ImportError) -> MissingPackageError | None:
    """Return the error for an import that failed as an optional package is missing, or None."""
    module = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or module not in _EXTRAS:
        return None
    return missing(module)
