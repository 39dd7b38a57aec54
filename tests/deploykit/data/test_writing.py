"""`deploykit input write`: the file gives deploykit's own batches, on TensorFlow alone."""

import ast
import functools
import gzip
import hashlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from deploykit.data.data import open_data
from deploykit.data.pipeline import Pipeline
from deploykit.data.pipeline_code import written
from deploykit.data.preprocessing import preprocessing_from
from deploykit.data.tfdata import dataset
from deploykit.records.examples import Feature
from deploykit.records.index import Index, Shard, index_path, shard_name
from tests import pairwise
from tests.deploykit.data.made_up import batches_eagerly, steps_for
from tests.deploykit.storage.tiny_images import WEBP
from tests.support import building, tf

TEXTS = ["a good lamp", "bad", "we had another lamp before it broke", "fine", "it is ugly"]
STATISTICS = {"mean": [0.5, 0.4, 0.3], "std": [0.25, 0.2, 0.3]}


def example(values):
    kinds = {"f": "float_list", "i": "int64_list", "U": "bytes_list"}
    features = {}
    for name, value in values.items():
        if isinstance(value, bytes):
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
            continue
        array = np.atleast_1d(value)
        listed = [v.encode() for v in array] if array.dtype.kind == "U" else array.ravel().tolist()
        feature = tf.train.Feature()
        getattr(feature, kinds[array.dtype.kind]).value.extend(listed)
        features[name] = feature
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write_shards(folder, features, records, count=3, compression=""):
    folder.mkdir()
    shards = []
    for number in range(count):
        path = folder / shard_name("made", number, count)
        own = records[number::count]
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for each in own:
                writer.write(example(each))
        shards.append(Shard(path.name, len(own), path.stat().st_size, "0" * 64))
    index = Index("made", features, tuple(shards), compression)
    index_path(folder, "made").write_text(index.text())
    return folder


def jpeg(seed, height=20, width=24):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return tf.io.encode_jpeg(pixels).numpy()


def csv_folder(tmp_path):
    folder = tmp_path / "csv"
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(3):
        rows = random.uniform(-1, 1, (7, 5)).round(6)
        lines = [",".join([*map(str, row), str(n % 2)]) for n, row in enumerate(rows)]
        (folder / f"part {number}.csv").write_text("\n".join(lines) + "\n")
    return folder, {}


def packed_csv_folder(tmp_path):
    folder, declared = csv_folder(tmp_path)
    for file in list(folder.iterdir()):
        with gzip.open(f"{file}.gz", "wb") as packed:
            packed.write(file.read_bytes())
        file.unlink()
    return folder, declared


def csv_file_with_header(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["height,width,kind", "1.5,2,0", "2.5,3,1", "0,1,2"]))
    return path, {"columns": {"size": [0, 2], "kind": 2}, "inputs": {
        "size": {"scale": 0.5, "mean": [1.0]}, "kind": {"dtype": "int64"}}}  # fmt: skip


def dense_records(tmp_path):
    features = {
        "x": Feature("float32", (4,)),
        "pixels": Feature("uint8", (3, 2, 1), "raw"),
        "label": Feature("int64"),
    }
    random = np.random.default_rng(0)
    records = [
        {"x": random.uniform(size=4).astype(np.float32), "label": n,
         "pixels": random.integers(0, 256, (3, 2, 1), np.uint8).tobytes()}
        for n in range(11)
    ]  # fmt: skip
    folder = write_shards(tmp_path / "dense", features, records, compression="GZIP")
    inputs = {"x": {}, "pixels": {"scale": 1 / 255}, "label": {}}
    return folder, {"inputs": inputs}


def records_without_index(tmp_path):
    folder, declared = text_records(tmp_path)
    for number, file in enumerate(sorted(folder.glob("*.tfrecord"))):
        file.rename(folder / f"set.tfrecord-{number}")
    next(folder.glob("*.index.json")).unlink()
    return folder, declared


def one_record_file(tmp_path):
    folder, declared = records_without_index(tmp_path)
    return folder / "set.tfrecord-0", declared


def text_records(tmp_path):
    features = {"text": Feature("string"), "tokens": Feature("string", (None,)),
                "label": Feature("float32")}  # fmt: skip
    records = [
        {"text": text, "tokens": text.split(), "label": np.float32(n)}
        for n, text in enumerate(TEXTS)
    ]
    inputs = {"text": {"split": " ", "length": 4}, "tokens": {}, "label": {}}
    return write_shards(tmp_path / "text", features, records, 2), {"inputs": inputs}


def image_records(tmp_path):
    features = {"image": Feature("string", (), "image"), "label": Feature("int64")}
    records = [{"image": jpeg(n), "label": n} for n in range(5)]
    inputs = {"image": {"resize": [12, 12], "corners": True, "crop": [8, 10], "scale": 1 / 255,
                        **STATISTICS},
              "label": {}}  # fmt: skip
    return write_shards(tmp_path / "jpegs", features, records), {"inputs": inputs}


def class_folders(tmp_path, names=("cat", 'dog "big"')):
    folder = tmp_path / "classes"
    for n, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            (folder / name / f"{number}.jpg").write_bytes(jpeg(10 * n + number))
        (folder / name / "notes.txt").write_text("no image")
        (folder / name / "deep" / "er").mkdir(parents=True)
        (folder / name / "deep" / "er" / "x").write_bytes(jpeg(50 + n))
        (folder / name / "deep-").write_bytes(jpeg(60 + n))
        (folder / name / ".hidden.jpg").write_bytes(b"")
    return folder, {"inputs": {"image": {"resize": [8, 8]}, "label": {"dtype": "int64"}}}


def numbered_class_folders(tmp_path):
    return class_folders(tmp_path, ("10", "9"))


def listed_images(tmp_path):
    folder = tmp_path / "listed"
    folder.mkdir()
    for name in ("b", "a", "c"):
        (folder / f"{name}.jpg").write_bytes(jpeg(ord(name)))
    (folder / "deep").mkdir()
    (folder / "deep" / "d.jfif").write_bytes(jpeg(4))
    (folder / "labels.csv").write_text(
        'FILE,LABEL\na.jpg,cat\n"c.jpg",dog\n\nb.jpg,cat\ndeep/d.jfif,dog\n'
    )
    return folder, {"inputs": {"image": {"resize": [8, 8], "dtype": "uint8"}, "label": {}}}


def images_listed_by_other_names(tmp_path):
    folder, declared = listed_images(tmp_path)
    text = "./a.jpg,cat\nc.jpg , dog\r\n\nx/../b.jpg,cat\ndeep//d.jfif,dog\ngone.jpg,bird\n"
    (folder / "labels.csv").write_text(text, "utf-8-sig", newline="")
    return folder, declared


def images_listed_below_a_header(tmp_path):
    folder, declared = images_listed_by_other_names(tmp_path)
    text = (folder / "labels.csv").read_text("utf-8-sig")
    (folder / "labels.csv").write_text(f"\nfile,label,more\n{text}", "utf-8-sig")
    return folder, declared


def images_without_labels(tmp_path):
    folder = tmp_path / "plain"
    folder.mkdir()
    for name in ("b", "a", "c"):
        (folder / f"{name}.JPG").write_bytes(jpeg(ord(name)))
    (folder / "deep").mkdir()
    (folder / "deep" / "d").write_bytes(WEBP["lossy"])
    return folder, {"inputs": {"image": {"resize": [8, 8]}}}


def arrays(tmp_path):
    path = tmp_path / "arrays.npz"
    random = np.random.default_rng(0)
    np.savez(path, images=random.integers(0, 256, (7, 4, 4, 3), np.uint8), names=TEXTS + TEXTS[:2])
    return path, {"inputs": {"images": {"scale": 1 / 255, **STATISTICS}, "names": {}}}


SOURCES = (
    csv_folder, packed_csv_folder, csv_file_with_header, records_without_index, one_record_file,
    dense_records, text_records, image_records,
    class_folders,
    numbered_class_folders, listed_images, images_without_labels, arrays,
    images_listed_by_other_names, images_listed_below_a_header,
)  # fmt: skip


def pipeline_of(source, tmp_path, batch=2):
    path, declared = source(tmp_path)
    declared = preprocessing_from({"format": 1, "range": "0..1", **declared})
    data = open_data(str(path), declared.columns)
    return Pipeline(data, steps_for(data, None, declared), batch)


def assert_same(found, wanted):
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert set(ours) == set(theirs)
        for name, array in theirs.items():
            assert ours[name].dtype == array.dtype, name
            if array.dtype.kind == "f":  # a division may be a product with the reciprocal
                np.testing.assert_allclose(ours[name], array, rtol=1e-6, atol=1e-6)
            else:
                np.testing.assert_array_equal(ours[name], array)


def batches_of(text):
    """Run the text of a pipeline here, and return its batches."""
    module: dict = {"__name__": "pipeline"}
    exec(compile(text, "pipeline.py", "exec"), module)
    return [
        {name: np.asarray(each) for name, each in batch.items()}
        for batch in module["dataset"]().as_numpy_iterator()
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.__name__)
def test_the_written_file_gives_the_batches_of_deploykit(source, tmp_path):
    pipeline = pipeline_of(source, tmp_path)
    wanted = list(batches_eagerly(pipeline))
    assert sum(len(next(iter(batch.values()))) for batch in wanted) > 2
    assert_same(batches_of(written(pipeline)), wanted)


@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.__name__)
def test_the_written_file_is_tidy_and_imports_tensorflow_alone(source, tmp_path):
    text = written(pipeline_of(source, tmp_path)).replace(str(tmp_path), "data")
    path = tmp_path / "pipeline.py"  # a long path would have to be wrapped, and none is known
    path.write_text(text)
    for act in (
        ["check", "--select", "E,F,I,W,UP,B,SIM", "--ignore", "E501"],
        ["format", "--check", "--diff"],
    ):
        command = [sys.executable, "-m", "ruff", *act, "--isolated", "--no-cache", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{text}"
    imported = {
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    imported -= set(sys.stdlib_module_names)
    assert imported == ({"tensorflow", "numpy"} if source is arrays else {"tensorflow"})


@pytest.mark.parametrize("source", [csv_folder, text_records, class_folders])
def test_smaller_batches_are_left_out_where_the_model_takes_none(source, tmp_path):
    pipeline = replace(pipeline_of(source, tmp_path, batch=4), whole=True)
    wanted = list(batches_eagerly(pipeline))
    assert {len(batch["label"]) for batch in wanted} == {4}
    assert_same(batches_of(written(pipeline)), wanted)


NAMES = ("metadata", "_output_shapes", "output_shapes")  # of what is the same, or said elsewhere
OPTIONS = {
    "plain": {},
    "threads": {"threads": 3},
    "shuffled": {"threads": 2, "shuffle": 0},
    "cached": {"cache": "memory"},
    "cached in a file": {"cache": "FILE", "shuffle": 0},
    "threads of its own": {"threads": 2, "private_threads": 2},
    "whole batches": {"whole": True, "batch": 3, "threads": 2},
    "in buckets": {"buckets": (3, 6), "batch": 4},
    "all at once": {"threads": 2, "shuffle": 0, "cache": "memory", "private_threads": 3,
                    "whole": True},
}  # fmt: skip


def graph_of(dataset):
    """Return what a dataset is made of: every op with its attributes and inputs, without names."""
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef.FromString(
        tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset),
            external_state_policy=1,
            strip_device_assignment=True,
        ).numpy()
    )
    functions = {each.signature.name: each for each in graph.library.function}

    @functools.cache
    def inside(name):
        function = functions[name]
        places = {each.name: f"argument {n}" for n, each in enumerate(function.signature.input_arg)}
        made = maker({node.name: node for node in function.node_def}, places)
        checks = [made(node.name) for node in function.node_def if node.op == "Assert"]
        return [*checks, *(made(function.ret[each.name]) for each in function.signature.output_arg)]

    for node in graph.node:
        held = node.attr["value"].tensor.resource_handle_val
        if held:  # the state of a shuffle or a cache, numbered as datasets are made
            held[0].name, held[0].hash_code = "", 0

    def attributes(node):
        return [
            (name, inside(value.func.name) if value.HasField("func") else str(value))
            for name, value in sorted(node.attr.items())
            if name not in NAMES
        ]

    def maker(nodes, places):
        @functools.cache
        def made(output):
            name, _, port = output.partition(":")
            if name in places:
                return places[name]
            node = nodes[name]
            inputs = [made(each) for each in node.input if not each.startswith("^")]
            content = [node.op, attributes(node), inputs]
            return f"{node.op} {hashlib.sha256(str(content).encode()).hexdigest()[:12]} {port}"

        return made

    nodes = {node.name: node for node in graph.node}
    made = maker(nodes, {})
    (result,) = (node for node in graph.node if node.op == "_Retval")
    return [*(node.op for node in graph.node if "Dataset" in node.op), made(result.input[0])]


def written_dataset(text):
    module: dict = {"__name__": "pipeline"}
    exec(compile(text, "pipeline.py", "exec"), module)
    return module["dataset"]()


@pytest.mark.sampled
@pytest.mark.parametrize("options", pairwise.drawn("options", list(OPTIONS), 2, quick=2))
@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.__name__)
def test_the_written_file_builds_the_very_dataset_that_is_measured(source, options, tmp_path):
    """Op by op, with all attributes and constants, also within functions."""
    more = dict(OPTIONS[options])
    if "buckets" in more and source is not text_records:
        return
    pipeline = pipeline_of(source, tmp_path)
    if more.get("cache") == "FILE":
        more["cache"] = str(tmp_path / "cache")
    pipeline = replace(pipeline, **more)
    assert graph_of(written_dataset(written(pipeline))) == graph_of(dataset(pipeline))


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("prefetch(8)", "prefetch(7)"),
        ("THREADS == 1", "THREADS == 2"),
        ("shuffle(3, 0)", "shuffle(3, 1)"),
        ("min(batch, 16)", "min(batch, 1)"),
        ("[12, 12]", "[12, 13]"),
        ("/ [0.25", "/ [0.26"),
        ("THREADS = 2", "THREADS = 3"),
        (".cache()", ".cache().cache()"),
        (", drop_remainder=True", ""),
    ],
)
def test_any_other_dataset_is_seen(was, becomes, tmp_path):
    pipeline = pipeline_of(image_records, tmp_path)
    pipeline = replace(pipeline, threads=2, shuffle=0, cache="memory", whole=True)
    text = written(pipeline).replace("shuffle(5, 0)", "shuffle(3, 0)")
    wanted = graph_of(written_dataset(text))
    assert was in text
    assert graph_of(written_dataset(text.replace(was, becomes))) != wanted


def test_another_scale_is_seen(tmp_path):
    pipeline = pipeline_of(dense_records, tmp_path)
    broken = written(pipeline).replace("(1 / 255)", "(1 / 256)")
    with pytest.raises(AssertionError):
        assert_same(batches_of(broken), list(batches_eagerly(pipeline)))


@pytest.mark.sampled
@pytest.mark.parametrize("source", [csv_folder, text_records, class_folders, arrays])
def test_shuffled_it_gives_every_record_once(source, tmp_path):
    text = written(pipeline_of(source, tmp_path, batch=1))
    in_order = batches_of(text)
    shuffled = batches_of(text.replace("shuffle: bool = False", "shuffle: bool = True"))

    def key(batch):
        return str([(name, each.ravel().tolist()) for name, each in sorted(batch.items())])

    assert sorted(map(key, shuffled)) == sorted(map(key, in_order))
    assert [*map(key, shuffled)] != [*map(key, in_order)]


def test_a_ragged_line_stops_it(tmp_path):
    pipeline = pipeline_of(csv_folder, tmp_path)
    file = tmp_path / "csv" / "part 1.csv"
    file.write_text(file.read_text().replace(",", "", 1))
    with pytest.raises(tf.errors.InvalidArgumentError):
        batches_of(written(pipeline))


@pytest.mark.slow
def test_the_command_prints_a_program_that_runs(deploykit, tmp_path):
    folder, _ = csv_folder(tmp_path)
    found = deploykit("input", "write", folder, "--batch", "4")
    assert found.status == 0, found.stderr
    path = tmp_path / "pipeline.py"
    path.write_text(found.stdout)
    done = subprocess.run(
        [sys.executable, "-I", str(path)], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.stdout == "x: float32 (4, 5)\nlabel: float32 (4,)\n", done.stderr
    again = deploykit("input", "write", folder, "--batch", "4", "-o", tmp_path / "again.py")
    assert (again.status, (tmp_path / "again.py").read_text()) == (0, found.stdout)
    refused = deploykit("input", "write", folder, "-o", tmp_path / "again.py")
    assert refused.status == 4
    assert "--force" in refused.stderr


def test_images_take_the_size_of_the_model(deploykit, tmp_path):
    from deploykit.importers.graph_files import save_graph

    with building(("images",), ("out",)) as graph:
        import tensorflow.compat.v1 as tf

        tf.reduce_mean(tf.placeholder(tf.float32, [None, 16, 12, 3], name="images"), name="out")
    save_graph(graph, tmp_path / "net.pb")
    folder, _ = class_folders(tmp_path)
    found = deploykit(
        "input", "write", folder, "--model", tmp_path / "net.pb", "--json", "--preprocess", "0..1"
    )
    assert found.status == 0, found.stderr
    (batch,) = batches_of(found.document["text"])
    assert set(batch) == {"images"}
    assert batch["images"].shape == (10, 16, 12, 3)
    assert 0.2 < batch["images"].mean() < 0.8
    refused = deploykit("input", "write", folder)
    assert refused.status == 2
    assert "resize" in refused.stderr
