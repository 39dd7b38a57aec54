"""Text models over tables, as a user runs them: a command, a file of texts, and a Parquet file."""

import csv
import json
import operator
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deploykit
from deploykit.batch_inference.tables.frames import Frame
from deploykit.data.word_pieces import WordPieces, read_vocabulary
from deploykit.storage.table_formats.table_files import table_files
from deploykit.transforms.common.errors import FileError, GraphError
from tests.benchmarks.nets import made_by
from tests.support import Containing, raises, tf

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "##s", "the", ",", "!"]
TEXTS = ['good "films",\nthe best', "bad film!", "", "the film", "goods"]


def as_saved(module, folder, **inputs):
    """Save a function with its inputs as a SavedModel."""
    tf.saved_model.save(module, str(folder), signatures=module.call.get_concrete_function(**inputs))
    return folder


def lookup_model(folder):
    """Save a model that looks words up in a table, as TextVectorization does, and counts them."""

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            initializer = tf.lookup.KeyValueTensorInitializer(["good", "bad"], [1.0, -1.0])
            self.table = tf.lookup.StaticHashTable(initializer, 0.0)

        @tf.function(autograph=False)
        def call(self, text):
            words = tf.strings.split(tf.strings.regex_replace(text, "[^a-z]+", " "))
            scores = self.table.lookup(words.to_tensor(""))
            return {"score": tf.reduce_sum(scores, 1)}

    return as_saved(Model(), folder, text=tf.TensorSpec((None,), tf.string, "text"))


def encoder(folder):
    """Save a model of ids and mask, which returns the sum of the ids that the mask keeps."""

    class Model(tf.Module):
        @tf.function(autograph=False)
        def call(self, input_ids, attention_mask):
            return {"sum": tf.reduce_sum(input_ids * attention_mask, 1)}

    spec = tf.TensorSpec((None, None), tf.int32)
    as_saved(Model(), folder, input_ids=spec, attention_mask=spec)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    return folder


def score(text):
    return float(text.count("good ") - text.count("bad "))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return lookup_model(folder / "lookup"), encoder(folder / "encoder")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "review"])
        writer.writerows((f"r{n}", text) for n, text in enumerate(TEXTS))
    return path


def of(inferred):
    """Return the rows of Parquet results."""
    folder = os.path.dirname(inferred.path)
    return pa.concat_tables(
        [pq.read_table(os.path.join(folder, shard["file"])) for shard in inferred.index["shards"]]
    )


@pytest.mark.sampled
def test_a_model_of_texts(models, reviews, tmp_path):
    found = of(deploykit.infer(models[0], reviews, tmp_path / "out", keep_columns=["id"]))
    assert found.column_names == ["file", "row", "id", "score"]
    assert found["id"].to_pylist() == [f"r{n}" for n in range(5)]
    assert found["row"].to_pylist() == list(range(5))
    assert found["score"].to_pylist() == [1.0, -1.0, 0.0, 0.0, 0.0]


def test_a_model_of_ids_takes_texts_with_the_vocabulary_beside_it(models, reviews, tmp_path):
    found = of(deploykit.infer(models[1], reviews, tmp_path / "out", keep_columns=["id"]))
    expected = [2 + 4 + 1 + 6 + 7 + 1 + 9 + 8 + 1 + 3, 2 + 5 + 6 + 10 + 3, 2 + 3, 2 + 8 + 6 + 3,
                2 + 4 + 7 + 3]  # fmt: skip
    assert found["sum"].to_pylist() == expected
    shutil.copytree(models[1], tmp_path / "bare")
    (tmp_path / "bare" / "vocab.txt").unlink()
    with raises(GraphError, "column-missing", input=Containing()):
        deploykit.infer(tmp_path / "bare", reviews, tmp_path / "other")
    again = deploykit.infer(tmp_path / "bare", reviews, tmp_path / "other",
                            vocabulary=models[1] / "vocab.txt", keep_columns=["id"])  # fmt: skip
    assert of(again)["sum"].to_pylist() == expected


@pytest.mark.sampled
@pytest.mark.parametrize("format_", ["csv", "jsonl", "tfrecord", "npz"])
def test_every_format_has_the_copied_columns(models, reviews, tmp_path, format_):
    deploykit.infer(models[0], reviews, tmp_path, keep_columns=["id"], format=format_, processes=1)
    (path,) = tmp_path.glob(f"*.{format_}")
    ids, scores = [f"r{n}" for n in range(5)], [1.0, -1.0, 0.0, 0.0, 0.0]
    if format_ == "csv":
        rows = list(csv.DictReader(path.read_text().splitlines()))
        assert [row["id"] for row in rows] == ids
        assert [float(row["score"]) for row in rows] == scores
    elif format_ == "jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert rows[1] == {"file": "reviews.csv", "row": 1, "id": "r1", "score": -1.0}
    elif format_ == "npz":
        with np.load(path) as arrays:
            assert arrays["id"].tolist() == [text.encode() for text in ids]
    else:
        assert deploykit.inspect_records(tmp_path).features["id"].dtype == "string"


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars"])
def test_a_table_in_memory_gives_one_of_its_kind(models, kind):
    table = pa.table({"id": [3, 1, 4, 1, 5], "review": TEXTS})
    data = table
    if kind == "pandas":
        data = table.to_pandas().set_index(np.array([10, 20, 30, 40, 50]))
    elif kind == "polars":
        data = pytest.importorskip("polars").from_arrow(table)
    found = deploykit.infer(models[0], data, keep_columns=["id"], processes=1)
    assert type(found) is type(data)
    as_list = operator.methodcaller("to_pylist" if kind == "arrow" else "to_list")
    assert as_list(found["score"]) == [1.0, -1.0, 0.0, 0.0, 0.0]
    assert as_list(found["id"]) == [3, 1, 4, 1, 5]
    if kind == "pandas":
        assert found.index.tolist() == [10, 20, 30, 40, 50]


def test_predictions_of_parts_with_other_columns(tmp_path):
    shaped = pa.table({"file": ["a"], "row": [0], "x": [[1]], "x_shape": [[1]]})
    plain = pa.table({"file": ["a"], "row": [1], "x": [[2]]})
    empty = pa.table({"file": ["a"], "row": [2], "x": ["of another type"]}).slice(1)
    files = [tmp_path / f"{n}.parquet" for n in range(3)]
    for file, table in zip(files, (empty, shaped, plain), strict=True):
        pq.write_table(table, file)
    frame = Frame.of(plain)
    assert frame.predictions(files, ()).to_pylist() == [
        {"row": 0, "x": [1], "x_shape": [1]}, {"row": 1, "x": [2], "x_shape": None}
    ]  # fmt: skip
    assert frame.predictions(files[:1], ()).num_rows == 0


@pytest.mark.sampled
def test_a_dataset_of_ray_gives_one(models):
    import ray

    ray.init("local", num_cpus=1, include_dashboard=False)  # not that of another test
    try:
        data = ray.data.from_arrow(pa.table({"review": TEXTS}))
        found = deploykit.infer(models[0], data, processes=1)
        assert isinstance(found, ray.data.Dataset)
        assert [row["score"] for row in found.take_all()] == [1.0, -1.0, 0.0, 0.0, 0.0]
    finally:
        ray.shutdown()


def test_what_is_no_table_is_refused(models, tmp_path):
    with raises(GraphError, "unexpected", got="list"):
        deploykit.infer(models[0], TEXTS, tmp_path)
    with raises(GraphError, "option-needs"):
        deploykit.infer(models[0], "reviews.csv")
    with raises(GraphError, "unexpected", what="OUT", got="s3://bucket/out"):
        deploykit.infer(models[0], "reviews.csv", "s3://bucket/out")


@pytest.mark.sampled
def test_a_run_does_not_resume_with_another_text_column(models, tmp_path):
    pq.write_table(pa.table({"a": ["good"], "b": ["bad"]}), tmp_path / "t.parquet")
    how = {"processes": 1, "vocabulary": models[1] / "vocab.txt"}
    for column in "ab":
        again = deploykit.infer(models[1], tmp_path / "t.parquet", tmp_path / column,
                                columns={"input_ids": column}, **how)  # fmt: skip
    assert of(again)["sum"].to_pylist() == [2 + 5 + 3]
    with raises(FileError, "results-exist", what=[Containing('"a"', '"b"')]):
        deploykit.infer(models[1], tmp_path / "t.parquet", tmp_path / "a",
                        columns={"input_ids": "b"}, **how)  # fmt: skip


@pytest.mark.sampled
def test_a_kept_column_has_a_name_of_its_own(models, tmp_path):
    names = ["score_shape", "top_scores", "score"]
    table = pa.table({"text": ["good"], "x": [[1]], "y_shape": [7]} | {key: [7] for key in names})
    pq.write_table(table, tmp_path / "t.parquet")

    class Model(tf.Module):
        @tf.function(autograph=False)
        def call(self, x):
            return {"y": x + 1}

    lists = as_saved(Model(), tmp_path / "lists", x=tf.TensorSpec((None, None), tf.int64))
    for model, name, top in ((models[0], "top_scores", 1), (lists, "y_shape", None)):
        with raises(GraphError, "kept-column-name", name=name):
            deploykit.infer(model, tmp_path / "t.parquet", tmp_path / "out", processes=1,
                            keep_columns=[name], top=top)  # fmt: skip
    found = of(deploykit.infer(models[0], tmp_path / "t.parquet", tmp_path / "out", processes=1,
                               keep_columns=names, columns={"text": "text"}))  # fmt: skip
    assert found.drop_columns(["file", "row"]).to_pylist() == [
        dict.fromkeys(names, 7) | {"score_2": 1.0}
    ]


def test_files_of_a_folder_and_of_a_pattern(models, tmp_path):
    (tmp_path / "data" / "deep").mkdir(parents=True)
    for name, text in (("b.csv", "bad film"), ("a.csv", "good film"), ("deep/c.csv", "film")):
        (tmp_path / "data" / name).write_text(f"text\n{text}\n")
    (tmp_path / "data" / "_SUCCESS").write_text("")
    found = of(deploykit.infer(models[0], tmp_path / "data", tmp_path / "all", processes=1))
    assert found["file"].to_pylist() == ["a.csv", "b.csv", "deep/c.csv"]
    assert found["score"].to_pylist() == [1.0, -1.0, 0.0]
    pattern = f"{tmp_path}/data/*.csv"
    found = of(deploykit.infer(models[0], pattern, tmp_path / "some", processes=1))
    assert found["file"].to_pylist() == ["a.csv", "b.csv"]
    remote = [file.path for file in table_files(f"file://{tmp_path}/data/[ab].csv")]
    assert remote == [f"file://{tmp_path}/data/{name}.csv" for name in "ab"]
    found = of(deploykit.infer(models[0], f"file://{tmp_path}/data", tmp_path / "u", processes=1))
    assert found["file"].to_pylist() == ["a.csv", "b.csv", "deep/c.csv"]


@pytest.mark.sampled
def test_former_names_of_the_scheduler(models, reviews, tmp_path):
    with pytest.warns(DeprecationWarning, match="scheduler"):
        found = deploykit.infer(
            models[0], reviews, tmp_path, engine="processes", processes=1, keep_columns=["id"]
        )
    assert found.run.scheduler == "local"


@pytest.mark.slow
def test_ray_is_not_imported_without_its_scheduler(models, reviews, tmp_path):
    code = (
        "import sys, deploykit\n"
        f"deploykit.infer({str(models[0])!r}, {str(reviews)!r}, {str(tmp_path)!r}, processes=1,"
        " keep_columns=['id'])\n"
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ROWS = 100_000


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "many.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "review"])
        writer.writerows((n, f"{TEXTS[n % 5]} {n}") for n in range(ROWS))
    return path


@pytest.mark.sampled
@pytest.mark.parametrize("number", [0, 1])
def test_many_rows_by_one_command(models, many, tmp_path, number):
    command = [sys.executable, "-m", "deploykit", "infer", models[number], many, tmp_path / "out",
               "--keep-columns", "id", "--batch", "256"]  # fmt: skip
    subprocess.run(list(map(str, command)), check=True)
    table = pq.read_table(sorted((tmp_path / "out").glob("*.parquet")))
    assert table["id"].to_pylist() == list(map(str, range(ROWS)))
    if number == 0:
        assert table["score"].to_pylist() == [score(f"{TEXTS[n % 5]} {n}") for n in range(ROWS)]


@pytest.mark.slow
def test_a_run_that_is_killed_resumes_with_the_same_bytes(models, many, tmp_path):
    def run(out):
        command = [sys.executable, "-m", "deploykit", "infer", models[0], many, out,
                   "--keep-columns", "id", "--processes", "1"]  # fmt: skip
        return subprocess.Popen(list(map(str, command)))

    assert run(tmp_path / "whole").wait() == 0
    killed = run(tmp_path / "killed")
    while len(list((tmp_path / "killed").glob("*-of-*.parquet"))) < 3:
        assert killed.poll() is None
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    assert not (tmp_path / "killed" / "many.index.json").exists()
    assert run(tmp_path / "killed").wait() == 0
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "killed" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.sampled
def test_a_sentence_encoder_embeds_as_its_graph_does(tmp_path):
    """MiniLM with its real weights and vocabulary, padded to the 128 tokens that it takes."""
    built = made_by("minilm/build.py")
    if not (built / "vocab.txt").exists():
        pytest.skip("models/minilm/built is of an older version: remove it")
    texts = ["A man is eating food.", "A man eats something.", "The girl carries a baby.", ""]
    data = pa.table({"id": range(4), "text": texts})
    how = {"outputs": ["embedding"], "keep_columns": ["id"]}
    found = deploykit.infer(built / "bert", data, **how)
    vectors = np.array(found["embedding"].to_pylist())
    pieces = WordPieces(read_vocabulary(built / "vocab.txt"))
    ids, mask = pieces.arrays([text.encode() for text in texts], 128, True)
    serve = tf.saved_model.load(str(built / "bert")).signatures["serving_default"]
    expected = serve(
        input_ids=tf.constant(ids, tf.int32), attention_mask=tf.constant(mask, tf.int32)
    )
    np.testing.assert_allclose(vectors, expected["embedding"].numpy(), atol=1e-4)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert unit[0] @ unit[1] > unit[0] @ unit[2]
