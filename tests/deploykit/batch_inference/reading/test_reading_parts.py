"""The rows of all parts together are the rows of the data, each once and in order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deploykit.batch_inference.reading import partitions
from deploykit.batch_inference.reading.partitions import cut_parts
from deploykit.batch_inference.reading.readers import reader_for
from deploykit.data.reading import contents, records
from deploykit.transforms.ir.tfrecord import framed
from tests.deploykit.data import made_up


def read(data, batch=5, most=None):
    """Return all rows as a worker reads them, whose data have no files: key, number and content."""
    bare = replace(data, files=(), counts=(), labels=())
    reader, found = reader_for(bare), []
    for number, part in enumerate(cut_parts(data, most)):
        assert part.number == number
        rows = []
        for each in reader(part, batch):
            values = each.contents or [
                {name: array[n] for name, array in each.arrays.items()}
                for n in range(len(each.rows))
            ]
            rows += zip(each.files, each.rows, values, strict=True)
            assert 0 < len(each.rows) + len(each.bad) <= batch
            assert not each.bad
        assert len(rows) == part.rows > 0
        found += rows
    return found


@pytest.fixture(params=[1, 2, 3, 7, 4096])
def most(request, monkeypatch):
    monkeypatch.setattr(partitions, "MAX_ROWS", request.param)
    monkeypatch.setattr(partitions, "MAX_PHOTOS", request.param)
    return request.param


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records(tmp_path, most, compression):
    data = made_up.write_records(tmp_path, compression)
    expected = [
        (f"train-{number:05}-of-00003.tfrecord", row, content)
        for number in range(3)
        for row, (_, content) in enumerate(contents(data, number))
    ]
    assert read(data) == expected


@pytest.mark.parametrize("place", [2, 9, 14, -2])
def test_a_damaged_record_is_a_bad_row_and_the_others_keep_their_numbers(tmp_path, most, place):
    """The byte is of the length of a record, of its checksum, of its content, or of that one's."""
    data = made_up.write_records(tmp_path, "")
    path = Path(data.files[1])
    whole = list(contents(data, 1))
    struck = len(whole) // 2
    content = bytearray(path.read_bytes())
    begins = np.cumsum([0, *(len(framed(each)) for _, each in whole)])
    content[begins[struck + (place < 0)] + place] ^= 0x41
    path.write_bytes(bytes(content))
    reader = reader_for(replace(data, files=(), counts=(), labels=()))
    good, bad = [], []
    for part in cut_parts(data, None):
        batches = list(reader(part, 5))
        assert sum(len(each.rows) + len(each.bad) for each in batches) == part.rows
        good += [(f, n) for each in batches for f, n in zip(each.files, each.rows, strict=True)]
        bad += [(each.file, each.row) for batch in batches for each in batch.bad]
    assert bad == [(path.name, struck)]
    every = {(Path(f).name, n) for f, rows in zip(data.files, data.counts, strict=True)
             for n in range(rows)}  # fmt: skip
    assert set(good) == every - set(bad)
    assert len(good) == len(every) - 1


@pytest.mark.parametrize("header", [False, True])
def test_lines(tmp_path, most, header):
    data = made_up.write_csv(tmp_path / "csv", header)
    names = tuple(data.features)
    found = read(data)
    assert [name for name, _, _ in found] == [
        f"{n}.csv" for n, part in enumerate(made_up.parts()) for _ in part
    ]
    expected = list(records(data, names))
    assert [f"{tmp_path}/csv/{file}: line {row}" for file, row, _ in found] == [
        where for where, _ in expected
    ]
    for (_, _, numbers), (_, values) in zip(found, expected, strict=True):
        assert all(np.array_equal(numbers[name], values[name]) for name in names)


def test_photos(tmp_path, most):
    data = made_up.write_images(tmp_path / "images")
    expected = [(f"{n:02}.jpg", 0, made_up.jpeg(n, 9 + n, 12)) for n in range(8)]
    assert read(data) == expected


def test_arrays(tmp_path, most):
    data = made_up.write_arrays(tmp_path)
    found = read(data)
    assert [row[:2] for row in found] == [("data.npz", n) for n in range(made_up.COUNT)]
    assert np.array_equal([row[2]["x"] for row in found], made_up.numbers())
    assert [row[2]["id"] for row in found] == list(range(made_up.COUNT))
