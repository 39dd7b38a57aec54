"""The format of a name."""

import importlib
from typing import cast

from deploykit.batch_inference.formats.part_table import PartFormat
from deploykit.batch_inference.infer_options import FORMATS
from deploykit.transforms.core.engines.extras import how_to_install
from deploykit.transforms.core.errors import GraphError, nearest

_NEEDED = {"parquet": "pyarrow"}


def format_named(name: str) -> PartFormat:
    """Return a format. GraphError: there is none of this name, or what writes it is missing."""
    if name not in FORMATS:
        raise GraphError(
            "not-a-results-format", name=name, hint=nearest(name, FORMATS), known=FORMATS
        )
    if name in _NEEDED:
        package = _NEEDED[name]
        try:
            importlib.import_module(package)
        except ImportError as error:
            others = ", ".join(each for each in FORMATS if each not in _NEEDED)
            raise GraphError(
                "format-package-missing",
                what=f"--format {name}",
                package=package,
                reason=error,
                install=how_to_install(package),
                otherwise=f"give one of {others}",
            ) from None
    module = importlib.import_module(f"deploykit.batch_inference.formats.{name}")
    return cast(PartFormat, module)
