"""Former names of modules that users' own transforms import; they will be removed."""

import sys
import warnings

from deploykit.transforms.common import errors
from deploykit.transforms.ir import functions, graph, node, ops, pattern, tensors

warnings.warn(
    "deploykit.transforms.core will be removed: import deploykit.transforms.ir.pattern, .graph, "
    ".node, .tensors, .ops and .functions, and deploykit.transforms.common.errors",
    DeprecationWarning,
    stacklevel=2,
)
for _module in (errors, functions, graph, node, ops, pattern, tensors):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
