"""Options that several commands share, in groups; some arrive in the command as one value."""

from deploykit.cli.options.common import everywhere, limits
from deploykit.cli.options.data import (
    allow_unverified,
    allowed_ops,
    comparison,
    feeding,
    feeding_or_files,
    frozen_check,
    input_range,
    labels,
    piping,
    preprocess,
    written_piping,
)
from deploykit.cli.options.headings import (
    Helped,
    command,
    data_option,
    limit_option,
    model_option,
    output_option,
    under,
)
from deploykit.cli.options.model import classifier, interface, part, source
from deploykit.cli.options.outputs import output, result_file, results
from deploykit.cli.options.server import connection, server_option, which_version
from deploykit.cli.options.settings import sweep, timing

__all__ = [
    "Helped",
    "allow_unverified",
    "allowed_ops",
    "classifier",
    "command",
    "comparison",
    "connection",
    "data_option",
    "everywhere",
    "feeding",
    "feeding_or_files",
    "frozen_check",
    "input_range",
    "interface",
    "labels",
    "limit_option",
    "limits",
    "model_option",
    "output",
    "output_option",
    "part",
    "piping",
    "preprocess",
    "result_file",
    "results",
    "server_option",
    "source",
    "sweep",
    "timing",
    "under",
    "which_version",
    "written_piping",
]
