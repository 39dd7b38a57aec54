"""Texts become the ids that BERT's tokenizer gives."""

import pytest

from deploykit.data.word_pieces import WordPieces, read_vocabulary, vocabulary_beside
from deploykit.transforms.common.errors import GraphError
from tests.support import raises

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "film", "##s", "un", "##good", "!", "中", "e"]


def pieces(text, length=16, vocabulary=PIECES):
    return [vocabulary[number] for number in WordPieces(vocabulary).ids(text, length)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Good FILMS!", ["good", "film", "##s", "!"]),
        ("ungood  good\tfilm", ["un", "##good", "good", "film"]),
        ("goodx", ["[UNK]"]),
        ("good中film", ["good", "中", "film"]),
        ("é É", ["e", "e"]),
        ("go\u00adod", ["good"]),
        ("good\u200bfilm", ["[UNK]"]),
        ("g" * 101, ["[UNK]"]),
        ("", []),
    ],
)
def test_words_and_pieces(text, expected):
    assert pieces(text) == ["[CLS]", *expected, "[SEP]"]


def test_a_long_text_keeps_its_end():
    assert pieces("good " * 9, 5) == ["[CLS]", "good", "good", "good", "[SEP]"]


def test_a_vocabulary_with_an_upper_case_is_cased():
    assert pieces("Good good", vocabulary=[*PIECES, "Good"]) == ["[CLS]", "Good", "good", "[SEP]"]


def test_a_vocabulary_of_words_adds_nothing():
    assert pieces("a b c", vocabulary=["", "<unk>", "a", "b"]) == ["a", "b", "<unk>"]


@pytest.mark.parametrize(("is_fixed", "width"), [(True, 8), (False, 4)])
def test_a_batch_is_padded_to_the_longest_or_to_the_length(is_fixed, width):
    ids, mask = WordPieces(PIECES).arrays([b"good film", b"", b"\xff"], 8, is_fixed)
    assert ids.shape == mask.shape == (3, width)
    assert mask.sum(1).tolist() == [4, 2, 3 if ids[2, 1] == 1 else 2]
    assert ids[1, :3].tolist() == [2, 3, 0]


def test_a_vocabulary_is_found_and_checked(tmp_path):
    model = tmp_path / "models" / "net"
    model.mkdir(parents=True)
    assert vocabulary_beside(model) is None
    (tmp_path / "models" / "vocab.txt").write_text("[UNK]\na\n")
    assert read_vocabulary(vocabulary_beside(model)) == ("[UNK]", "a")
    (model / "assets").mkdir()
    (model / "assets" / "vocab.txt").write_text("a\n")
    with raises(GraphError, "vocabulary-without-unknown"):
        read_vocabulary(vocabulary_beside(model))
