"""Whatever happens to a shard after it was written is found and named."""

import gzip
import json
import re
import shutil

import pytest

from deploykit.data.data import open_data
from deploykit.records.conversion import Options, convert
from deploykit.records.index import load_index
from deploykit.records.plain_records import record_names, records_to_read
from deploykit.records.tables import Numbers
from deploykit.records.verify_records import check_folder, sample
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.protos import Example
from deploykit.transforms.ir.tfrecord import framed
from tests.deploykit.data import made_up
from tests.deploykit.records.conftest import numbers
from tests.support import Containing, because, raises, says, showing, shows, tf


@pytest.fixture(scope="module", params=["", "GZIP"])
def written(tmp_path_factory, request):
    """A folder of several small shards."""
    folder = tmp_path_factory.mktemp("records")
    numbers(folder / "a.csv", rows=12, columns=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deploykit.records.lines.PART", 100)
        options = Options("train", 200, request.param, processes=1)
        convert(Numbers([str(folder / "a.csv")]), folder / "out", options)
    return folder / "out"


@pytest.fixture
def folder(written, tmp_path):
    shutil.copytree(written, tmp_path / "out")
    return tmp_path / "out"


def problems(folder, processes=1):
    return [each.problem for each in check_folder(folder, None, processes)[1] if each.problem]


def first_shard(folder):
    return folder / load_index(folder).shards[0].file


@pytest.mark.sampled
def test_whole_shards_pass(folder, deploykit):
    assert not problems(folder)
    outcome = deploykit("records", "verify", folder, "--json")
    assert outcome.status == 0
    assert outcome.document["passed"]
    assert outcome.document["records"] == 12
    assert outcome.document["checked"] == because("checked-with-index")
    assert outcome.document["unknown"] == ""
    assert len(outcome.document["shards"]) > 2


@pytest.mark.sampled
def test_every_flipped_bit_is_found(folder):
    path = first_shard(folder)
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        (found,) = problems(folder)
        assert str(path) in found


@pytest.mark.sampled
def test_every_cut_is_found(folder):
    path = first_shard(folder)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        (found,) = problems(folder)
        assert str(path) in found


@pytest.mark.sampled
def test_a_cut_between_records_which_tensorflow_reads_as_an_end(folder, deploykit):
    index = load_index(folder)
    if index.compression:
        pytest.skip("a cut gzip file has no end at all")
    path = first_shard(folder)
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    size = index.shards[0].bytes
    path.write_bytes(path.read_bytes()[: -len(framed(records[-1]))])
    assert path.stat().st_size < size
    assert len(list(tf.data.TFRecordDataset(str(path)))) == len(records) - 1  # and no error
    outcome = deploykit("records", "verify", folder)
    assert outcome.status == 5
    assert shows(outcome.stderr, "records-invalid", problem=showing("shard-records", file=path))
    assert outcome.stderr.count("\n") == 1


def test_missing_and_extra_shards(folder, deploykit):
    shards = sorted(folder.glob("*.tfrecord"))
    shards[1].unlink()
    shutil.copy(shards[0], folder / "train-00000-of-00099.tfrecord")
    outcome = deploykit("records", "verify", folder, "--json", "--processes", 2)
    assert outcome.status == 5
    assert outcome.document["problems"] == [
        because("shard-missing", file=shards[1], more=""),
        because("shard-extra", file=folder / "train-00000-of-00099.tfrecord"),
    ]


def test_shards_that_changed_places(folder):
    first, second = sorted(folder.glob("*.tfrecord"))[:2]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert len(problems(folder)) == 2


@pytest.mark.sampled
def test_a_folder_without_an_index(folder, deploykit):
    (folder / "train.index.json").unlink()
    outcome = deploykit("records", "verify", folder)
    assert outcome.status == 0
    assert because("missing-unknown") in outcome.stdout
    path = sorted(folder.glob("*.tfrecord"))[0]
    path.write_bytes(path.read_bytes()[:-1])
    outcome = deploykit("records", "verify", folder, "--json")
    assert outcome.status == 5
    assert outcome.document["indexed"] is False
    assert outcome.document["unknown"] == because("missing-unknown")
    assert f"{path}: record" in outcome.stderr


def test_without_an_index_names_tell_of_missing_shards(folder, deploykit):
    (folder / "train.index.json").unlink()
    shards = sorted(folder.glob("*.tfrecord"))
    shards[1].unlink()
    outcome = deploykit("records", "verify", folder)
    assert outcome.status == 5
    assert shows(outcome.stderr, "records-invalid", problem=showing("shard-missing"))
    shards[0].unlink()
    assert problems(folder) == [showing("shard-missing", file=shards[0], more=Containing("1"))]


@pytest.mark.sampled
def test_no_record_is_no_success(tmp_path, deploykit):
    for name in ("a.tfrecord", "b.tfrecord"):
        (tmp_path / name).write_bytes(b"")
    outcome = deploykit("records", "verify", tmp_path, "--json")
    assert outcome.status == 5
    assert outcome.document["passed"] is False
    assert shows(outcome.stderr, "records-empty", files_count=2)


def test_files_that_tensorflow_wrote(tmp_path, deploykit):
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[1.5, 2.5]))
    text = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a word"]))
    example = tf.train.Example(features=tf.train.Features(feature={"x": feature, "t": text}))
    with tf.io.TFRecordWriter(str(tmp_path / "foreign.tfrecords")) as writer:
        writer.write(example.SerializeToString())
    assert deploykit("records", "verify", tmp_path).status == 0
    outcome = deploykit("records", "inspect", tmp_path, "--json")
    assert outcome.document["features"] == {
        "t": {"dtype": "string", "shape": []}, "x": {"dtype": "float32", "shape": [2]},
    }  # fmt: skip
    assert outcome.document["sample"] == {"t": "'a word'", "x": "1.5, 2.5"}


@pytest.mark.parametrize("is_indexed", [True, False])
def test_one_file_is_checked_with_its_index_or_alone(folder, deploykit, is_indexed):
    index = load_index(folder)
    path = folder / index.shards[1].file
    if not is_indexed:
        path = path.rename(folder.parent / "alone")
    shards = index.shards if is_indexed else index.shards[1:2]
    outcome = deploykit("records", "verify", path, "--json")
    assert (outcome.status, outcome.document["indexed"]) == (0, is_indexed)
    assert [each["file"] for each in outcome.document["shards"]] == [path.name]
    assert outcome.document["records"] == index.shards[1].records
    outcome = deploykit("records", "inspect", path, "--json")
    assert [each["records"] for each in outcome.document["shards"]] == [s.records for s in shards]
    assert outcome.document["features"]["x"] == {"dtype": "float32", "shape": [2]}
    assert outcome.document["compression"] == index.compression
    content = path.read_bytes()
    if not index.compression:  # without an index, a cut between two records is not seen
        path.write_bytes(content[: -len(framed(list(_records(path))[-1]))])
        assert bool(check_folder(path, None, 1)[1][0].problem) is is_indexed
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        ((found,), _) = check_folder(path, None, 1)[::-1]
        is_in_gzip_header = index.compression and not is_indexed and place < 10
        assert is_in_gzip_header or str(path) in found.problem
    outcome = deploykit("records", "verify", path, "--name", "train")
    assert (outcome.status, outcome.stderr.count("\n")) == (2, 1)


def _records(path):
    return tf.data.TFRecordDataset(str(path)).as_numpy_iterator()


def test_a_set_is_named_by_its_index_too(folder):
    for name in ("train", "train.index.json"):
        index, results = check_folder(folder / name, None, 1)
        assert index == load_index(folder)
        assert len(results) == len(index.shards)
        assert not any(each.problem for each in results)
    first_shard(folder).unlink()
    assert check_folder(folder / "train.index.json", None, 1)[1][0].problem


def test_a_feature_without_a_value_is_missing(tmp_path):
    example = Example()
    example.features.feature["n"].int64_list.value.append(1)
    example.features.feature["x"].SetInParent()
    (tmp_path / "a.tfrecord").write_bytes(framed(example.SerializeToString()))
    assert sample(tmp_path / "a.tfrecord") == {"n": [1]}


def test_records_without_an_index_are_described_by_their_first_records(tmp_path, deploykit):
    records = [made_up.example(n=[n], **({"w": [1.0] * n} if n else {})) for n in range(3)]
    for name in ("a.tfrecord", "b.tfrecord.gz", "a.tfrecord.idx", "train-00000-of-00001"):
        (tmp_path / name).write_bytes(b"".join(map(framed, records)))
    for path, count in ((tmp_path / "a.tfrecord", 1), (tmp_path, 3)):
        outcome = deploykit("records", "inspect", path, "--json")
        assert outcome.document["features"] == {
            "n": {"dtype": "int64", "shape": []}, "w": {"dtype": "float32", "shape": [None]}
        }  # fmt: skip
        assert outcome.document["records"] == 3 * count
        assert len(outcome.document["shards"]) == count
        assert outcome.document["optional"] == ["w"]
        assert outcome.document["sample"] == {"n": "0", "w": "missing"}
        text = deploykit("records", "inspect", path).stdout
        assert because("records-optional", names="w") in text
        assert f"{3 * count} records in {count} file{'s' * (count > 1)}\n" in text
        outcome = deploykit("records", "verify", path, "--json")
        assert (outcome.status, outcome.document["records"]) == (0, 3 * count)


NAMED_LIKE_RECORDS = [
    "v1.0-train-00000-of-00001", "imagenet.train-00000-of-00001", "train-00000-of-00001.gz",
    "train-00000-of-00001", "train_tfrecord_0", "a.tfrecord_1", "a.tfrecord.1-of-2", "mytfrecords",
    "tfrecord-0001", "x.tfrecords.00001", "x-1.TFRECORD", "b.tfrec", "c.tfrecord.gz", "d.tfrecord1",
]  # fmt: skip
NAMED_OTHERWISE = [
    "a.tfrecord.idx", "a.tfrecord-00000-of-00001.index", "a.tfrecord.json.gz", "tfrecords.csv",
    "train-00000-of-00001.parquet", "model.data-00000-of-00001", "a.tfrecord.bak", "a.tfrecord~",
    "model-00001-of-00002.safetensors", "make_tfrecords.py", "README.md", "part-1-of-2",
]  # fmt: skip


def _example(value):
    return framed(made_up.example(x=[float(value)] * 4))


@pytest.mark.parametrize("name", NAMED_LIKE_RECORDS)
@pytest.mark.parametrize("is_alone", [True, False])
def test_damage_is_found_in_each_file_that_is_named_like_records(tmp_path, name, is_alone):
    content = _example(1) + _example(2)[:-1]
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    if not is_alone:
        (tmp_path / "good.tfrecord").write_bytes(_example(0))
    assert problems(tmp_path) == [Containing(name, " 1")]
    if is_alone:
        assert open_data(str(tmp_path)).files == open_data(str(tmp_path / name)).files
    else:
        assert len(record_names(tmp_path)) == len(records_to_read(tmp_path)) == 2


@pytest.mark.parametrize("name", NAMED_OTHERWISE)
def test_files_that_are_not_checked_are_named(tmp_path, name, caplog):
    (tmp_path / "good.tfrecord").write_bytes(_example(0))
    (tmp_path / name).write_bytes(b"1,2\n")
    assert [each.file for each in check_folder(tmp_path, None, 1)[1]] == ["good.tfrecord"]
    assert shows(caplog.text, "records-not-read", count=1, files=name)
    assert len(open_data(str(tmp_path)).files) == 1
    caplog.clear()
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text("")
    check_folder(tmp_path, None, 1)
    assert shows(caplog.text, "records-not-read", count=7, files=Containing("0.txt"))
    assert caplog.text.rstrip().endswith(", ...")


def test_records_that_an_index_does_not_describe_are_named(folder, caplog):
    (folder / "validation-00000-of-00001").write_bytes(_example(0))
    (folder / "a.txt").write_text("")
    assert not problems(folder)
    name = "validation-00000-of-00001"
    assert shows(caplog.text, "records-not-read", count=1, files=name)
    caplog.clear()
    check_folder(folder, "train", 1)
    assert not shows(caplog.text, "records-not-read")


FOREIGN = ['{"metadata": {"total_size": 1}, "weight_map": {"w": "a.tfrecord"}}', "{}"]


@pytest.mark.parametrize("name", ["model.safetensors", "a.tfrecord"])
@pytest.mark.parametrize("content", FOREIGN)
def test_an_index_of_another_program_is_not_one_of_records(tmp_path, deploykit, name, content):
    (tmp_path / "a.tfrecord").write_bytes(_example(0))
    (tmp_path / f"{name}.index.json").write_text(content)
    for path in (tmp_path, tmp_path / "a.tfrecord"):
        for command in ("inspect", "verify"):
            outcome = deploykit("records", command, path, "--json")
            assert (outcome.status, outcome.document["records"]) == (0, 1)
        assert open_data(str(path)).counts == (1,)
    outcome = deploykit("records", "verify", tmp_path / f"{name}.index.json")
    assert outcome.status == 2
    assert shows(outcome.stderr, "not-records-index", format=1)


@pytest.mark.parametrize("content", ["[]", "7"])
def test_an_index_that_is_no_object_is_damaged(tmp_path, deploykit, content):
    (tmp_path / "a.tfrecord").write_bytes(_example(0))
    (tmp_path / "a.index.json").write_text(content)
    assert deploykit("records", "inspect", tmp_path).status == 2
    assert deploykit("records", "inspect", tmp_path / "a.tfrecord").status == 0


@pytest.mark.parametrize("content", ['{"format": 2}', '{"format": 1, ', '{"format": 1}', ""])
def test_a_damaged_index_matters_only_to_the_files_that_it_mentions(folder, tmp_path, content):
    (shard, *_) = load_index(folder).shards
    (folder / "b.index.json").write_text(content)
    (folder / "alone.tfrecord").write_bytes(_example(0))
    index, results = check_folder(folder / shard.file, None, 1)
    assert (index, results[0].problem) == (load_index(folder, "train"), "")
    assert check_folder(folder / "alone.tfrecord", None, 1)[0] is None
    assert open_data(str(folder / shard.file)).counts == (shard.records,)
    (folder / "a.index.json").write_text(f"{content[:-1]}{shard.file}")
    for function in (lambda path: check_folder(path, None, 1), lambda path: open_data(str(path))):
        with pytest.raises(GraphError, match=r"a\.index\.json"):
            function(folder / shard.file)
    with raises(GraphError, "same-names"):
        check_folder(folder, None, 1)


@pytest.mark.parametrize("is_escaped", [False, True])
def test_a_damaged_index_mentions_names_in_other_letters(tmp_path, is_escaped):
    (tmp_path / "größe.tfrecord").write_bytes(_example(0))
    mentioned = json.dumps("größe.tfrecord", ensure_ascii=is_escaped)
    (tmp_path / "a.index.json").write_text(f'{{"format": 1, "shards": [{{"file": {mentioned}}}')
    with pytest.raises(GraphError, match=r"a\.index\.json"):
        open_data(str(tmp_path / "größe.tfrecord"))


def test_the_name_of_an_index_is_that_of_its_file(folder):
    (folder / "train.index.json").rename(folder / "other.index.json")
    (shard, *_) = load_index(folder).shards
    assert open_data(str(folder / shard.file)).counts == (shard.records,)


def test_what_is_only_named_like_records_is_not_read_as_such(tmp_path, caplog):
    (tmp_path / "a.csv").write_text("1,2\n")
    for name in ("make_tfrecords", "notes-00000-of-00001"):
        (tmp_path / name).write_text("These are words, and more than 12 of them.")
    assert open_data(str(tmp_path)).kind == "csv"
    (tmp_path / "shard-00000-of-00001").write_bytes(_example(0))
    assert open_data(str(tmp_path)).counts == (1,)
    assert "TFRecords (3): a.csv, make_tfrecords, notes-00000-of-00001" in caplog.text


@pytest.mark.sampled
@pytest.mark.parametrize(("records", "shards"), [(1, 1), (1, 2), (1200, 1), (2, 2)])
def test_counts_have_the_number_of_their_nouns(tmp_path, deploykit, records, shards):
    for number in range(shards):
        content = b"".join(map(_example, range(0 if number else records)))
        (tmp_path / f"{number}.tfrecord").write_bytes(content)
    counts = [f"{records:,} record{'s' * (records > 1)}", f"{shards} file{'s' * (shards > 1)}"]
    assert f"{counts[0]} in {counts[1]}\n" in deploykit("records", "inspect", tmp_path).stdout
    counts[1] = counts[1].replace("file", "shard")
    verified = deploykit("records", "verify", tmp_path).stdout
    assert because("none-damaged", shards=counts[1], records=counts[0]) in verified


def test_inspect(folder, deploykit):
    outcome = deploykit("records", "inspect", folder)
    assert outcome.status == 0
    index = load_index(folder)
    for text in ("float32 [2]", "int64 []", "12 records 'train'", index.shards[0].file):
        assert text in outcome.stdout


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_is_no_folder_of_records(tmp_path, deploykit, command):
    for path, said in (
        (tmp_path / "gone", "No such file or directory"),
        (tmp_path, says("not-found", expected=Containing("TFRecord"))),
    ):
        outcome = deploykit("records", command, path)
        assert outcome.status == 4
        assert re.search(said, outcome.stderr)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"format": 1', '"format": 2', says("not-records-index", format=1)),
        ('"format": 1', "", says("json-expected")),
        ('"records": 12', '"records": 13', says("index-invalid")),
        ('"float32"', '"float31"', says("not-one-of", what=Containing("'x'"))),
        ('"file": "train', '"file": "../train', says("unexpected", what="shards[0].file")),
        ('"sha256": "', '"sha256": "x', says("unexpected", what="shards[0].sha256")),
        ('"shards"', '"shard"', says("key-missing", key="shards")),
    ],
)
def test_a_damaged_index(folder, deploykit, old, new, said):
    path = folder / "train.index.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    outcome = deploykit("records", "verify", folder)
    assert outcome.status == 2
    assert re.search(said, outcome.stderr)
    assert str(path) in outcome.stderr


def test_records_of_several_names(folder, deploykit, written):
    shutil.copy(folder / "train.index.json", folder / "other.index.json")
    with raises(GraphError, "same-names", names=["other", "train"]):
        load_index(folder)
    assert deploykit("records", "verify", folder, "--name", "train").status == 0
    with raises(FileError, "records-index-missing", name="gone.index.json"):
        load_index(folder, "gone")
