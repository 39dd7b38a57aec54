"""The net that rates two texts: its reviews, records, training step, and its table when frozen."""

import json

import numpy as np
import pytest

import deploykit
from deploykit.records.index import load_index
from deploykit.transforms.runtime.session import Session
from models.text_rating import build
from models.text_rating.net import training_graph
from models.text_rating.reviews import OPINIONS, reviews, vocabulary
from tests.models.training import losses
from tests.support import ops, tf


@pytest.fixture(scope="module")
def graph():
    return training_graph(0)


def test_reviews_depend_on_the_seed_and_differ_in_length():
    made = list(reviews(300, 7))
    assert made == list(reviews(300, 7))
    assert made != list(reviews(300, 8))
    assert len({len(text.split()) for _, text, _ in made}) > 20
    stars = np.array([stars for *_, stars in made])
    assert stars.min() >= 1
    assert stars.max() <= 5
    assert 0.5 < stars.std() < 1.5


def test_words_tell_the_stars():
    made = list(reviews(500, 7))
    praised = [stars for title, _, stars in made if title.split()[0] in ("perfect", "superb")]
    blamed = [stars for title, _, stars in made if title.split()[0] in ("useless", "awful")]
    assert np.mean(praised) > np.mean(blamed) + 1


def test_the_vocabulary_is_all_but_the_names_of_makers():
    words = vocabulary()
    assert words[0] == ""
    assert len(words) == len(set(words))
    assert set(OPINIONS) <= set(words)
    used = {w for title, text, _ in reviews(500, 7) for w in f"{title} {text}".split()}
    assert any(word not in words for word in used)
    assert all(len(word) == 6 for word in used - set(words))


def test_records_hold_the_reviews_and_the_index_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "REVIEWS", 5)
    build.write_records(tmp_path / "records")
    index = load_index(tmp_path / "records")
    assert (index.records, len(index.shards)) == (20, 4)
    spec = {"title": tf.io.FixedLenFeature([], tf.string),
            "review": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.float32)}  # fmt: skip
    assert set(index.features) == set(spec)
    read = [
        (each["title"].numpy().decode(), each["review"].numpy().decode(), each["label"].numpy())
        for content in tf.data.TFRecordDataset(index.files(tmp_path / "records"))
        for each in [tf.io.parse_single_example(content, spec)]
    ]
    made = [(title, text, np.float32(stars)) for title, text, stars in reviews(20, build.SEED)]
    assert read == made


def test_words_are_cut_and_padded():
    found = build.words(["a b c", "d", "e f g h"], 3)
    assert found.tolist() == [[b"a", b"b", b"c"], [b"d", b"", b""], [b"e", b"f", b"g"]]


@pytest.mark.sampled
def test_training_lowers_the_loss(graph):
    feeds = build.feeds(list(reviews(64, 3)))
    found = losses(graph, feeds, 30)
    assert found[-1] < found[0] / 2
    assert losses(graph, feeds, 30, op="init")[-1] > found[0] / 2


@pytest.mark.sampled
def test_frozen_it_keeps_its_table_and_its_answers(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "TRAINED_ON", 1280)
    monkeypatch.setattr(build, "TESTED_ON", 200)
    monkeypatch.setattr(build, "EPOCHS", 1)
    error, mean = build.train(graph, tmp_path / "model.ckpt")
    assert error < mean
    inputs = ["title", "review"]
    frozen = deploykit.freeze(tmp_path / "model.ckpt", inputs=inputs, outputs=["out"])
    found = ops(frozen)
    assert found["LookupTableFindV2"] == 2
    assert not {"VarHandleOp", "RestoreV2"} & set(found)
    feeds = build.feeds(list(reviews(200, build.SEED + 2)))
    stars = feeds.pop("label:0")
    session = Session(b"".join(frozen.serialized()), True)
    (out,) = session.run(["out"], {name[:-2]: each for name, each in feeds.items()})
    assert np.sqrt(np.mean(np.square(out - stars))) == pytest.approx(error, rel=1e-4)
    # Padding is no word: more of it changes nothing.
    more = np.full((200, 3), b"", object)
    wider = {name[:-2]: np.hstack([each, more]) for name, each in feeds.items()}
    np.testing.assert_allclose(session.run(["out"], wider)[0], out, rtol=1e-5)


def test_the_preprocessing_is_what_the_net_was_trained_with():
    inputs = json.loads(json.dumps(build.preprocessing()))["inputs"]
    assert inputs == {"title": {"split": " ", "length": 8}, "review": {"split": " ", "length": 48}}
