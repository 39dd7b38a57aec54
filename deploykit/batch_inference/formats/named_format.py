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
            f"{name!r} is no format of results{nearest(name, FORMATS)}; there are "
            f"{', '.join(FORMATS)}"
        )
    if name in _NEEDED:
        package = _NEEDED[name]
        try:
            importlib.import_module(package)
        except ImportError as error:
            others = ", ".join(each for each in FORMATS if each not in _NEEDED)
            raise GraphError(
                f"--format {name} takes {package}, which cannot be imported ({error}); "
                f"{how_to_install(package)}, or give one of {others}"
            ) from None
    module = importlib.import_module(f"deploykit.batch_inference.formats.{name}")
    return cast(PartFormat, module)
