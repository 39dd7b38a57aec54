"""Damaged data end a run with one sentence that names the file and the place, in every style."""

import re
from pathlib import Path

import numpy as np
import pytest

import deploykit
from deploykit.data.data import open_data
from deploykit.data.input_speed.input_runner import InputJob, InputRunner
from deploykit.data.invalid_records import damaged, without_damaged
from deploykit.data.pipeline import STYLES
from deploykit.data.preprocessing import Steps
from deploykit.data.reading import batches
from deploykit.data.samples import Feeds
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import Error, FileError, GraphError
from tests.deploykit.data import made_up
from tests.deploykit.data.made_up import COUNT, WIDTH, ids, pipeline
from tests.support import because, raises, says, showing, shows

RESIZED = {"image": Steps(resize=(8, 8)), "id": Steps(feature="label")}


def line(text: str):
    """Return what replaces the fifth line of the second CSV file."""

    def damage(folder: Path) -> None:
        path = folder / "1.csv"
        lines = path.read_text().splitlines()
        lines[4] = text
        path.write_text("\n".join(lines) + "\n")

    return damage


def flipped(folder: Path) -> None:
    path = sorted(folder.glob("*.tfrecord"))[1]
    content = bytearray(path.read_bytes())
    content[200] ^= 4
    path.write_bytes(content)


def cut(folder: Path) -> None:
    path = folder / "03.jpg"
    path.write_bytes(path.read_bytes()[:150])


def no_image(folder: Path) -> None:
    (folder / "03.jpg").write_bytes(b"this is no image")


FIELDS = ",".join("1" * WIDTH)
DAMAGES = [
    ("csv", line(f"{FIELDS},1,1"), says("csv-row", reason="it has 8 cells, expected 7")),
    ("csv", line("1,2"), says("csv-row", reason="it has 2 cells, expected 7")),
    (
        "csv",
        line("1,2,x,4,5,6,7"),
        says("csv-row", reason=because("cell-not-number", column=2, got="'x'")),
    ),
    (
        "csv",
        line("1,2,,4,5,6,7"),
        says("csv-row", reason=because("cell-not-number", column=2, got="''")),
    ),
    ("records", flipped, says("record-damaged")),
    ("images", cut, says("record-not-usable")),
    ("images", no_image, says("record-not-usable")),
]


def run_through(style, piped):
    """Run a style to the end of its epoch."""
    runner = InputRunner(InputJob(style, piped, wait_ms=0))
    runner.run("both", 1e9)


@pytest.fixture
def written(tmp_path):
    """Write data of a kind, damage them, and return a pipeline over them."""

    def write(kind, damage):
        folder = tmp_path / kind
        make = {"csv": made_up.write_csv, "records": made_up.write_records,
                "images": made_up.write_images}[kind]  # fmt: skip
        data = make(folder)
        damage(folder)
        return pipeline(data, RESIZED if kind == "images" else None)

    return write


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("kind", "damage", "says"), DAMAGES, ids=lambda v: str(v)[:20])
def test_damage_is_named(written, kind, damage, says, style):
    piped = written(kind, damage)
    with pytest.raises(Error) as found:
        run_through(style, piped)
    assert re.search(says, str(found.value))
    assert "\n" not in str(found.value)
    assert type(found.value) is (FileError if kind == "records" else GraphError)


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
def test_a_missing_label_of_a_line(tmp_path, style):
    path = tmp_path / "a.csv"
    path.write_text("1,2,3\n4,5,\n")
    with raises(GraphError, "csv-row", number=2, reason=because("cell-label-missing", column=2)):
        run_through(style, pipeline(open_data(str(path))))


@pytest.mark.parametrize("style", STYLES)
def test_an_example_without_a_feature(tmp_path, style):
    features = {"x": Feature("float32", (2,)), "label": Feature("int64")}
    contents = [made_up.example(x=[1.0, 2.0], label=[n]) for n in range(8)]
    contents += [made_up.example(x=[1.0, 2.0])]
    data = made_up.write_shards(tmp_path, features, contents)
    with raises(GraphError, "unknown-name", kind="feature", known=["x"], name="label"):
        run_through(style, pipeline(data))


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
def test_an_example_of_another_length_or_type(tmp_path, style):
    features = {"x": Feature("float32", (2,))}
    for number, wrong in enumerate(([1.0, 2.0, 3.0], [1, 2], [b"a", b"b"])):
        contents = [made_up.example(x=[1.0, 2.0])] * 5 + [made_up.example(x=wrong)]
        data = made_up.write_shards(tmp_path / str(number), features, contents)
        with raises(GraphError, "example-feature-values"):
            run_through(style, pipeline(data))


def test_damaged_images_are_left_out_with_their_names(written, tmp_path):
    piped = written("images", cut)
    assert [each.where for each in damaged(piped)] == [piped.data.files[3]]
    kept, left_out = without_damaged(piped, tmp_path)
    assert left_out == (piped.data.files[3],)
    for style in STYLES:
        assert ids(made_up.epoch(style, kept)) == [0, 1, 2, 4, 5, 6, 7]


def image_records(folder, broken, compression=""):
    """Write eight images as records of three shards, some of them cut short."""
    features = {"image": Feature("string", (), "image"), "id": Feature("int64")}
    contents = [
        made_up.example(image=[made_up.jpeg(n)[: 150 if n in broken else None]], id=[n])
        for n in range(8)
    ]
    data = made_up.write_shards(folder, features, contents, compression)
    return pipeline(data, {"image": Steps(resize=(8, 8)), "id": Steps()})


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
def test_a_damaged_image_in_a_record_is_named(tmp_path, style):
    piped = image_records(tmp_path / "records", {3})
    with pytest.raises(GraphError) as found:
        run_through(style, piped)
    assert shows(found.value, "record-not-usable")


@pytest.mark.sampled
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_damaged_images_in_records_are_left_out(tmp_path, compression):
    """Records 0, 1 are all of the first shard, which then is empty; 3 lies within the second."""
    piped = image_records(tmp_path / "records", {0, 1, 3}, compression)
    kept, left_out = without_damaged(piped, tmp_path)
    assert [each.rpartition("-")[2] for each in left_out] == [
        "00003.tfrecord: record 0", "00003.tfrecord: record 1", "00003.tfrecord: record 1",
    ]  # fmt: skip
    assert (len(kept.data.files), kept.data.counts) == (2, (2, 3))
    assert kept.data.files[1] == piped.data.files[2]  # a sound shard is read as it lies
    for style in STYLES:
        assert ids(made_up.epoch(style, kept)) == [2, 4, 5, 6, 7]


def test_records_without_a_label_are_left_out(tmp_path):
    features = {"x": Feature("float32", (2,)), "id": Feature("int64")}
    contents = [made_up.example(x=[1.0, 2.0], id=[n]) for n in range(6)]
    contents[4] = made_up.example(x=[1.0, 2.0])
    kept, left_out = without_damaged(
        pipeline(made_up.write_shards(tmp_path / "records", features, contents)), tmp_path
    )
    assert len(left_out) == 1
    assert ids(made_up.epoch("tfdata", kept)) == [0, 1, 2, 3, 5]


def test_a_damaged_shard_is_not_skipped(written, tmp_path):
    """Behind a wrong checksum nobody knows where the next record begins."""
    with raises(FileError, "record-damaged"):
        without_damaged(written("records", flipped), tmp_path)


def test_nothing_sound_is_left(tmp_path):
    data = made_up.write_images(tmp_path / "images", 2)
    for file in data.files:
        Path(file).write_bytes(b"")
    with pytest.raises(GraphError, match=says("records-all-damaged", count=2)):
        without_damaged(pipeline(data, RESIZED), tmp_path)
    with raises(GraphError, "records-all-damaged", count=8):
        without_damaged(image_records(tmp_path / "records", range(8)), tmp_path)


def test_lines_are_not_skipped(written, tmp_path):
    with raises(GraphError, "only-for", option="--on-error skip"):
        without_damaged(written("csv", line("1")), tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
def test_a_class_name_in_a_line(tmp_path, style):
    path = tmp_path / "a.csv"
    path.write_text("a,b,name\n1,2,cat\n")
    with raises(GraphError, "csv-row", reason=showing("cell-not-number", got="'cat'")):
        run_through(style, pipeline(open_data(str(path))))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("content", "got"),
    [
        ('"1",2,3\n', "double quotes"),
        ("1,2,3\n\n4,5,6\n", "empty lines"),
        ("\ufeff1,2,3\n", "a byte-order mark"),
        ("1,2,3\r4,5,6\r", "carriage returns that end lines"),
    ],
)
def test_graph_ops_read_only_plain_lines(tmp_path, content, got, style):
    path = tmp_path / "a.csv"
    path.write_text(content, encoding="utf-8", newline="")
    piped = pipeline(open_data(str(path)))
    if style == "feed":
        assert np.concatenate([each["x"] for each in batches(piped)])[0].tolist() == [1, 2]
        return
    with raises(GraphError, "csv-beyond-lines", got=got, hint=", or give --input feed"):
        run_through(style, piped)


@pytest.mark.parametrize("style", STYLES)
def test_a_hexadecimal_number_is_a_bad_cell_in_every_style(tmp_path, style):
    path = tmp_path / "a.csv"
    path.write_text("0x,b0x,label\n1,2,0\n")
    run_through(style, pipeline(open_data(str(path))))
    path.write_text("0x,b0x,label\n1,2,0\n4,-0X1f,0\n")
    code = "csv-row" if style == "feed" else "csv-beyond-lines"
    with raises(GraphError, code, source=str(path)):
        run_through(style, pipeline(open_data(str(path))))


def test_feeds_of_a_pipeline_can_be_gone_through_twice(tmp_path):
    """This is what calibration and accuracy checks take."""
    feeds = Feeds(pipeline(made_up.write_csv(tmp_path / "csv")))
    for _ in range(2):
        found = list(feeds)
        assert ids(found) == list(range(COUNT))
        assert np.array_equal(np.concatenate([each["x"] for each in found]), made_up.numbers())


def test_feeds_name_what_is_damaged(written):
    with pytest.raises(GraphError, match=r"1.csv: line 5"):
        list(Feeds(written("csv", line("1"))))


def test_input_write_does_not_advise_an_option_that_it_lacks(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"1",2,3\n')
    with raises(GraphError, "csv-beyond-lines", got="double quotes", hint="") as error:
        deploykit.write_input(path)
    assert "--input" not in str(error.value)
