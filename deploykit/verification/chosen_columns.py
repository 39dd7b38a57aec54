"""Checks of --columns, and advice in errors: which columns of a table are most likely an input."""

import re
from collections.abc import Mapping, Sequence

from deploykit.storage import csv_files
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.messages import shell_word
from deploykit.verification.samples import NOT_INPUTS

INDEX = re.compile(r"(?i:(.*[\W_])?(id|idx|index|uuid)|unnamed: 0)|.*[a-z]I[dD]")
"""The names of columns that number the rows."""


def check_columns(columns: Mapping[str, str] | None, data: object, needed: str = "--data") -> None:
    """Raise GraphError if columns are named without the data of the option `needed`."""
    if columns and data is None:
        raise GraphError("option-needs", option="--columns", needed=needed)


def vector_of(numbers: Sequence[str], width: int) -> list[str]:
    """Return the first columns of numbers that may be a vector of this size; []: too few are.

    None of them is a label or numbers the rows, and --columns can name each.
    """
    never = ("", *NOT_INPUTS)
    likely = [n for n in numbers if n not in never and "," not in n and not INDEX.fullmatch(n)]
    return likely[:width] if len(likely) >= width > 1 else []


def columns_value(input_: str, columns: Sequence[str]) -> str:
    """Return a value of --columns for a shell."""
    return shell_word(f"{input_}={','.join(columns)}")


def vector_in_file(file: str, layout: csv_files.CsvLayout, width: int) -> list[str]:
    """Return `vector_of` the columns of a CSV file whose first cells are numbers.

    FileError: it cannot be read.
    """
    found = csv_files.preview(file, "yes" if layout.header else "no")
    if found is None:
        return []
    cells = zip(layout.names, found.row, strict=False)  # a bad row may have other cells
    return vector_of([name for name, cell in cells if csv_files.is_number(cell)], width)


def refuse_if_some_fit(
    file: str, layout: csv_files.CsvLayout, got: int, expected: int, input_: str
) -> None:
    """Raise GraphError if a CSV file has some columns for the vector of an input, but others too.

    `got` is the number of columns without the label. FileError: the file cannot be read.
    """
    if vector := vector_in_file(file, layout, expected):
        raise GraphError(
            "csv-vector-width",
            source=file,
            input=input_,
            expected=expected,
            got=got,
            columns=columns_value(input_, vector),
            unused=[name for name in layout.names if name not in vector],
        )
