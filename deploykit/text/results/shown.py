"""What is shown of each value that functions of the API return: one table of all."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deploykit.text.html import html, shortest
from deploykit.text.tables import Table, drawn

Text = Iterable[str | Table]
_LONGEST = 2000  # characters of a value that cannot be drawn


def html_of(value: object) -> str:
    """Return a value as HTML; where it lacks what is drawn of it, as `repr` gives it."""
    try:
        return html(text_of(value))
    except Exception:  # whatever is wrong with a value, a notebook goes on
        return html([_represented(value)])


def plain_of(value: object) -> str:
    """Return a value as lines; where it lacks what is drawn of it, as `repr` gives it."""
    try:
        return "\n".join(shortest(list(drawn(text_of(value)))))
    except Exception:  # likewise
        return _represented(value)


def _represented(value: object) -> str:
    try:
        shown = repr(value)
    except Exception:
        shown = f"a {type(value).__name__}"
    return shown[:_LONGEST] + "…" * (len(shown) > _LONGEST)


def text_of(value: object) -> Text:
    """Return the lines and tables of a value. LookupError: nothing draws its kind."""
    for kind in type(value).__mro__:
        if kind.__name__ in DRAWN:
            return DRAWN[kind.__name__](value)
    raise LookupError(type(value).__name__)


def _by(module: str, name: str = "lines") -> Callable[..., Text]:
    """Return a function of a room at or below this one, that is imported when it first draws."""

    def draw(*arguments: Any) -> Text:
        found: Text = getattr(importlib.import_module(f"deploykit.{module}"), name)(*arguments)
        return found

    return draw


def _of_document(module: str, name: str = "lines") -> Callable[[Any], Text]:
    return lambda value: _by(module, name)(value.document())


def _benchmark(value: Any) -> Text:
    yield from _by("benchmarking.tables", "tables")(value)
    for name, profile in value.profiles.items():
        yield from ("", f"{name}:")
        yield from _by("benchmarking.profiling.profile_tables", "profile_tables")(profile)


def _check(value: Any) -> Text:
    nodes = sum(graph.nodes + graph.function_nodes for graph in value.graphs)
    file = {"input_file": value.source, "bytes_in": value.bytes, "nodes_in": nodes}
    return _by("inspection.soundness")(value.document() | file)


def _inspection(value: Any) -> Text:
    model = value.model
    file = {
        "input_file": model.source, "bytes_in": model.bytes, "nodes_in": len(model.graph)
    }  # fmt: skip
    return _by("inspection.summary")(value.document() | file)


def _differences(value: Any) -> Text:
    graphs = (value.first.graph, value.second.graph)
    return _by("inspection.diff")(value.document(), *graphs)


def _speedups(value: Any) -> Text:
    yield from _by("text.results.speedups")(value)
    yield from (f"warning: {each}" for each in value.warnings)


def _source(value: Any) -> str:
    return "the model" if value.model is None else str(value.model.source)


DRAWN: Mapping[str, Callable[[Any], Text]] = {
    "Accuracy": _by("text.results.accuracy"),
    "Inferred": _by("text.results.inferred"),
    "BenchmarkResult": _benchmark,
    "Calibration": lambda value: _by("text.results.calibration")(value, _source(value)),
    "ConvertedSets": lambda value: _by("text.results.records", "converted_lines")(value, "records"),
    "Diagnosis": _of_document("text.machine_lines"),
    "Differences": _differences,
    "EnginePlacement": _by("text.results.placement", "engine_lines"),
    "Exported": _by("text.results.exported"),
    "Graph": _by("text.results.models", "graph_text"),
    "ImageLabels": lambda value: _by("text.answers", "class_lines")(value.predictions),
    "InputResult": _by("text.results.input_styles"),
    "Inspection": _inspection,
    "LoadTest": _of_document("text.loads", "load_lines"),
    "ModelVersions": _of_document("text.server_status", "version_tables"),
    "OpenedModel": _by("text.results.models", "opened_text"),
    "Placement": _by("text.results.placement"),
    "ReplicaPlan": _of_document("text.results.plan"),
    "Prediction": lambda value: _by("text.answers", "prediction_lines")(
        value.outputs, value.classes, value.sources
    ),
    "Recommendation": lambda value: _by("text.results.tuning")(value, "tune"),
    "RecordsInspection": _by("text.results.records", "inspection_lines"),
    "RecordsVerification": _by("text.results.records", "verification_lines"),
    "RunningServer": _of_document("text.server_start"),
    "Sensitivity": lambda value: _by("text.results.sensitivity")(value, _source(value)),
    "ServedModels": _of_document("text.server_status", "model_lines"),
    "ServerHealth": _of_document("text.server_status", "health_lines"),
    "Settings": lambda value: [str(value), *_by("text.results.tuning", "to_copy")("MODEL", value)],
    "Shipped": lambda value: _by("text.results.shipped")(value.document(), str(value.folder)),
    "Soundness": _check,
    "Speedups": _speedups,
    "TransformList": lambda value: _by("text.transform_list")(
        value.transforms, len(value.transforms) == 1
    ),
    "Verification": _by("text.results.models", "verification_lines"),
    "WrittenInput": lambda value: [value.text],
}
"""Which function draws values of each class, by its name."""
