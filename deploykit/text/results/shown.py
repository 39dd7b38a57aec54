"""How each value that functions of the API return is shown: one table of all."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deploykit.text.html import html, shortest
from deploykit.text.tables import Table, drawn

Text = Iterable[str | Table]
_LONGEST = 2000  # characters of a value that cannot be drawn

DRAWN: Mapping[str, str] = {
    "Accuracy": "text.results.accuracy",
    "BenchmarkResult": "benchmarking.tables",
    "Calibration": "text.results.quantization:calibration_lines",
    "ConvertedSets": "text.results.data:converted_lines",
    "Diagnosis": "text.machine_lines",
    "Differences": "inspection.diff:text",
    "EnginePlacement": "text.results.placement:engine_lines",
    "Exported": "text.results.shipped:exported_lines",
    "Graph": "text.results.models:graph_text",
    "ImageLabels": "text.serving:label_lines",
    "Inferred": "text.results.data:inferred_lines",
    "InputResult": "text.results.data:input_lines",
    "Inspection": "inspection.summary",
    "LoadTest": "text.serving:load_lines",
    "ModelVersions": "text.serving:version_tables",
    "OpenedModel": "text.results.models:opened_text",
    "Placement": "text.results.placement",
    "Prediction": "text.serving:prediction_lines",
    "Recommendation": "text.results.tuning",
    "RecordsInspection": "text.results.data:inspection_lines",
    "RecordsVerification": "text.results.data:verification_lines",
    "ReplicaPlan": "text.results.plan",
    "RunningServer": "text.serving:start_lines",
    "Sensitivity": "text.results.quantization:sensitivity_lines",
    "ServedModels": "text.serving:model_lines",
    "ServerHealth": "text.serving:health_lines",
    "RunConfig": "text.results.tuning:settings_lines",
    "Shipped": "text.results.shipped",
    "ValidationReport": "inspection.soundness",
    "Speedups": "text.results.tuning:speedup_lines",
    "TransformList": "text.results.models:transform_lines",
    "Verification": "text.results.models:verification_lines",
    "WrittenInput": "text.serving:code_lines",
}
"""Which module yields the lines and tables of each class; the function is `lines` if not named."""

_OF_DOCUMENTS = {"Diagnosis", "LoadTest", "ModelVersions", "ReplicaPlan", "RunningServer",
                 "ServedModels", "ServerHealth", "Shipped"}  # fmt: skip
"""Classes whose function takes the document."""


def html_of(value: object) -> str:
    """Return a value as HTML; where it cannot be drawn, as `repr` returns it."""
    return _or_represented(lambda: html(text_of(value)), value, lambda text: html([text]))


def plain_of(value: object) -> str:
    """Return a value as lines; where it cannot be drawn, as `repr` returns it."""
    return _or_represented(lambda: "\n".join(shortest([*drawn(text_of(value))])), value, str)


def text_of(value: Any, **options: Any) -> Text:
    """Return the lines and tables of a value. LookupError: nothing draws its class."""
    for kind in (each.__name__ for each in type(value).__mro__):
        if kind in DRAWN:
            module, _, name = DRAWN[kind].partition(":")
            function = getattr(importlib.import_module(f"deploykit.{module}"), name or "lines")
            text: Text = function(value.document() if kind in _OF_DOCUMENTS else value, **options)
            return text
    raise LookupError(type(value).__name__)


def _or_represented(draw: Callable[[], str], value: object, show: Callable[[str], str]) -> str:
    """Return what draws a value, or its `repr`: a notebook goes on whatever is wrong with it."""
    try:
        return draw()
    except Exception:
        try:
            text = repr(value)
        except Exception:
            text = f"a {type(value).__name__}"
        return show(text[:_LONGEST] + "…" * (len(text) > _LONGEST))
