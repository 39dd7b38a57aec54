"""An index that was written for other shards is ignored with a warning, or an error if named."""

import json
import logging

import numpy as np
import pytest

import deploykit as api
from deploykit.data.data import open_data
from deploykit.transforms.common.errors import FileError, MismatchError
from tests.support import raises


@pytest.fixture
def records(tmp_path):
    """Return records of 10 samples, of which another folder has others of the same size."""
    for name, first, count in (("data", 0, 10), ("other", 5, 10), ("longer", 5, 14)):
        x = np.arange(first, first + 4 * count, dtype=np.float32).reshape(count, 4)
        np.savez(tmp_path / f"{name}.npz", x=x)
        api.convert_records(tmp_path / f"{name}.npz", tmp_path / name, name="data")
    return tmp_path / "data"


def shard(folder):
    return next(folder.glob("*.tfrecord"))


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


@pytest.mark.parametrize(("name", "count"), [("other", 10), ("longer", 14)])
def test_a_replaced_shard_is_counted_and_read(records, caplog, name, count):
    shard(records).write_bytes(shard(records.with_name(name)).read_bytes())
    caplog.set_level(logging.WARNING, "deploykit")
    for _ in range(2):  # one warning, however often the data are opened
        assert open_data(str(records)).counts == (count,)
    (warning,) = warnings(caplog)
    assert str(records / "data.index.json") in warning
    assert str(shard(records)) in warning
    with raises(MismatchError, "index-other-file"):
        open_data(str(records / "data.index.json"))
    assert open_data(str(records / "data")).counts == (count,)


def test_an_index_of_other_records(records, caplog):
    index = records / "data.index.json"
    index.write_bytes((records.with_name("longer") / "data.index.json").read_bytes())
    assert open_data(str(records)).counts == (10,)
    assert len(warnings(caplog)) == 1


def test_an_index_that_fits_says_nothing(records, caplog):
    assert open_data(str(records)).counts == (10,)
    assert open_data(str(records / "data.index.json")).counts == (10,)
    assert not warnings(caplog)


def test_damage_is_left_to_the_reader(records):
    content = bytearray(shard(records).read_bytes())
    content[20] ^= 1
    shard(records).write_bytes(content)
    assert open_data(str(records)).counts == (10,)
    shard(records).write_bytes(content[:-1])
    with raises(FileError, "index-differs", unit="bytes"):
        open_data(str(records))


def test_large_records_are_told_by_their_sizes(records, monkeypatch, caplog):
    monkeypatch.setattr("deploykit.records.verify_records.MAX_HASHED", 1)
    document = json.loads((records / "data.index.json").read_text())
    document["shards"][0]["sha256"] = "0" * 64
    (records / "data.index.json").write_text(json.dumps(document))
    assert open_data(str(records)).counts == (10,)
    assert not warnings(caplog)
