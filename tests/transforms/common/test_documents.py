"""Values as plain data and back: what the types say is what is written and read."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import pytest
from msgspec import Meta

from deploykit.transforms.common.documents import (
    Flat,
    Hidden,
    IfSet,
    OrNull,
    Written,
    converted,
    document,
    head,
    written,
)
from deploykit.transforms.common.errors import GraphError
from tests.support import Containing, says


@dataclass(frozen=True)
class Inner:
    low: Annotated[float, Written(digits=1)] = 1.25


@dataclass(frozen=True)
class Outer:
    HEAD: ClassVar = head("test")

    name: Annotated[str, Written("label")]
    graph: Hidden[object] = None
    note: IfSet[str] = ""
    why: OrNull[str] = ""
    inner: Flat[Inner] = field(default_factory=Inner)
    count: Annotated[int, Written(by=str)] = 3

    @property
    @written(digits=2)
    def ratio(self) -> float:
        return 1 / 3

    @property
    def unmarked(self) -> float:
        return 0.0


def test_marks_say_what_is_written():
    assert document(Outer("a", graph=object())) == {
        "format": 1, "kind": "test", "label": "a", "why": None, "low": 1.2, "count": "3",
        "ratio": 0.33,
    }  # fmt: skip
    assert document(Outer("a", note="b"))["note"] == "b"


def test_defaults_may_be_omitted():
    @dataclass
    class Sparse:
        OMIT_DEFAULTS: ClassVar = True
        a: int = 1
        b: int = 2

    assert document(Sparse(b=3)) == {"b": 3}


def test_what_json_cannot_hold():
    given = {"a": (math.nan, math.inf, -0.5), "b": Path("x"), "c": np.float32(0.5), "d": {2, 1}}
    found = {"a": [None, None, -0.5], "b": "x", "c": 0.5, "d": [1, 2]}
    assert document({**given, 3: np.arange(2)}) == {**found, "3": [0, 1]}
    with pytest.raises(TypeError, match="cannot be written"):
        document(object())


@dataclass(frozen=True)
class Read:
    counts: tuple[Annotated[int, Meta(ge=1)], ...]
    name: Annotated[str, Meta(pattern=r"\A(one|two)\Z")] = "one"


def test_what_is_read_fits_its_types():
    assert converted({"counts": [1, 2], "more": 3}, Read) == Read((1, 2))


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"counts": [1, 0]}, says("unexpected", expected="int >= 1", got=0, what="counts[1]")),
        (
            {"counts": [], "name": "x"},
            says("unexpected", expected=Containing("one of one"), got="x", what="name"),
        ),
        ({"counts": "x"}, says("unexpected", expected="array", got="x", what="counts")),
        ({}, says("key-missing", key="counts", what="it")),
        (None, says("unexpected", expected="object", what="it")),
    ],
)
def test_what_does_not_fit_is_named(plain, said):
    with pytest.raises(GraphError, match=said):
        converted(plain, Read)
