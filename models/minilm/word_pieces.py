"""Text as BERT's word pieces: lower case, without accents, the longest known piece first.

Source: Wu et al., "Google's Neural Machine Translation System", 2016; the rules for words are those
of BERT's uncased vocabularies.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_LONGEST = 100  # characters of a word; longer ones are unknown


@dataclass(frozen=True)
class WordPieces:
    """A tokenizer: ids by piece, where pieces that continue a word start with ##."""

    vocabulary: Mapping[str, int]

    def ids(self, text: str, tokens: int) -> list[int]:
        """Return at most `tokens` ids, [CLS] and [SEP] among them."""
        found = [piece for word in _words(text) for piece in self._pieces(word)]
        ends = self.vocabulary["[CLS]"], self.vocabulary["[SEP]"]
        return [ends[0], *found[: tokens - 2], ends[1]]

    def arrays(self, texts: Sequence[str], tokens: int) -> dict[str, np.ndarray]:
        """Return `input_ids` and `attention_mask` of texts, int32 [texts, tokens]."""
        rows = [self.ids(text, tokens) for text in texts]
        ids = np.full((len(rows), tokens), self.vocabulary["[PAD]"], np.int32)
        mask = np.zeros((len(rows), tokens), np.int32)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def _pieces(self, word: str) -> list[int]:
        found: list[int] = []
        start = 0
        while start < len(word) <= _LONGEST:
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if prefix + word[start:e] in self.vocabulary), start)
            if end == start:
                break
            found.append(self.vocabulary[prefix + word[start:end]])
            start = end
        return found if start == len(word) else [self.vocabulary["[UNK]"]]


def _words(text: str) -> Iterator[str]:
    """Yield runs of letters and digits, and each mark of punctuation alone."""
    plain = unicodedata.normalize("NFD", text.lower())
    plain = "".join(c for c in plain if unicodedata.category(c) != "Mn")
    yield from re.findall(r"[^\W_]+|[^\s\w]|_", plain)
