"""Large arrays in JSON: written in pieces, they read as they do at once."""

import json
import random

import numpy as np
import pytest

from deploykit.serving.rest import json_outputs
from deploykit.serving.rest.json_outputs import to_json


@pytest.mark.parametrize("seed", range(60))
def test_pieces_are_the_whole(monkeypatch, seed):
    rng = random.Random(seed)
    shape = [rng.choice([1, 1, 2, 3, 5, 17]) for _ in range(rng.randrange(1, 6))]
    dtype = rng.choice([np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_])
    array = (np.random.default_rng(seed).normal(size=shape) * 100).astype(dtype)
    if array.dtype.kind == "f":
        array.ravel()[:: rng.randrange(1, 9)] = rng.choice([np.nan, np.inf, -np.inf, 1.5])
    whole = to_json("x", array)
    monkeypatch.setattr(json_outputs, "_PIECE", rng.choice([1, 2, 3, 10, 100]))
    assert to_json("x", array) == whole
    assert to_json("x", array.T) == to_json("x", array.T.copy())
    np.testing.assert_array_equal(np.array(json.loads(whole)).astype(dtype), array)


def test_what_is_empty_or_a_number(monkeypatch):
    monkeypatch.setattr(json_outputs, "_PIECE", 1)
    assert to_json("x", np.zeros((3, 0))) == b"[[],[],[]]"
    assert to_json("x", np.float32(1.5)[...]) == b"1.5"


def test_no_piece_is_large():
    pieces = list(json_outputs._pieces(np.zeros((3, 5, 100_000), np.uint8)))
    assert max(map(len, pieces)) <= 2 * json_outputs._PIECE
    assert len(b"".join(pieces)) == 3 * (5 * (2 * 100_000 + 1) + 6) + 4
