"""report: results as an HTML page."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from deploykit.api.public import Command, public
from deploykit.reporting.charts.inline import images
from deploykit.reporting.page.page import ReportPage, html_of, kind_of
from deploykit.storage.files import check_output, write
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.untrusted.files import read_json
from deploykit.verification.samples import ResultLike

_IN_A_FOLDER, _PAGE = "report.json", "report.html"
_LARGEST = 256 << 20  # bytes; a long benchmark stores the latency of every run


_VALUE = "result.document()"


@public(Command(heading="Report", requires=("matplotlib",), has_limits=False, writes_result=False))
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

    DIR is a folder that deploykit ship wrote. RESULT.json is the output of --json or -o of
    benchmark, tune, quantize, load-test, placement, accuracy, verify, optimize, check or
    export. Several results are shown one after another.

    The page is one self-contained file of at most 2 MB. It follows the reader's light or dark theme
    and can be printed. Long tables are truncated, with a reference to the full data in the JSON
    file.

    Args:
        results: a folder that `ship` wrote, a JSON file that a command wrote, a value that a
            function such as `benchmark`, `tune`, `quantize`, `load_test` or `placement` returned,
            the JSON document of such a value, or a list of these.
        output: File to write [default: DIR/report.html, or RESULT.html next to RESULT.json].
        force: Replace an existing output file.

    FileError: a file cannot be read, or the page cannot be written. GraphError: a result has an
    unsupported type or format.

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
    """Return the default path of the page for a folder or a JSON file."""
    path = Path(results)
    return str(path / _PAGE if path.is_dir() else path.with_suffix(".html"))


def _file(path: str | os.PathLike[str]) -> str:
    """Return the path of the JSON file: of the report in a folder, or the path itself."""
    inside = Path(path) / _IN_A_FOLDER
    return str(inside) if Path(path).is_dir() else os.fspath(path)


def _document(result: object) -> tuple[Mapping[str, Any], str]:
    """Return the document of a result, and its name for messages."""
    if isinstance(result, str | os.PathLike):
        file = _file(result)
        if Path(result).is_dir() and not Path(file).exists():
            raise FileError("not-found", source=file, expected="the report of deploykit ship")
        return read_json(file, "result of deploykit", _LARGEST), file
    if isinstance(result, Mapping):
        return _plain(result), _VALUE
    for value in (result, getattr(result, "report", None)):
        if callable(document := getattr(value, "document", None)):
            return _plain(document()), _VALUE
    raise GraphError("report-type-unsupported", kind=type(result).__name__)


def _plain(document: Mapping[str, Any]) -> Any:
    """Return a document as it would be read from a JSON file."""
    try:
        return json.loads(json.dumps(document))
    except (TypeError, ValueError, RecursionError) as error:
        raise GraphError("document-not-plain", reason=error) from None
