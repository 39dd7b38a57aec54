"""Whatever the source, TensorFlow reads from the records what the source holds."""

import datetime
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deploykit.records import table_source
from deploykit.records.images import Images
from deploykit.records.index import load_index
from deploykit.records.open_source import open_source
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.batch_inference.tables.made_up_tables import write_table
from tests.deploykit.records.conftest import (
    LABELS,
    cifar_batch,
    idx_bytes,
    jpeg,
    numbers,
    parsed,
    png,
)
from tests.support import raises, tf


@pytest.fixture
def records(deploykit, tmp_path):
    """Convert, and return what TensorFlow reads, and the index."""

    def convert(*arguments):
        out = tmp_path / "out"
        outcome = deploykit("records", *arguments, out, "--json")
        assert outcome.status == 0, outcome.stderr
        assert deploykit("records", "verify", out).status == 0
        return parsed(out), load_index(out)

    return convert


@pytest.mark.sampled
def test_numbers_of_many_files(records, tmp_path):
    files = [tmp_path / f"{n}.csv" for n in range(3)]
    made = [numbers(path, rows=20, columns=1024, seed=n) for n, path in enumerate(files)]
    found, index = records(*files, "--processes", 2)
    np.testing.assert_array_equal(found["x"], np.concatenate([x for x, _ in made]))
    np.testing.assert_array_equal(found["label"], np.concatenate([y for _, y in made]))
    assert str(index.features["x"]) == "float32 [1024]"
    assert str(index.features["label"]) == "int64 []"


@pytest.mark.sampled
def test_lines_are_whole_wherever_the_parts_are_cut(records, tmp_path, monkeypatch):
    monkeypatch.setattr("deploykit.records.lines.PART", 37)
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    made = [numbers(path, rows=50, columns=3, seed=n) for n, path in enumerate(files)]
    files[1].write_bytes(files[1].read_bytes().rstrip(b"\n").replace(b"\n", b"\r\n\r\n"))
    found, _ = records(*files, "--shard-size", 0.001)
    np.testing.assert_array_equal(found["x"], np.concatenate([x for x, _ in made]))
    np.testing.assert_array_equal(found["label"], np.concatenate([y for _, y in made]))


@pytest.mark.sampled
@pytest.mark.parametrize("part", [1 << 20, 11])
@pytest.mark.parametrize("label", ["sign", "1"])
def test_a_header_is_left_out_of_every_file(records, tmp_path, monkeypatch, label, part):
    monkeypatch.setattr("deploykit.records.lines.PART", part)
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("\ufeffa,sign,b\n1,0,2\n3,1,4.5\n")
    found, index = records(tmp_path / "a.csv", tmp_path / "b.csv", "--label-column", label)
    assert found["x"].tolist() == [[1, 2], [3, 4.5]] * 2
    assert found["label"].tolist() == [0, 1] * 2
    assert index.features["x"].shape == (2,)


@pytest.mark.parametrize(
    ("cells", "values", "dtype", "classes"),
    [
        (("4.0", "2.5"), [4.0, 2.5], np.float32, ()),
        (("7", "-9007199254740993"), [7, -9007199254740993], np.int64, ()),
        (("dog", '"cat, big"'), [1, 0], np.int64, ("cat, big", "dog")),
        (("dog", "cat"), [1, 0], np.int64, LABELS),
    ],
)
def test_kinds_of_labels(records, tmp_path, cells, values, dtype, classes):
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{cell},1.5,2\n" for cell in cells))
    found, index = records(path, "--label-column", 0)
    assert found["label"].tolist() == values
    assert found["label"].dtype == dtype
    assert found["x"].tolist() == [[1.5, 2]] * 2
    assert index.classes == classes


def test_a_line_that_is_left_out_adds_no_class(records, tmp_path):
    (tmp_path / "a.csv").write_text("1,dog\n2,3,cat\n4\n5,dog\n")
    found, index = records(tmp_path / "a.csv", "--on-error", "skip")
    assert found["x"].tolist() == [[1], [5]]
    assert index.classes == ("dog",)


def test_one_column_is_no_label(records, tmp_path):
    (tmp_path / "a.csv").write_text("size\n1\n2\n")
    found, _ = records(tmp_path / "a.csv")
    assert {name: value.tolist() for name, value in found.items()} == {"x": [[1], [2]]}


def test_numbers_without_a_label(records, tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    found, _ = records(tmp_path / "a.csv", "--label-column", "none")
    assert found["x"].tolist() == [[1, 2], [3, 4]]
    assert list(found) == ["x"]


def test_texts(records, tmp_path):
    path = tmp_path / "reviews.tsv"
    path.write_bytes("so, so\tGrüße \t3\n\nfine\t\t5\r\n".encode())
    found, index = records(path)
    assert [each.decode() for each in found["text_1"]] == ["so, so", "fine"]
    assert [each.decode() for each in found["text_2"]] == ["Grüße ", ""]
    assert found["label"].tolist() == [3, 5]
    assert index.classes == ()


def test_texts_with_names_and_classes(records, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("rating\ttitle\nbad\tone\ngood\ttwo\nbad\tthree\n")
    found, index = records(path, "--label-column", "rating")
    assert found["title"].tolist() == [b"one", b"two", b"three"]
    assert found["label"].tolist() == [0, 1, 0]
    assert index.classes == ("bad", "good")


@pytest.mark.parametrize("start", ["\n", "\r\n \n", "\ufeff\n"])
def test_a_header_after_blank_lines_is_no_row(records, tmp_path, start):
    path = tmp_path / "a.tsv"
    path.write_text(start + "text\tlabel\nhello\t1\nbye\t0\n", newline="")
    found, _ = records(path, "--label-column", "label")
    assert found["text"].tolist() == [b"hello", b"bye"]
    assert found["label"].tolist() == [1, 0]


def test_texts_without_a_label(records, tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo, three\n")
    found, _ = records(tmp_path / "a.txt")
    assert found["text"].tolist() == [b"one", b"two, three"]


def test_a_folder_of_classes(records, pictures):
    (pictures / "notes.txt").write_text("left out")
    (pictures / "dog" / ".hidden.jpg").write_text("left out")
    (pictures / "dog" / "more").mkdir()
    (pictures / "dog" / "more" / "x.PNG").write_bytes(png())
    found, index = records(pictures)
    files = [pictures / "cat" / f"{n}.jpg" for n in range(3)]
    files += [pictures / "dog" / name for name in ("0.jpg", "1.jpg", "2.jpg", "more/x.PNG")]
    assert found["image"].tolist() == [path.read_bytes() for path in files]
    assert found["label"].tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert index.classes == LABELS
    assert index.features["image"].content == "image"


def test_a_folder_without_images_is_a_class_of_records(records, pictures):
    (pictures / "ant").mkdir()
    found, index = records(pictures)
    assert index.classes == ("ant", *LABELS)
    assert set(found["label"].tolist()) == {1, 2}


def test_pixels_are_those_of_tensorflow(records, pictures):
    found, index = records(pictures, "--raw", "--processes", 2)
    files = sorted(pictures.rglob("*.jpg"))
    expected = [tf.io.decode_jpeg(path.read_bytes()).numpy() for path in files]
    np.testing.assert_array_equal(found["pixels"], expected)
    assert str(index.features["pixels"]) == "uint8 [8, 8, 3], raw"


def test_labels_of_a_csv_file(records, tmp_path):
    folder = tmp_path / "flat"
    folder.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (folder / name).write_bytes(jpeg(seed=ord(name[0])))
    (tmp_path / "labels.csv").write_text("file,label\nb.jpg,dog\na.jpg,cat\n")
    found, index = records(folder, "--labels", tmp_path / "labels.csv")
    assert found["image"].tolist() == [(folder / n).read_bytes() for n in ("a.jpg", "b.jpg")]
    assert found["label"].tolist() == [0, 1]
    assert index.classes == LABELS


@pytest.mark.parametrize("listed", [[], ["b.tiff"], ["c.txt", "gone.jpg"], ["b.tiff", "c.txt"]])
def test_a_file_is_either_skipped_or_a_row(tmp_path, listed, caplog):
    (tmp_path / "in").mkdir()
    folder = tmp_path / "in" / ".." / "in"
    (folder / "a.jpg").write_bytes(jpeg())
    others = {"b.tiff", "c.txt"}
    for name in others:
        (folder / name).write_text("text")
    labels = folder / "list.csv"
    labels.write_text("".join(f"{name},dog\n" for name in ["a.jpg", *listed]))
    source = Images(folder, labels)
    assert {Path(path).name for path in source.files} == {"a.jpg", "list.csv", *listed}
    skipped = others - set(listed)
    assert (f"skipped {len(skipped)} of 3 files" in caplog.text) == bool(skipped)
    assert {name for name in others if name in caplog.text} == skipped


def test_images_without_labels(records, tmp_path, decoder_here):
    folder = tmp_path / "flat"
    folder.mkdir()
    (folder / "a.png").write_bytes(png(channels=1))
    found, _ = records(folder, "--raw", *decoder_here)
    assert found["pixels"].shape == (1, 8, 8, 1)
    assert list(found) == ["pixels"]


ARRAYS = {
    "f4": np.arange(6, dtype=np.float32).reshape(2, 3),
    "f8": np.array([[1e300], [2.0]]),
    "f2": np.array([1.5, 2.5], np.float16),
    "i8": np.array([[-1, 2**62], [3, 4]]),
    "i4": np.array([-3, 4], np.int32),
    "u1": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
    "u2be": np.arange(4, dtype=">u2").reshape(2, 2),
    "u4": np.full((2, 2), 2**32 - 1, np.uint32),
    "flag": np.array([True, False]),
    "flags": np.array([[True, False], [False, True]]),
    "word": np.array(["a", "bé"]),
    "words": np.array([[b"a", b"b"], [b"c", b""]]),
}


def test_arrays_of_every_type(records, tmp_path):
    np.savez(tmp_path / "a.npz", **ARRAYS, labels=np.array(["dog", "cat"]))
    found, index = records(tmp_path / "a.npz")
    expected = {**ARRAYS, "word": [b"a", "bé".encode()]}
    assert set(found) == {*expected, "label"}
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert found["f8"].dtype == np.float64
    assert found["label"].tolist() == [1, 0]
    assert index.classes == LABELS


@pytest.mark.parametrize("packed", [False, True])
def test_idx(records, tmp_path, packed):
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 3)).astype(np.uint8)
    end = ".gz" if packed else ""
    (tmp_path / "idx").mkdir()
    (tmp_path / "idx" / f"images-idx3-ubyte{end}").write_bytes(idx_bytes(images, packed))
    (tmp_path / "idx" / f"labels-idx1-ubyte{end}").write_bytes(idx_bytes(np.arange(5), packed))
    found, index = records(tmp_path / "idx")
    np.testing.assert_array_equal(found["pixels"], images[..., np.newaxis])
    assert found["label"].tolist() == [0, 1, 2, 3, 4]
    assert str(index.features["pixels"]) == "uint8 [4, 3, 1], raw"


@pytest.mark.sampled
@pytest.mark.parametrize("hundred", [False, True])
@pytest.mark.parametrize(("binary", "protocol"), [(True, 0), (False, 2), (False, 4)])
def test_cifar(records, tmp_path, hundred, binary, protocol):
    paths = [tmp_path / f"data_batch_{n}{'.bin' if binary else ''}" for n in (1, 2)]
    made = [
        cifar_batch(path, seed=n, hundred=hundred, binary=binary, protocol=protocol)
        for n, path in enumerate(paths)
    ]
    name = "fine_label_names.txt" if hundred else "batches.meta.txt"
    (tmp_path / name).write_text("cat\ndog\n\n")
    found, index = records(*paths)
    labels = np.concatenate([each for _, each in made])
    np.testing.assert_array_equal(found["pixels"], np.concatenate([x for x, _ in made]))
    np.testing.assert_array_equal(found["label"], labels[:, -1])
    assert ("coarse_label" in found) == hundred
    if hundred:
        np.testing.assert_array_equal(found["coarse_label"], labels[:, 0])
    assert index.classes == LABELS


def test_cifar_as_python_2_wrote_it(records, tmp_path):
    """The archive's own files: their strings have no encoding, and become bytes."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3072)).astype(np.uint8)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01b\x87R(K\x01K\x02M\0\x0c"
        b"\x86cnumpy\ndtype\nU\x02u1K\0K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\0tb\x89T" + struct.pack("<I", pixels.nbytes) + pixels.tobytes() + b"tb"
    )
    content = b"\x80\x02}(U\x04data" + array + b"U\x06labels](K\x03K\x07eu."
    (tmp_path / "data_batch_1").write_bytes(content)
    found, _ = records(tmp_path / "data_batch_1")
    expected = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(found["pixels"], expected)
    assert found["label"].tolist() == [3, 7]


def test_a_transposition_of_pixels_would_be_seen(tmp_path):
    images, _ = cifar_batch(tmp_path / "a.bin")
    assert not np.array_equal(images, images.transpose(0, 2, 1, 3))


def test_tables_of_several_formats_at_once_are_refused(tmp_path):
    for name in ("a.csv", "b.jsonl"):
        (tmp_path / name).write_text('{"x": 1}\n')
    with raises(GraphError, "records-not-from", source=tmp_path / "a.csv"):
        open_source([tmp_path / "a.csv", tmp_path / "b.jsonl"])
    assert open_source([tmp_path / "b.jsonl"], kind="text").features.keys() == {"text"}


TABLE = pa.table({
    "n": [1, 2, 3], "flag": [True, False, True], "price": [1.5, 2.0, -1.0],
    "city": ["a", "\u00e5", "c"], "row": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    "words": [["a", "b"], ["c", "d"], ["e", ""]], "kind": ["dog", "cat", "dog"],
})  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    "end",
    ["parquet", "jsonl", "json", pytest.param("jsonl.gz", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("processes", [1, 3])
def test_columns_of_tables_are_features(records, tmp_path, monkeypatch, end, processes):
    monkeypatch.setattr(table_source, "MAX_ITEMS", 50)
    table = pa.concat_tables([TABLE] * 100)
    path = write_table(tmp_path / f"a.{end}", table, rows_of_group=70)
    found, index = records(path, "--label-column", "kind", "--processes", processes)
    assert {name: str(item) for name, item in index.features.items()} == {
        "n": "int64 []", "flag": "int64 []", "price": "float32 []", "city": "string []",
        "row": "float32 [2]", "words": "string [2]", "label": "int64 []",
    }  # fmt: skip
    assert index.classes == ("cat", "dog")
    assert found["label"].tolist() == [1, 0, 1] * 100
    assert found["words"].tolist() == [[b"a", b"b"], [b"c", b"d"], [b"e", b""]] * 100
    assert found["city"].tolist() == [b"a", "\u00e5".encode(), b"c"] * 100
    for name in ("n", "flag", "price", "row"):
        assert found[name].tolist() == table[name].to_pylist(), name


def test_shards_of_tables_are_the_same_for_any_number_of_processes(
    deploykit, tmp_path, monkeypatch
):
    monkeypatch.setattr(table_source, "MAX_ITEMS", 5)
    path = write_table(tmp_path / "a.parquet", pa.concat_tables([TABLE] * 20))
    for count in (1, 2):
        out = tmp_path / str(count)
        options = ("--processes", count, "--shard-size", 0.001)
        assert deploykit("records", path, out, *options).status == 0
    files = sorted(file.name for file in (tmp_path / "1").iterdir())
    assert len(files) > 3
    for file in files:
        assert (tmp_path / "1" / file).read_bytes() == (tmp_path / "2" / file).read_bytes()


@pytest.mark.parametrize("end", ["parquet", "jsonl"])
def test_bad_rows_of_tables_are_named_or_skipped(deploykit, tmp_path, end):
    rows = {"x": [[1, 2], [3], None, [4, 5]], "when": [datetime.date(2026, 1, 1)] * 4}
    table = pa.table(rows if end == "parquet" else {"x": rows["x"], "when": [{}] * 4})
    path = write_table(tmp_path / f"a.{end}", table)
    failed = deploykit("records", path, tmp_path / "out")
    assert failed.status == 2
    assert "row 1: column 'x' has 1 values, expected 2" in failed.stderr
    done = deploykit("records", path, tmp_path / "out", "--on-error", "skip")
    assert done.status == 0
    assert "skipping column 'when'" in done.stderr
    assert parsed(tmp_path / "out")["x"].tolist() == [[1, 2], [4, 5]]


def lines(*rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.mark.parametrize(
    ("files", "features", "problems"),
    [
        ((lines({"x": 1}), lines({"x": 2, "label": 5})), "label int64 [], x int64 []", 1),
        ((lines(*[{"x": 1}] * 10), lines({"x": 0.5})), "x float32 []", 0),
        ((lines(*[{"x": 1}] * 200_000, {"x": 1, "y": 2}),), "x int64 [], y int64 []", 200_000),
        ((lines({"x": []}, {"x": [1, 2]}, {"x": [3, 4]}),), "x int64 [2]", 1),
        ((lines({"x": "\ud800"}, {"x": "b"}),), "x string []", 1),
    ],
    ids=["column of a later file", "fractions later", "column of late rows", "empty list first",
         "half a character first"],
)  # fmt: skip
def test_all_lines_state_the_features(files, features, problems, tmp_path):
    paths = [tmp_path / f"{number}.jsonl" for number in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        path.write_bytes(content)
    source = open_source(paths)
    items = sorted(source.features.items())
    assert ", ".join(f"{name} {item}" for name, item in items) == features
    assert sum(len(source.read(part).problems) for part in source.parts()) == problems


def test_labels_of_tables_follow_the_rule_of_csv(tmp_path):
    for end in ("jsonl", "csv"):
        path = tmp_path / f"a.{end}"
        texts = [" b", "a", "", "b ", "\u0663"]
        if end == "csv":
            path.write_text("x,label\n" + "".join(f"1,{text}\n" for text in texts))
        else:
            path.write_bytes(lines(*({"x": 1, "label": text} for text in texts)))
        source = open_source([path])
        assert source.classes == ("a", "b", "\u0663")
        (batch,) = map(source.read, source.parts())
        assert list(batch.columns["label"]) == [1, 0, 1, 2]
        assert len(batch.problems) == 1


@pytest.mark.parametrize(
    ("label", "taken"), [("2", "b"), ("b", "b"), ("10", "10"), ("-1", "10"), ("none", None)]
)
def test_a_label_column_has_its_name_or_its_number_in_the_file(label, taken, tmp_path):
    columns = {"when": [datetime.date(2026, 1, 1)] * 2, "a": [1, 2], "b": [3, 4], "10": [5, 6]}
    path = write_table(tmp_path / "a.parquet", pa.table(columns))
    source = open_source([path], label=label)
    (batch,) = map(source.read, source.parts())
    assert set(columns) - set(batch.columns) == {"when", taken} - {None}
    if taken:
        assert list(batch.columns["label"]) == columns[taken]


@pytest.mark.parametrize(
    ("rows", "label", "code"),
    [
        ({"when": [{}], "a": [1]}, "when", "label-column-type"),
        ({"label": [1], "labels": [1]}, "labels", "label-column-taken"),
        ({"a": [1]}, "3", "csv-column-number"),
        ({"a": [1]}, "b", "missing"),
    ],
)
def test_a_label_column_that_cannot_be_one_is_refused(rows, label, code, tmp_path):
    path = write_table(tmp_path / "a.jsonl", pa.table(rows))
    with raises(GraphError, code):
        open_source([path], label=label)


def test_files_with_other_columns_are_refused(tmp_path):
    for number, type_ in enumerate((pa.int32(), pa.int64())):
        table = pa.table({"x": [1], "label": pa.array([1], type_)})
        write_table(tmp_path / f"{number}.parquet", table)
    with raises(GraphError, "column-differs"):
        open_source([tmp_path / "0.parquet", tmp_path / "1.parquet"])


def test_names_and_depths_that_no_record_has(tmp_path, caplog):
    (tmp_path / "a.jsonl").write_text('{"\\ud800": 1, "y": 2}\n')
    with raises(GraphError, "damaged-or-not"):
        source = open_source([tmp_path / "a.jsonl"])
        source.read(source.parts()[0])
    (tmp_path / "b.jsonl").write_text(f'{{"x": {"[" * 300}1{"]" * 300}, "y": 1}}\n')
    assert open_source([tmp_path / "b.jsonl"]).features.keys() == {"y"}


def test_labels_of_which_all_are_empty_are_problems(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"x": 1, "label": ""}, {"x": 2, "label": " "}))
    source = open_source([tmp_path / "a.jsonl"])
    (batch,) = map(source.read, source.parts())
    assert (list(batch.rows()), len(batch.problems)) == ([], 2)
