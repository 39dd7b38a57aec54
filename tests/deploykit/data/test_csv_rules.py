"""The rule of CSV: every command that reads it finds the same header, rows and bad rows."""

from collections.abc import Callable

import pytest

from deploykit.batch_inference.reading.partitions import cut_parts
from deploykit.batch_inference.reading.readers import reader_for
from deploykit.data.data import open_data
from deploykit.data.reading import records
from deploykit.records.lines import LineNumbers
from deploykit.records.open_source import open_source
from deploykit.records.record_source import Problems
from deploykit.transforms.common.errors import GraphError

Outcome = tuple[list[list[float]], list[int]]
"""The cells of the rows, and the lines of bad rows."""


def converted(path: str) -> Outcome:
    """Read as `records convert` does."""
    source = open_source([path], kind="csv")
    problems, rows = Problems(skip=True), []
    for part in source.parts():
        for item in source.read(part, problems):
            rows.append([*item["x"].tolist(), float(item["label"])])
    lines = LineNumbers()
    return rows, [lines.at(item.file, item.offset or 0) for item in problems.entries]


def fed(path: str) -> Outcome:
    """Read as commands with --data do, which end with the first bad row."""
    data, rows = open_data(path), []
    try:
        for _, item in records(data, ("x", "label")):
            rows.append([*item["x"].tolist(), float(item["label"])])
    except GraphError as error:
        return rows, [int(str(error).split(": line ")[1].split(":")[0].split()[0])]
    return rows, []


def inferred(path: str) -> Outcome:
    """Read as `infer` does."""
    data = open_data(path, may_be_empty=True)
    read, rows, bad = reader_for(data), [], []
    for part in cut_parts(data, None):
        for batch in read(part, 2):
            found = zip(batch.arrays["x"].tolist(), batch.arrays["label"].tolist(), strict=True)
            rows += [[*x, label] for x, label in found]
            bad += [item.row for item in batch.bad]
    return rows, bad


READERS: list[Callable[[str], Outcome]] = [converted, fed, inferred]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("first", [",2,0", "1_000,2,0", "0x10,2,0", "\u22121,2,0", "x,2,0", "1,,0"])
def test_a_first_line_with_a_number_is_a_row_and_not_lost(tmp_path, first, read):
    (tmp_path / "a.csv").write_text(f"{first}\n1,2,0\n3,4,1\n", encoding="utf-8")
    rows, bad = read(str(tmp_path / "a.csv"))
    assert bad == [1]
    assert read is fed or rows == [[1, 2, 0], [3, 4, 1]]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(("first", "count"), [("a,b,label", 2), ("0,1,2", 3), ("nan,inf,1", 3)])
def test_a_header_has_no_numbers(tmp_path, first, count, read):
    (tmp_path / "a.csv").write_text(f"{first}\n1,2,0\n3,4,1\n", encoding="utf-8")
    rows, bad = read(str(tmp_path / "a.csv"))
    assert (len(rows), bad) == (count, [])
