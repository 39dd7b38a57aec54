"""Splits texts into the pieces of a vocabulary, as BERT's tokenizer does.

Source: Wu et al., "Google's Neural Machine Translation System", 2016; the rules for words are those
of BERT. A vocabulary without pieces that start with ## is one of whole words.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import text_lines

NAME = "vocab.txt"
"""The name of a vocabulary next to a model."""
_LONGEST = 100  # characters of a word; longer ones are unknown
_CACHED = 1 << 16  # words whose pieces are kept
_ASCII_WORDS = re.compile(r"[0-9A-Za-z]+|[^\s0-9A-Za-z]")
_CJK = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))


def vocabulary_beside(model: str | os.PathLike[str]) -> Path | None:
    """Return the file vocab.txt of a model: in its folder, its assets, or next to it."""
    path = Path(model)
    folders = [path, path / "assets", path / "assets.extra"] if path.is_dir() else []
    places = [folder / NAME for folder in (*folders, path.parent)]
    return next((place for place in places if place.is_file()), None)


def read_vocabulary(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the pieces of a vocabulary, one a line. GraphError: it has none for unknown words."""
    pieces = tuple(line.rstrip("\r\n") for line in text_lines(path, "vocabulary"))
    if not {"[UNK]", "<unk>"} & set(pieces):
        raise GraphError("vocabulary-without-unknown", source=path)
    return pieces


class WordPieces:
    """A tokenizer. It lower-cases texts and removes accents, unless a piece has an upper case."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Create a tokenizer whose ids are the positions of the pieces."""
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self._unknown = self._ids["[UNK]" if "[UNK]" in self._ids else "<unk>"]
        self._pad = self._ids.get("[PAD]", 0)
        self._ends = [self._ids[end] for end in ("[CLS]", "[SEP]") if end in self._ids]
        self._is_cased = any(
            piece != piece.lower() for piece in vocabulary if piece[:1] not in "[<"
        )
        self._known: dict[str, list[int]] = {}

    def ids(self, text: str, length: int) -> list[int]:
        """Return at most `length` ids, between [CLS] and [SEP] if the vocabulary has them."""
        found: list[int] = []
        for word in _words(text if self._is_cased else _plain(text)):
            if len(found) >= length:
                break
            found += self._pieces(word)
        if len(self._ends) < 2:
            return found[:length]
        return [self._ends[0], *found[: length - 2], self._ends[1]]

    def arrays(self, texts: Iterable[bytes], length: int, is_fixed: bool) -> tuple[Array, Array]:
        """Return the ids and the mask of texts, int64 [texts, tokens].

        `tokens` is `length` if that is fixed, else at most that: the longest of these texts.
        """
        rows = [self.ids(text.decode(errors="replace"), length) for text in texts]
        width = length if is_fixed else max(1, *map(len, rows)) if rows else 1
        ids = np.full((len(rows), width), self._pad, np.int64)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
        lengths = np.array(list(map(len, rows)), np.int64)
        return ids, (np.arange(width) < lengths[:, None]).astype(np.int64)

    def _pieces(self, word: str) -> list[int]:
        known = self._known.get(word)
        if known is None:
            known = self._split(word)
            if len(self._known) < _CACHED:
                self._known[word] = known
        return known

    def _split(self, word: str) -> list[int]:
        """Return the ids of a word: the longest known piece first, or the unknown one."""
        found: list[int] = []
        start = 0
        while start < len(word) <= _LONGEST:
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if prefix + word[start:e] in self._ids), start)
            if end == start:
                break
            found.append(self._ids[prefix + word[start:end]])
            start = end
        return found if start == len(word) else [self._unknown]


def _plain(text: str) -> str:
    """Return a text in lower case without accents."""
    text = text.lower()
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFD", text)
    return "".join(c for c in parts if unicodedata.category(c) != "Mn")


def _words(text: str) -> Iterator[str]:
    """Yield words, and each mark of punctuation and each Chinese character alone."""
    if text.isascii() and text.isprintable():
        yield from _ASCII_WORDS.findall(text)
        return
    word = ""
    for character in text:
        if character.isspace() or _is_control(character):
            is_alone, is_kept = character.isspace(), False
        else:
            is_alone = is_kept = _is_punctuation(character) or _is_chinese(character)
        if is_alone:
            if word:
                yield word
            word = ""
            if is_kept:
                yield character
        elif not _is_control(character):
            word += character
    if word:
        yield word


def _is_control(character: str) -> bool:
    is_gap = character in "\t\n\r"
    return not is_gap and (character in "\0\ufffd" or unicodedata.category(character)[0] == "C")


def _is_punctuation(character: str) -> bool:
    if character.isascii():
        return not character.isalnum() and character.isprintable()
    return unicodedata.category(character)[0] == "P"


def _is_chinese(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _CJK)
