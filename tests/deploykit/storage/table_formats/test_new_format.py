"""A new format of tables is one class and two entries: all readers then read it like Parquet."""

import inspect
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deploykit.data import samples
from deploykit.storage import data_files, tables
from deploykit.storage.table_formats.row_groups import GroupFormat
from tests.deploykit.batch_inference.tables.made_up_tables import graph
from tests.deploykit.data.format_readers import Here, converted, inferred, loaded, outcome

MOST = 60  # lines of this file


class ArrowFile:
    """An open file of Arrow's IPC format."""

    def __init__(self, file):
        self._file = pa.ipc.open_file(file)
        self.schema = self._file.schema
        found = map(self._file.get_batch, range(self._file.num_record_batches))
        self.rows = [batch.num_rows for batch in found]
        self.size = 0

    def batches(self, group, columns):
        """Yield the rows of a group."""
        yield self._file.get_batch(group).select(columns)


TABLE = pa.table({
    "x": pa.array([[1.5, 2], [3, None], None, [4, 5], [6]], pa.list_(pa.float64())),
    "n": [1, 2**40, None, 4, 5],
    "text": ["a", None, "b", "\u00e4", ""],
    "label": ["cat", "dog", "cat", None, "cat"],
})  # fmt: skip
GRAPHS = [graph(x=("float32", (-1, 2))), graph(n=("int32", (-1,))), graph(text=("string", (-1,)))]


@pytest.mark.parametrize("model", GRAPHS, ids=lambda model: model.inputs[0])
@pytest.mark.parametrize("read", [inferred, loaded, converted])  # infer, --data, records convert
def test_a_new_format_is_read_like_parquet(read, model, monkeypatch, tmp_path):
    monkeypatch.setattr(samples, "Worker", Here)
    monkeypatch.setitem(data_files.FORMATS, ".arrow", "arrow")
    monkeypatch.setitem(tables.FORMATS, "arrow", GroupFormat("Arrow", ArrowFile))
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=2)
    with pa.ipc.new_file(tmp_path / "a.arrow", TABLE.schema) as file:
        file.write_table(TABLE, max_chunksize=2)
    expected = outcome(read, tmp_path / "a.parquet", model)
    assert expected.bad
    assert outcome(read, tmp_path / "a.arrow", model) == expected


def test_the_new_format_takes_few_lines():
    assert len(inspect.getsource(sys.modules[__name__]).splitlines()) < MOST
