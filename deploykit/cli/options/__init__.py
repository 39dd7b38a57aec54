"""Options that several commands share, in groups; some arrive in the command as one value."""

from deploykit.cli.options.common import everywhere, limits
from deploykit.cli.options.data import (
    comparison,
    feeding,
    feeding_or_files,
    piping,
    preprocess,
)
from deploykit.cli.options.model import classifier, interface, part, source
from deploykit.cli.options.outputs import output, result_file, results
from deploykit.cli.options.server import connection, which_version
from deploykit.cli.options.settings import sweep, tuned

__all__ = [
    "classifier",
    "comparison",
    "connection",
    "everywhere",
    "feeding",
    "feeding_or_files",
    "interface",
    "limits",
    "output",
    "part",
    "piping",
    "preprocess",
    "result_file",
    "results",
    "source",
    "sweep",
    "tuned",
    "which_version",
]
