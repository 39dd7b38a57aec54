"""A model over files gives what it gives row by row, in their order, however many workers do it."""

import gzip
import hashlib
import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import deploykit
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.tfrecord import framed, read_records
from tests import pairwise
from tests.deploykit.batch_inference.tiny_models import scores_of, tiny_model
from tests.deploykit.data import made_up
from tests.deploykit.storage.tiny_images import TIFF, WEBP, decodable
from tests.support import Containing, because, raises, showing, shows, tf


@pytest.fixture
def data(tmp_path):
    rows = np.random.default_rng(3).normal(size=(50, 4)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=rows)
    return tmp_path / "rows.npz", rows


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def in_small_parts(monkeypatch, rows):
    from deploykit.batch_inference.reading import partitions

    monkeypatch.setattr(partitions, "MAX_ROWS", rows)


@pytest.mark.sampled
@pytest.mark.parametrize("batch", [None, 3])
def test_rows_keep_their_order_and_know_their_source(tmp_path, data, monkeypatch, batch):
    path, rows = data
    in_small_parts(monkeypatch, 17)
    found = deploykit.infer(
        tiny_model(), path, tmp_path / "out", processes=2, batch=batch, format="npz"
    )
    assert (found.rows, found.parts, found.skipped) == (50, 3, [])
    index = json.loads((tmp_path / "out" / "rows.index.json").read_text())
    parts = [np.load(tmp_path / "out" / shard["file"]) for shard in index["shards"]]
    assert np.concatenate([each["row"] for each in parts]).tolist() == list(range(50))
    assert {*np.concatenate([each["file"] for each in parts]).tolist()} == {"rows.npz"}
    answers = np.concatenate([each["scores"] for each in parts])
    np.testing.assert_allclose(answers, scores_of(rows), rtol=1e-6)


@pytest.mark.sampled
def test_the_files_are_the_same_bytes_however_many_workers_wrote_them(tmp_path, data, monkeypatch):
    path, _ = data
    in_small_parts(monkeypatch, 9)
    one, two = tmp_path / "one", tmp_path / "two"
    deploykit.infer(tiny_model(), path, one, processes=1, format="npz")
    again = deploykit.infer(tiny_model(), path, two, processes=2, format="npz")
    assert digests(one) == digests(two)
    assert again.run.workers == 2
    kept = deploykit.infer(tiny_model(), path, two, format="npz")
    assert (kept.run.kept, kept.run.workers, kept.rows) == (6, 0, 50)


def test_a_model_that_demands_a_batch_gets_it_and_answers_each_row_once(tmp_path, data):
    path, rows = data
    found = deploykit.infer(tiny_model(batch=4), path, tmp_path / "out", processes=1, format="npz")
    (shard,) = found.index["shards"]
    with np.load(tmp_path / "out" / shard["file"]) as part:
        np.testing.assert_allclose(part["scores"], scores_of(rows), rtol=1e-6)
    with raises(GraphError, "batch-fixed", fixed=4):
        deploykit.infer(tiny_model(batch=4), path, tmp_path / "other", batch=5, format="npz")


@pytest.mark.sampled
def test_nothing_is_left_in_the_folder_but_results(tmp_path, data):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".rows.model.pb.0123abcd.tmp").write_bytes(b"of a run that was killed")
    deploykit.infer(tiny_model(), data[0], out, processes=1, format="npz")
    assert sorted(path.name for path in out.iterdir()) == [
        "rows-00000-of-00001.npz", "rows.index.json"
    ]  # fmt: skip


@pytest.mark.sampled
def test_of_damaged_photos_it_is_said_what_is_wrong(tmp_path):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 8, 8, 3), "x")
        tf.reduce_mean(x, [1, 2], name="mean")
    photo = tf.io.encode_png(np.full((9, 7, 3), 90, np.uint8)).numpy()
    photos = {"cut": photo[: len(photo) // 2], "empty": b"", "good": photo, "text": b"a photo"}
    (tmp_path / "photos").mkdir()
    for name, content in photos.items():
        (tmp_path / "photos" / f"{name}.png").write_bytes(content)
    found = deploykit.infer(graph.as_graph_def(), tmp_path / "photos", tmp_path / "out",
                            preprocess="0..255", on_error="skip", processes=1,
                            format="npz")  # fmt: skip
    assert found.rows == 1
    said = {each["file"]: each["reason"] for each in found.skipped}
    assert because("image-file-empty") in said["empty.png"]
    assert shows(said["cut.png"], "record-not-usable", reason=Containing("PNG"))
    assert set(said) == {"cut.png", "empty.png", "text.png"}
    assert not any("Graph execution" in each for each in said.values())


def test_every_visible_file_of_a_folder_is_a_row_or_is_named(tmp_path, caplog):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 8, 8, 3), "x")
        tf.reduce_mean(x, [1, 2], name="mean")
    good = {kind: content for kind, content in decodable().items() if kind != "jxl"}
    files = {
        f"{'deep/' * n}{n}.{kind.upper()}": item for n, (kind, item) in enumerate(good.items())
    }
    files |= {f"{'deep/' * n}{kind}": item for n, (kind, item) in enumerate(good.items())}
    bad = {"deep/cut.webp": WEBP["lossy"][:40], "cut": good["png"][:60], "tiff.jpg": TIFF}
    others = {"deep/notes.txt": b"BM", "scan.tiff": TIFF, "deep/deep/Thumbs.db": b"x"}
    hidden = {".a.png": b"", "deep/.b/c.png": b""}
    for name, content in (files | bad | others | hidden).items():
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    found = deploykit.infer(graph.as_graph_def(), tmp_path / "photos", tmp_path / "out",
                            preprocess="0..255", on_error="skip", processes=1,
                            format="npz")  # fmt: skip
    assert found.rows == len(files)
    assert {each["file"] for each in found.skipped} == set(bad)
    assert set(found.skipped_files) == set(others) == set(found.document()["data"]["skipped_files"])
    assert caplog.text.count("skipped 3 of") == 1


def test_a_record_that_is_no_example_is_a_bad_row(tmp_path):
    rows = np.ones((20, 4), np.float32)
    np.savez(tmp_path / "rows.npz", x=rows)
    deploykit.convert_records(tmp_path / "rows.npz", tmp_path / "set")
    (shard,) = (tmp_path / "set").glob("*.tfrecord")
    records = list(read_records(shard, False))
    records[6] = b"\xff" * len(records[6])
    shard.write_bytes(b"".join(map(framed, records)))
    with raises(GraphError, "item-failed"):
        deploykit.infer(tiny_model(), tmp_path / "set", tmp_path / "out", processes=1, format="npz")
    found = deploykit.infer(
        tiny_model(), tmp_path / "set", tmp_path / "out", processes=1, on_error="skip", format="npz"
    )
    assert (found.rows, [each["row"] for each in found.skipped]) == (19, [6])


@pytest.mark.sampled
def test_records_without_an_index_that_are_no_examples_are_bad_rows(tmp_path):
    good = made_up.example(x=[1.0, 2.0, 3.0, 4.0])
    records = [b"\xff\xff", good, b"", good]
    (tmp_path / "rows.tfrecord").write_bytes(b"".join(map(framed, records)))
    found = deploykit.infer(
        tiny_model(), tmp_path / "rows.tfrecord", tmp_path / "out", on_error="skip"
    )
    assert (found.rows, [each["row"] for each in found.skipped]) == (2, [0, 2])


def of_other_values(count):
    fields = {"what": "", "count": count, "dtype": "float32", "name": "x", "expected": 4}
    return re.escape(str(GraphError("example-feature-values", **fields)).strip())


OTHERS = {  # a record unlike most others, and the pattern of the reason of the invalid row
    "missing": ({}, "'x'"),
    "empty": ({"x": []}, of_other_values(0)),
    "other length": ({"x": [1.0]}, of_other_values(1)),
    "other type": ({"x": [1, 2, 3, 4]}, of_other_values(0)),
    "bytes": ({"x": [b"abcd"]}, of_other_values(0)),
}


FEW = [{0}, {5}, {63, 64}, {69}]
ALL_BUT_TWO = set(range(69)) - {9, 68}  # what the remaining records have does not decide
PLACES = [*((kind, places) for kind in OTHERS for places in FEW), ("missing", ALL_BUT_TWO)]


def unlike(path, kind, places, is_packed=False):
    """Write 70 records of 4 values, except for those at `places`."""
    records = [
        made_up.example(label=[n], **(OTHERS[kind][0] if n in places else {"x": [float(n)] * 4}))
        for n in range(70)
    ]
    content = b"".join(map(framed, records))
    path.write_bytes(gzip.compress(content) if is_packed else content)
    return path


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "places"), pairwise.drawn("one_record_unlike_most_is_a_bad_row", PLACES, 3, quick=7)
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_one_record_unlike_most_is_a_bad_row(tmp_path, kind, places, is_packed):
    path = unlike(tmp_path / "rows.tfrecord", kind, places, is_packed)
    found = deploykit.infer(tiny_model(), path, tmp_path / "out", on_error="skip", processes=1)
    assert found.rows == 70 - len(places)
    assert {each["row"] for each in found.skipped} == places
    assert all(re.search(OTHERS[kind][1], each["reason"]) for each in found.skipped)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["empty", "other length"])
def test_lists_of_other_lengths_than_the_model_takes_are_bad_rows_even_if_most_have_them(
    tmp_path, kind
):
    path = unlike(tmp_path / "rows.tfrecord", kind, ALL_BUT_TWO)
    found = deploykit.infer(tiny_model(), path, tmp_path / "out", on_error="skip", processes=1)
    assert {each["row"] for each in found.skipped} == ALL_BUT_TWO
    assert all(re.search(OTHERS[kind][1], each["reason"]) for each in found.skipped)


@pytest.mark.parametrize("kind", ["other type", "bytes"])
def test_the_type_of_most_records_decides(tmp_path, kind):
    path = unlike(tmp_path / "rows.tfrecord", kind, ALL_BUT_TWO)
    if kind == "other type":  # integers, which the model takes
        found = deploykit.infer(tiny_model(), path, tmp_path / "out", on_error="skip", processes=1)
        assert {each["row"] for each in found.skipped} == set(range(70)) - ALL_BUT_TWO
        return
    with raises(GraphError, "preprocess-type-between"):
        deploykit.infer(tiny_model(), path, tmp_path / "out", on_error="skip", processes=1)


LENGTHS = [[2, 3, 4], [4, 3], [4, 5], [5, 5, 4], [4, 3, 3], [0, 4, 8]]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "lengths",
    pairwise.drawn("only_rows_of_the_size_that_a_model_takes_are_read", LENGTHS, 2, quick=2),
)
@pytest.mark.parametrize("batch", [1, 2, 100])
def test_only_rows_of_the_size_that_a_model_takes_are_read(tmp_path, lengths, batch):
    records = [made_up.example(x=[float(n + k) for k in range(size)])
               for n, size in enumerate(lengths * 3)]  # fmt: skip
    (tmp_path / "rows.tfrecord").write_bytes(b"".join(map(framed, records)))
    found = deploykit.infer(tiny_model(), tmp_path / "rows.tfrecord", tmp_path / "out",
                            on_error="skip", processes=1, batch=batch, format="npz")  # fmt: skip
    good = [n for n, size in enumerate(lengths * 3) if size == 4]
    assert {each["row"] for each in found.skipped} == {*range(len(records))} - {*good}
    (part,) = (tmp_path / "out").glob("*.npz")
    rows = np.float32([[n, n + 1, n + 2, n + 3] for n in good])
    np.testing.assert_allclose(np.load(part)["scores"], scores_of(rows), rtol=1e-5)


def test_a_feature_that_only_a_late_record_has_is_read(tmp_path):
    records = [made_up.example(a=[n], b=[n]) for n in range(90)]
    path = tmp_path / "rows.tfrecord"
    path.write_bytes(b"".join(map(framed, records)))
    with raises(GraphError, "feature-missing", name="x"):
        deploykit.infer(tiny_model(), path, tmp_path / "out", on_error="skip", processes=1)
    records[80] = made_up.example(x=[1.0] * 4)
    path.write_bytes(b"".join(map(framed, records)))
    found = deploykit.infer(tiny_model(), path, tmp_path / "out", on_error="skip", processes=1)
    assert (found.rows, len(found.skipped)) == (1, 89)


@pytest.mark.parametrize("header", ["a,b,c,d\n", ""])
def test_empty_files_among_others_are_listed_as_skipped(tmp_path, header):
    folder = tmp_path / "rows"
    folder.mkdir()
    for number, text in enumerate(["", f"{header}1,2,3,4\n", "", f"{header}5,6,7,8\n"]):
        (folder / f"{number}.csv").write_text(text)
    declared = {"format": 1, "columns": {"x": [0, 4]}}
    found = deploykit.infer(tiny_model(), folder, tmp_path / "out", preprocess=declared)
    assert (found.rows, found.skipped) == (2, [])
    assert list(found.skipped_files) == ["0.csv", "2.csv"]


def test_arrays_bear_the_names_of_inputs(tmp_path):
    rows = np.ones((20, 4), np.float32)
    np.savez(tmp_path / "rows.npz", y=rows, z=rows)
    with raises(GraphError, "feature-missing", name="x"):
        deploykit.infer(
            tiny_model(), tmp_path / "rows.npz", tmp_path / "out", processes=1, format="npz"
        )


@pytest.mark.parametrize("end", [".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("top", [None, 2])
def test_a_model_of_scalars_runs_each_row_by_itself(tmp_path, end, top):
    with tf.Graph().as_default() as graph:
        text = tf.compat.v1.placeholder(tf.string, (), "text")
        count = tf.compat.v1.placeholder(tf.int32, (), "count")
        lengths = tf.stack([tf.strings.length(text), count, count * count])
        tf.cast(lengths, tf.float32, name="scores")
    texts, counts = ["01", "five", "x"], [5, 2, 7]
    path = tmp_path / f"rows{end}"
    if end == ".npz":
        np.savez(path, text=np.array(texts, "S"), count=np.array(counts))
    elif end == ".csv":
        lines = [f"{text},{count}" for text, count in zip(texts, counts, strict=True)]
        path.write_text("\n".join(["text,count", *lines]) + "\n")
    else:
        pyarrow.parquet.write_table(pyarrow.table({"text": texts, "count": counts}), path)
    found = deploykit.infer(graph.as_graph_def(), path, tmp_path / "out", top=top, format="npz")
    assert (found.rows, found.skipped) == (3, [])
    (part,) = (tmp_path / "out").glob("*.npz")
    scores = np.array([[2, 5, 25], [4, 2, 4], [1, 7, 49]], np.float32)
    if top is None:
        np.testing.assert_array_equal(np.load(part)["scores"], scores)
    else:
        np.testing.assert_array_equal(np.load(part)["top_scores"], -np.sort(-scores)[:, :2])


def test_csv_values_that_are_not_whole_are_bad_rows(tmp_path):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.int32, (None, 2), "x")
        tf.identity(x, name="y")
    path = tmp_path / "rows.csv"
    path.write_text("1,2,0\n3,4.7,1\n5,6,0\n")
    misfit = showing("data-value-misfit", misfit=because("misfit-not-integer"))
    with raises(GraphError, "item-failed", reason=misfit):
        deploykit.infer(graph.as_graph_def(), path, tmp_path / "refused", format="npz")
    found = deploykit.infer(
        graph.as_graph_def(), path, tmp_path / "out", on_error="skip", format="npz"
    )
    assert (found.rows, len(found.skipped)) == (2, 1)
    (part,) = (tmp_path / "out").glob("*.npz")
    assert np.load(part)["y"].tolist() == [[1, 2], [5, 6]]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [("int32", 7, 2147483653), ("int8", 127, -129)],
)
def test_integers_of_records_beyond_the_type_of_the_input_are_bad_rows(tmp_path, dtype, good, bad):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(dtype, (None,), "x")
        tf.identity(x, name="y")
    records = [made_up.example(x=[value]) for value in (good, bad, good)]
    (tmp_path / "rows.tfrecord").write_bytes(b"".join(map(framed, records)))
    found = deploykit.infer(
        graph.as_graph_def(),
        tmp_path / "rows.tfrecord",
        tmp_path / "out",
        on_error="skip",
        format="npz",
    )
    assert [each["row"] for each in found.skipped] == [1]
    (part,) = (tmp_path / "out").glob("*.npz")
    assert np.load(part)["y"].tolist() == [good, good]


EMPTY = {
    "x": pyarrow.array([], pyarrow.list_(pyarrow.float32())),
    "id": pyarrow.array([], "string"),
}


def empty_file(folder: Path, end: str) -> Path:
    path = folder / f"none.{end}"
    if end == "parquet":
        pyarrow.parquet.write_table(pyarrow.table(EMPTY), path)
    elif end == "tfrecord":
        path.write_bytes(b"")
    elif end == "npz":
        np.savez(path, x=np.zeros((0, 4), np.float32))
    elif end == "csv":
        path.write_text("a,b,c,d,label\n")
    else:
        path.write_text({"json": "[]", "jsonl": "", "ndjson": "\n\n"}[end])
    return path


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("end", "format_"),
    [*((end, "parquet")
       for end in ("parquet", "jsonl", "ndjson", "json", "csv", "npz", "tfrecord")),
     *(("parquet", format_) for format_ in ("csv", "npz", "tfrecord", "jsonl"))],
)  # fmt: skip
def test_data_without_rows_gives_a_result_without_rows(tmp_path, end, format_):
    path, kept = empty_file(tmp_path, end), {"keep_columns": ["id"]} if end in ("parquet",) else {}
    found = deploykit.infer(
        tiny_model(), path, tmp_path / "out", format=format_, **({} if format_ == "npz" else kept)
    )
    assert (found.rows, found.parts, found.skipped) == (0, 1, [])
    assert {"file", "row", "scores"} <= found.index["columns"].keys()
    if format_ == "parquet":
        (file,) = (tmp_path / "out").glob("*.parquet")
        table = pyarrow.parquet.read_table(file)
        assert (len(table), table.column_names) == (
            0, ["file", "row", *kept.get("keep_columns", ()), "scores"]
        )  # fmt: skip
    again = deploykit.infer(
        tiny_model(), path, tmp_path / "out", format=format_, **({} if format_ == "npz" else kept)
    )
    assert again.run.kept == 1
    with pytest.raises(Error):  # nothing would be compared
        deploykit.verify(tiny_model(), tiny_model(), data=path)


@pytest.mark.sampled
def test_a_folder_of_records_without_any_gives_a_result_without_rows(tmp_path):
    first = empty_file(tmp_path, "parquet")
    deploykit.infer(tiny_model(), first, tmp_path / "out", format="tfrecord")
    with tf.Graph().as_default() as graph:
        scores = tf.compat.v1.placeholder(tf.float32, (None, 3), "scores")
        tf.identity(scores, "y")
    known = deploykit.infer(graph.as_graph_def(), tmp_path / "out", tmp_path / "known")
    assert (known.rows, known.skipped) == (0, [])
    for index in (tmp_path / "out").glob("*.json"):
        index.unlink()  # as another program finds these records
    found = deploykit.infer(tiny_model(), tmp_path / "out", tmp_path / "again")
    assert (found.rows, found.skipped) == (0, [])


def test_a_header_without_rows_keeps_its_columns(tmp_path):
    with tf.Graph().as_default() as graph:
        ages = tf.compat.v1.placeholder(tf.float32, (None,), "age")
        tf.identity(2 * ages, "y")
    (tmp_path / "a.csv").write_text("age,id\n")
    (tmp_path / "b.csv").write_text("")
    found = deploykit.infer(
        graph.as_graph_def(),
        tmp_path / "a.csv",
        tmp_path / "out",
        keep_columns=["id"],
        format="csv",
    )
    assert found.rows == 0
    (file,) = (tmp_path / "out").glob("*.csv")
    assert file.read_text() == "file,row,id,y\n"
    with raises(GraphError, "csv-empty"):
        deploykit.infer(
            graph.as_graph_def(), tmp_path / "b.csv", tmp_path / "o", columns={"age": "a"}
        )
    with raises(GraphError, "csv-empty"):
        deploykit.infer(graph.as_graph_def(), tmp_path / "b.csv", tmp_path / "o")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["arrow", "pandas", "untyped pandas", "polars"])
def test_a_table_in_memory_without_rows_gives_one_without_rows(kind):
    table = pyarrow.table(EMPTY)
    if kind == "untyped pandas":
        table = pytest.importorskip("pandas").DataFrame(columns=["x", "id"])
    elif kind != "arrow":
        module = pytest.importorskip(kind)
        table = table.to_pandas() if kind == "pandas" else module.from_arrow(table)
    found = deploykit.infer(tiny_model(), table, keep_columns=["id"])
    assert type(found) is type(table)
    assert len(found) == 0
    names = found.column_names if kind == "arrow" else found.columns
    assert list(names) == ["row", "id", "scores"]


def test_a_table_in_memory_has_no_columns_of_temporary_folders(tmp_path, monkeypatch):
    folder = tmp_path / "b=9"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    table = pyarrow.table({"x": [[1.0, 2.0, 3.0, 4.0]]})
    with raises(GraphError, "unknown-name", name="b"):
        deploykit.infer(tiny_model(), table, keep_columns=["b"])
