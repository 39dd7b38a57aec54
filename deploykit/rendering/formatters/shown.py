"""The formatter of each value that a public function returns."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deploykit.rendering.notebook import html, shortest
from deploykit.rendering.tables import Table, drawn

Text = Iterable[str | Table]
_LONGEST = 2000  # maximum characters of the `repr` of a value

DRAWN: Mapping[str, str] = {
    "Accuracy": "rendering.formatters.accuracy",
    "BenchmarkResult": "benchmarking.tables",
    "Calibration": "rendering.formatters.quantization:calibration_lines",
    "ConvertedSets": "rendering.formatters.data:converted_lines",
    "Diagnosis": "rendering.machine_lines",
    "Differences": "inspection.diff:text",
    "EnginePlacement": "rendering.formatters.models:engine_lines",
    "Exported": "rendering.formatters.shipped:exported_lines",
    "GateResult": "gating.formats",
    "Graph": "rendering.formatters.models:graph_text",
    "ImageLabels": "rendering.serving:label_lines",
    "Inferred": "rendering.formatters.data:inferred_lines",
    "InputResult": "rendering.formatters.data:input_lines",
    "Inspection": "inspection.summary",
    "LoadTest": "rendering.serving:load_lines",
    "ModelVersions": "rendering.serving:version_tables",
    "OpenedModel": "rendering.formatters.models:opened_text",
    "Placement": "rendering.formatters.models",
    "Prediction": "rendering.serving:prediction_lines",
    "Recommendation": "rendering.formatters.tuning",
    "RecordsInspection": "rendering.formatters.data:inspection_lines",
    "RecordsVerification": "rendering.formatters.data:verification_lines",
    "RunningServer": "rendering.serving:start_lines",
    "Sensitivity": "rendering.formatters.quantization:sensitivity_lines",
    "ServedModels": "rendering.serving:model_lines",
    "ServerHealth": "rendering.serving:health_lines",
    "RunConfig": "rendering.formatters.tuning:settings_lines",
    "Shipped": "rendering.formatters.shipped",
    "ValidationReport": "inspection.soundness",
    "Speedups": "rendering.formatters.tuning:speedup_lines",
    "TransformList": "rendering.formatters.models:transform_lines",
    "Verification": "rendering.formatters.models:verification_lines",
    "WrittenInput": "rendering.serving:code_lines",
}
"""The module, and optionally `:function`, that formats each class; the default is `lines`."""

_OF_DOCUMENTS = {"Diagnosis", "LoadTest", "ModelVersions", "RunningServer",
                 "ServedModels", "ServerHealth", "Shipped"}  # fmt: skip
"""The classes whose formatter takes the JSON document."""


def html_of(value: object) -> str:
    """Return a value as HTML, or its `repr` if formatting fails."""
    return _or_represented(lambda: html(text_of(value)), value, lambda text: html([text]))


def plain_of(value: object) -> str:
    """Return a value as text, or its `repr` if formatting fails."""
    return _or_represented(lambda: "\n".join(shortest([*drawn(text_of(value))])), value, str)


def text_of(value: Any, **options: Any) -> Text:
    """Return the lines and tables of a value. LookupError: its class has no formatter."""
    for kind in (item.__name__ for item in type(value).__mro__):
        if kind in DRAWN:
            module, _, name = DRAWN[kind].partition(":")
            function = getattr(importlib.import_module(f"deploykit.{module}"), name or "lines")
            text: Text = function(value.document() if kind in _OF_DOCUMENTS else value, **options)
            return text
    raise LookupError(type(value).__name__)


def _or_represented(draw: Callable[[], str], value: object, show: Callable[[str], str]) -> str:
    """Return a formatted value, or its `repr` after any error, so that a notebook can continue."""
    try:
        return draw()
    except Exception:
        try:
            text = repr(value)
        except Exception:
            text = f"a {type(value).__name__}"
        return show(text[:_LONGEST] + "…" * (len(text) > _LONGEST))
