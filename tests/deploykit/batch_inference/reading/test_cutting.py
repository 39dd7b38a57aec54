"""Data are shared out among workers, and not into crumbs."""

from dataclasses import replace

import numpy as np
import pytest

from deploykit.batch_inference.reading import partitions
from deploykit.batch_inference.reading.partitions import cut_parts
from deploykit.data.data import Data, open_data
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.data import made_up
from tests.support import raises


@pytest.mark.parametrize(
    ("photos", "parts"), [(1, 1), (16, 1), (17, 2), (180, 12), (1000, 16), (100_000, 391)]
)
def test_photos_are_cut_for_many_workers(photos, parts):
    files = tuple(f"{number}.jpg" for number in range(photos))
    data = Data(".", "images", files, {"image": Feature("string", (), "image")}, (1,) * photos)
    found = cut_parts(data, None)
    assert len(found) == parts
    assert max(each.rows for each in found) - min(each.rows for each in found) <= 1


@pytest.mark.sampled
@pytest.mark.parametrize(("rows", "parts"), [(200, 1), (1000, 4), (60_000, 16), (100_000, 25)])
def test_samples_and_lines_are_cut_for_many_workers(tmp_path, rows, parts):
    np.savez(tmp_path / "x.npz", x=np.zeros((rows, 1), np.float32))
    (tmp_path / "x.csv").write_text("1,2\n" * rows)
    for name in ("x.npz", "x.csv"):
        found = cut_parts(open_data(str(tmp_path / name)), None)
        assert len(found) == parts
        assert sum(each.rows for each in found) == rows


def test_shards_stay_whole_where_they_are_not_large():
    data = Data(".", "records", ("a", "b"), {"x": Feature("float32")}, (3000, 5000))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "size_of", lambda file: 1 << 20)
        assert [(each.files, each.rows) for each in cut_parts(data, None)] == [
            (("a",), 3000), (("b",), 2500), (("b",), 2500)
        ]  # fmt: skip


def test_an_index_that_counts_more_records_than_fit_is_refused(tmp_path):
    data = replace(made_up.write_records(tmp_path, ""), counts=(3, 1 << 62, 3))
    with raises(GraphError, "index-count-impossible"):
        cut_parts(data, None)
