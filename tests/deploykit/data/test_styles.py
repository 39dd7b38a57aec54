"""Every style gives one epoch exactly, and all give the same batches."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deploykit.data.data import open_data
from deploykit.data.pipeline import STYLES
from deploykit.data.preprocessing import Steps
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.data import made_up
from tests.deploykit.data.made_up import COUNT, TEXTS, epoch, ids, pipeline
from tests.support import raises

IMAGE = Steps(resize=(8, 10), crop=(6, 7), scale=1 / 255, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.7))
PIXELS = Steps(resize=(3, 3), crop=(2, 3), scale=0.5, mean=(3.0,), std=(7.0,))


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    """One pipeline of each kind of data."""
    folder = tmp_path_factory.mktemp("data")
    records = made_up.write_records(folder / "records")
    texts = made_up.write_texts(folder / "texts")
    return {
        "csv": pipeline(made_up.write_csv(folder / "csv")),
        "csv with header": pipeline(made_up.write_csv(folder / "header", header=True)),
        "arrays": pipeline(made_up.write_arrays(folder)),
        "records": pipeline(records, {"x": Steps(), "pixels": PIXELS, "id": Steps()}),
        "gzip": pipeline(made_up.write_records(folder / "gzip", "GZIP")),
        "texts": pipeline(
            texts,
            {"text": Steps(split="", length=3), "tokens": Steps(length=4), "codes": Steps(),
             "id": Steps()},
        ),
        "split": pipeline(texts, {"text": Steps(split=" "), "id": Steps()}),
        "whole texts": pipeline(texts, {"text": Steps(), "id": Steps()}),
        "images": pipeline(
            made_up.write_images(folder / "images"),
            {"image": IMAGE, "id": Steps(feature="label")},
        ),
        "images by corners": pipeline(
            made_up.write_images(folder / "corners"),
            {"image": replace(IMAGE, corners=True), "id": Steps(feature="label")},
        ),
    }  # fmt: skip


KINDS = ["csv", "csv with header", "arrays", "records", "gzip", "texts", "split", "whole texts",
         "images", "images by corners"]  # fmt: skip


@pytest.fixture(scope="module")
def epochs(every):
    """The batches of each style over each kind of data."""
    return {(kind, style): epoch(style, each) for kind, each in every.items() for style in STYLES}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", STYLES)
def test_one_epoch_exactly_in_order(epochs, every, kind, style):
    count = 8 if kind.startswith("images") else COUNT
    found = epochs[kind, style]
    assert ids(found) == list(range(count))
    full, rest = divmod(count, every[kind].batch)
    assert [len(batch["id"]) for batch in found] == [4] * full + [rest] * (rest > 0)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", ["queue", "tfdata"])
def test_equal_batches_in_all_styles(epochs, kind, style):
    for ours, fed in zip(epochs[kind, style], epochs[kind, "feed"], strict=True):
        assert ours.keys() == fed.keys()
        for name in fed:
            assert ours[name].shape == fed[name].shape, name
            assert ours[name].dtype == fed[name].dtype, name
            if fed[name].dtype.kind == "f":
                np.testing.assert_allclose(ours[name], fed[name], rtol=2e-6, atol=1e-6)
            else:
                assert np.array_equal(ours[name], fed[name]), name


def test_values_are_those_that_were_written(epochs):
    rows = made_up.numbers()
    for kind in ("csv", "arrays", "gzip", "records"):
        found = np.concatenate([batch["x"] for batch in epochs[kind, "feed"]])
        assert np.array_equal(found, rows), kind


def test_texts_are_cut_and_padded(epochs):
    first = epochs["texts", "feed"][0]
    assert first["text"].tolist() == [
        [b"to", b"be", b"or"], [b"be", b"", b""], [b"", b"", b""], [b"the", b"quick", b"brown"],
    ]  # fmt: skip
    assert first["codes"].tolist()[:2] == [[2, 2, 2, 3, 0], [2, 0, 0, 0, 0]]
    assert [len(text.split()[:4]) for text in TEXTS[:4]] == [
        sum(token != b"" for token in row) for row in first["tokens"].tolist()
    ]


def test_a_wrong_step_is_seen(every, epochs):
    """The comparison above can fail: another mean in one style is another batch."""
    wrong = replace(IMAGE, mean=(0.4, 0.5, 0.61))
    steps = every["images"].steps | {
        "image": replace(every["images"].steps["image"], mean=wrong.mean)
    }
    found = epoch("tfdata", replace(every["images"], steps=steps))
    assert not np.allclose(found[0]["image"], epochs["images", "feed"][0]["image"], rtol=2e-6)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", ["csv", "records", "arrays", "images", "texts"])
def test_threads_and_shuffling_lose_nothing(every, kind, style):
    count = 8 if kind == "images" else COUNT
    found = ids(epoch(style, replace(every[kind], threads=3, shuffle=5, epochs=2)))
    assert sorted(found) == sorted([*range(count)] * 2)
    assert found != [*range(count)] * 2


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
def test_a_lost_file_is_seen(every, style):
    data = replace(every["csv"].data, files=every["csv"].data.files[:-1])
    found = ids(epoch(style, replace(every["csv"], data=data)))
    assert sorted(found) != list(range(COUNT))


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", ["csv", "arrays", "images"])
def test_whole_batches(every, kind, style):
    found = epoch(style, replace(every[kind], whole=True, batch=5))
    assert [len(batch["id"]) for batch in found] == [5] * ((8 if kind == "images" else COUNT) // 5)


@pytest.mark.parametrize("cache", ["memory", "file"])
@pytest.mark.parametrize("kind", ["csv", "images"])
def test_a_cache_reads_files_once(every, kind, cache, tmp_path):
    path = str(tmp_path / "cache") if cache == "file" else cache
    found = ids(epoch("tfdata", replace(every[kind], cache=path, epochs=3)))
    count = 8 if kind == "images" else COUNT
    assert found == [*range(count)] * 3
    assert cache == "memory" or list(tmp_path.iterdir())


def test_buckets_hold_texts_of_like_length(every):
    piped = replace(every["whole texts"], steps=every["split"].steps, buckets=(2, 4))
    found = epoch("tfdata", piped)
    assert sorted(ids(found)) == list(range(COUNT))
    lengths = [[sum(t != b"" for t in row) for row in batch["text"].tolist()] for batch in found]
    bucket = [{(n >= 2) + (n >= 4) for n in each} for each in lengths]
    assert any(len(each) > 1 for each in lengths)
    mixed = [each for each in bucket if len(each) > 1]
    assert not mixed


def test_a_private_thread_pool(every):
    found = ids(epoch("tfdata", replace(every["records"], private_threads=2)))
    assert found == list(range(COUNT))


def test_a_compressed_csv_file_is_read_by_tf_data_and_unpacked_for_queues(tmp_path):
    plain = made_up.write_csv(tmp_path / "plain", header=True)
    (tmp_path / "packed").mkdir()
    for file in plain.files:
        with gzip.open(tmp_path / "packed" / f"{Path(file).name}.gz", "wb") as packed:
            packed.write(Path(file).read_bytes())
    data = open_data(str(tmp_path / "packed"), plain.columns)
    expected = epoch("tfdata", pipeline(plain))
    for batch, other in zip(epoch("tfdata", pipeline(data)), expected, strict=True):
        np.testing.assert_array_equal(batch["x"], other["x"])
    with raises(GraphError, "queues-packed-csv"):
        epoch("queue", pipeline(data))
    (tmp_path / "packed" / "3.csv").write_text("1,2\n")
    with raises(GraphError, "table-formats-several"):
        open_data(str(tmp_path / "packed"), plain.columns)
