"""A part of a JSON document that anybody may have written, and where it lies in it."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LONGEST = 600
"""So many characters of a text are shown."""
_DEEP, _FEW = 3, 20  # levels of a value that are shown, and elements of each
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
# What is not shown by a letter: controls, halves of characters, and what turns the line around.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


@dataclass(frozen=True)
class DocumentPart:
    """A value of a document; what is not there, or of another type than expected, is as null."""

    value: Any
    place: str = ""
    """Its path, such as `stages[3].document.layers`; empty: the whole document."""
    file: str = ""
    """The document's file, or what it is called."""

    def __getitem__(self, key: str | int) -> "DocumentPart":
        inner: Any = None
        if isinstance(key, str):
            if isinstance(self.value, dict):
                inner = self.value.get(key)
            plain = _PLAIN_KEY.fullmatch(key)
            step = f".{key}" if plain else f"[{_quoted(key)}]"
            step = step if self.place or not plain else key
        else:
            if isinstance(self.value, list | tuple) and key < len(self.value):
                inner = self.value[key]
            step = f"[{key}]"
        return DocumentPart(inner, f"{self.place}{step}", self.file)

    def __bool__(self) -> bool:
        return self.value not in (None, "", [], {}, ())

    def __iter__(self) -> Iterator["DocumentPart"]:
        """Yield the elements of a list."""
        for count in range(len(self)):
            yield self[count]

    def __len__(self) -> int:
        return len(self.value) if isinstance(self.value, list | tuple) else 0

    def named(self) -> Iterator[tuple[str, "DocumentPart"]]:
        """Yield the names and values of an object."""
        for key in self.value if isinstance(self.value, dict) else ():
            yield shown(str(key)), self[str(key)]

    @property
    def number(self) -> float | None:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            return None
        try:
            found = float(self.value)
        except OverflowError:
            return None
        return found if math.isfinite(found) else None

    @property
    def text(self) -> str:
        """A text as it can be shown; of anything else, nothing."""
        return shown(self.value) if isinstance(self.value, str) else ""

    @property
    def words(self) -> str:
        """A value of any type as it can be shown: a setting, a shape, a list of names."""
        return self._words(_DEEP)

    def _words(self, levels: int) -> str:
        few = range(_FEW)
        if isinstance(self.value, dict | list | tuple) and not levels:
            return "…"
        if isinstance(self.value, dict):
            named = zip(few, self.named(), strict=False)
            return shown(", ".join(f"{n} {each._words(levels - 1)}" for _, (n, each) in named))
        if isinstance(self.value, list | tuple):
            inner = [each._words(levels - 1) for _, each in zip(few, self, strict=False)]
            return shown(", ".join(inner + ["…"] * (len(self) > _FEW)))
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        if self.number is not None:
            return f"{self.number:,.0f}" if isinstance(self.value, int) else f"{self.number:.6g}"
        return self.text

    @property
    def holds(self) -> bool:
        """Whether it is true."""
        return self.value is True


def shown(text: str, longest: int = LONGEST) -> str:
    """Return a text with what cannot be seen made visible; of a long one the start and the end."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[-longest // 2 :]}"
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _quoted(key: str) -> str:
    return '"' + shown(key).replace("\\", "\\\\").replace('"', '\\"') + '"'
