"""export and report."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from deploykit.api.public import Command, public
from deploykit.exporting.export import Exported, ExportOptions, export_model
from deploykit.importers.signature import source_of
from deploykit.rendering.progress import working
from deploykit.reporting.charts.inline import images
from deploykit.reporting.page.page import ReportPage, html_of, kind_of
from deploykit.storage.files import check_output, write
from deploykit.storage.image_files import labels_from
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.untrusted.files import read_json
from deploykit.verification.samples import ModelLike, ResultLike

DEFAULT = ExportOptions()


@public(Command(heading="Version", runs_graph=True, writes_result=False), interface=())
def export(
    model: ModelLike,
    base_dir: str | os.PathLike[str],
    how: ExportOptions = DEFAULT,
) -> Exported:
    """Write a model as a version that TensorFlow Serving loads.

    Writes the folder BASE_DIR/NAME/N/ atomically, with a new version number N; existing versions
    are never replaced. The signatures of a SavedModel keep their names, inputs and outputs. With
    `signature`, only that one is exported, as the default. Any other model gets the signature
    serving_default, with the names of inputs and outputs in the graph. `signature_name`,
    `input_aliases` and `output_aliases` rename the signature, its inputs and its outputs for
    existing clients. With `preprocess`, serving_default takes encoded image files (bytes), the
    signature pixels takes decoded images (uint8), and the signature tensors takes the model's own
    inputs.

    Args:
        model: whatever `open_model` takes.
        base_dir: the folder of models.
        how: what the version is to be.

    FileError: the version exists, or cannot be written. GraphError: the model cannot be read, or
    its tensors do not suit the method. RefusedError: it acts on files or processes.

    Commands:
        deploykit export fashion.pb served --warmup models/fashion/test_1000.npz
        deploykit export fashion.pb served --preprocess 0..1
        deploykit export fashion.pb served --input-alias photo=images
        deploykit export fashion.pb served --method classify --manifests docker

    Example:
        >>> found = deploykit.export("fashion.keras", "models", name="fashion")
        >>> found.version
        1
    """
    source = source_of(model)
    if isinstance(how.labels, str | os.PathLike):
        how = replace(how, labels=labels_from(how.labels))
    with working("export"):
        return export_model(source, Path(base_dir), how)


_IN_A_FOLDER, _PAGE = "report.json", "report.html"
_LARGEST = 256 << 20  # bytes of a file: each call of a long benchmark is a number in it
_VALUE = "result.document()"


@public(
    Command(
        heading="Report",
        requires=("matplotlib",),
        has_limits=False,
        writes_result=False,
    ),
)
def report(
    results: Annotated[
        ResultLike | Sequence[ResultLike], Flag(format="paths", metavar="DIR|RESULT.json...")
    ],
    output: Annotated[
        str | os.PathLike[str] | None,
        Flag("-o --output", format="output", heading="Output", metavar="FILE.html"),
    ] = None,
    force: Annotated[bool, Flag("--force", heading="Output")] = False,
) -> ReportPage:
    """Show results as one HTML page.

    DIR is a folder of deploykit ship. RESULT.json is the output of --json or -o of benchmark, tune,
    quantize, load-test, plan, placement, accuracy, verify, optimize, check or export. Several
    results are shown one after another.

    The page is one file that loads nothing else. It follows the reader's light or dark theme, can
    be printed, and has at most 2 MB. Long tables are truncated, with a reference to the full data
    in the JSON.

    Args:
        results: the folder that `ship` wrote; a JSON file that a command wrote; a value that a
            function such as `benchmark`, `tune`, `quantize`, `load_test` or `placement` returned,
            or its document; or several of these in a list.
        output: File to write [default: DIR/report.html, or RESULT.html beside RESULT.json].
        force: Replace an existing output file.

    FileError: a file cannot be read, or the page cannot be written. GraphError: something is no
    result that a report shows, or of another format; the sentence names it.

    Commands:
        deploykit report shapes.ship
        deploykit report before.json after.json -o report.html

    Example:
        >>> page = deploykit.report("before.json")
        >>> page.kinds
        ('benchmark',)
    """
    several = list(results) if isinstance(results, list | tuple) else [results]
    if not several:
        raise GraphError("report-needs-results")
    if output is not None:
        paths = [_file(item) for item in several if isinstance(item, str | os.PathLike)]
        check_output(output, force, *paths)
    matches = [_document(item) for item in several]
    files = tuple(name for _, name in matches)
    kinds = tuple(kind_of(*match) for match in matches)
    html = html_of([document for document, _ in matches], images, files)
    if output is not None:
        write(output, [html.encode()], force)
    return ReportPage(html, kinds, files, None if output is None else os.fspath(output))


def default_page(results: str) -> str:
    """Return the file that the page of a folder or of a JSON file is written to by default."""
    path = Path(results)
    return str(path / _PAGE if path.is_dir() else path.with_suffix(".html"))


def _file(path: str | os.PathLike[str]) -> str:
    """Return the JSON file that a path means."""
    inside = Path(path) / _IN_A_FOLDER
    return str(inside) if Path(path).is_dir() else os.fspath(path)


def _document(result: object) -> tuple[Mapping[str, Any], str]:
    """Return the document of a result, and how it is called."""
    if isinstance(result, str | os.PathLike):
        file = _file(result)
        if Path(result).is_dir() and not Path(file).exists():
            raise FileError("not-found", source=file, expected="what deploykit ship wrote")
        return read_json(file, "result of deploykit", _LARGEST), file
    if isinstance(result, Mapping):
        return _plain(result), _VALUE
    for value in (result, getattr(result, "report", None)):
        if callable(document := getattr(value, "document", None)):
            return _plain(document()), _VALUE
    raise GraphError("report-type-unsupported", kind=type(result).__name__)


def _plain(document: Mapping[str, Any]) -> Any:
    """Return a document as its file would be read."""
    try:
        return json.loads(json.dumps(document))
    except (TypeError, ValueError, RecursionError) as error:
        raise GraphError("document-not-plain", reason=error) from None
