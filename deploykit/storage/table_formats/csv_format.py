"""CSV as a format of tables: its cells are bytes, and a reader decides what they are."""

from collections.abc import Mapping
from typing import Any

from deploykit.storage import csv_files
from deploykit.storage.data_files import HEAD
from deploykit.storage.table_formats.table_files import arrow, opened_table
from deploykit.storage.table_formats.table_format import (
    Bad,
    RowRange,
    RowReader,
    TableFiles,
    TableSchema,
    TextFile,
    check_rows,
    naming_damage,
)

_NUMBER = r"^\s*[-+]?[\d.]*\d[\d.]*([eE][-+]?\d+)?\s*$"


class CsvFormat:
    """CSV by the rules of `csv_files`."""

    def schema(self, given: TableFiles) -> TableSchema:
        """Return the columns of some files, with types by the first file that has values."""
        layout, starts = csv_files.shared_layout(
            given.files, given.rule, opened_table, source=given.path
        )
        csv_files.check_names(given.files[0], layout.header)
        layout.tell(given.path)
        pa = arrow("reading a table")
        types, has_rows = dict.fromkeys(layout.names, pa.null()), False
        mixed: tuple[str, ...] = ()
        for file, start in starts.items():
            with naming_damage(file, "csv file"), opened_table(file) as stream:
                text = csv_files.first_rows(stream, file, start, HEAD)
                table = csv_files.arrow_typed(text, layout)
            has_rows = has_rows or bool(csv_files.split(text))
            types = dict(zip(table.schema.names, table.schema.types, strict=True))
            if not all(map(pa.types.is_null, table.schema.types)):
                has_rows, mixed = True, _mixed(pa, table)
                break
        counts = () if has_rows else (0,) * len(given.files)
        return TableSchema(types, counts, mixed, bool(layout.header), layout.separator)

    def reader(self, schema: TableSchema, columns: Mapping[str, str]) -> RowReader:
        """Return a reader of some columns, whose cells are bytes."""
        names, texts = tuple(schema.types), TextFile()
        layout = csv_files.CsvLayout(names, len(names), schema.separator)

        def read(file: str, part: RowRange) -> tuple[Any, Bad]:
            table, bad = csv_files.arrow_cells(texts.read(file, part), layout, list(columns))
            check_rows(file, part, len(table))
            return table, bad

        return read


def _mixed(pa: Any, table: Any) -> tuple[str, ...]:
    """Return the text columns of a table of which some cells are numbers."""
    import pyarrow.compute as pc

    return tuple(
        field.name
        for place, field in enumerate(table.schema)
        if pa.types.is_string(field.type)
        and pc.any(pc.match_substring_regex(table.column(place), _NUMBER)).as_py()
    )
