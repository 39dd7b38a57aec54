"""A served answer is held against the graph's own, whatever it is made of."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from deploykit.serving.client.endpoint import CallError
from deploykit.serving.protocol.signatures import CLASSES, DEFAULT, SCORES, TENSORS
from deploykit.shipping.stages import serving
from deploykit.shipping.stages.serving import _asked, _difference, _photo, _photos_in, _shown
from deploykit.transforms.ir.graph import Graph
from tests.deploykit.storage.tiny_images import JPEG_XL

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
def test_the_same_answer_does_not_differ(dtype):
    answer = (100 * RANDOM.random((3, 4))).astype(dtype)
    assert _difference(answer, answer.copy()) == 0


@pytest.mark.parametrize("by", [1e-4, 0.01, 1.0])
def test_a_difference_is_relative_to_the_largest_value(by):
    answer = RANDOM.normal(size=(3, 4))
    answer[1, 2] = 50.0
    wrong = answer.copy()
    wrong[0, 0] += 50 * by
    assert _difference(answer, wrong) == pytest.approx(by)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (np.zeros((1, 3)), np.zeros((1, 4))),
        (np.array([b"a"], object), np.array([b"b"], object)),
        (np.array([True]), np.array([False])),
    ],
)
def test_what_cannot_be_subtracted_differs_altogether(expected, got):
    assert math.isinf(_difference(expected, got))
    assert _difference(expected, expected) == 0


def test_nothing_but_zeros_and_gaps_in_the_same_places_agree():
    assert _difference(np.zeros(3), np.zeros(3)) == 0
    gaps = np.array([np.nan, 1.0])
    assert _difference(gaps, gaps) == 0


def test_of_a_long_answer_a_few_values_are_kept():
    values = {"y": {"dtype": "float32", "shape": [2, 30], "values": [[*range(30)]] * 2}}
    assert _shown(values)["y"]["values"] == [*range(10)]


def test_the_first_photo_of_a_folder_is_found(tmp_path):
    assert not [*_photos_in(str(tmp_path))]
    files = {"b/2.PNG": b"\x89PNG", "b/1.txt": b"", "c/0.jpg": b"\xff\xd8\xff", "b/.x.jpg": b"",
             "b/0": JPEG_XL}  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    wanted = [tmp_path / "b" / "2.PNG", tmp_path / "c" / "0.jpg"]
    assert [*_photos_in(str(tmp_path))] == wanted, "servers do not decode JPEG XL"
    assert not [*_photos_in({"x": 1})]


@pytest.mark.parametrize("damaged", [0, 1, 3])
@pytest.mark.parametrize("status", ["INVALID_ARGUMENT", "UNAVAILABLE"])
def test_an_image_that_the_server_refuses_is_skipped(tmp_path, monkeypatch, damaged, status):
    def answered(address, name, inputs):
        if int(Path(inputs[0]).stem) < damaged:
            raise CallError(status=status)
        return SimpleNamespace(classes=None)

    monkeypatch.setattr(serving, "predict", answered)
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(b"\x89PNG")
    how = SimpleNamespace(evaluation=None, calibration=str(tmp_path))
    exported = {"signatures": {TENSORS: {}}}
    shipment = SimpleNamespace(how=how, name="m", document=lambda stage: exported)
    if damaged and (damaged == 3 or status == "UNAVAILABLE"):
        with pytest.raises(CallError):
            _photo(shipment, "address")
    else:
        found = _photo(shipment, "address")
        assert found == {"file": str(tmp_path / f"{damaged}.png"), "classes": None}


@pytest.mark.parametrize(
    ("served", "agrees"),
    [([0.6, 0.3], True), ([0.6, 0.3, 0.1], True), ([0.3, 0.6], False), ([0.1, 0.3], False)],
)
def test_top_scores_are_the_highest_of_the_model_first(monkeypatch, served, agrees):
    """A signature that returns class names returns only the highest scores, in this order."""
    outputs = {SCORES: np.array([served], np.float32), CLASSES: np.array([[b"a"] * len(served)])}
    answer = SimpleNamespace(outputs=outputs, document=lambda: {"values": {}})
    monkeypatch.setattr(serving, "predict", lambda *given, **named: answer)
    monkeypatch.setattr(serving, "call", lambda *given: [np.array([[0.3, 0.1, 0.6]], np.float32)])
    callee = SimpleNamespace(
        graph=Graph(), signature=DEFAULT, inputs={}, outputs={SCORES: SimpleNamespace(name="y")}
    )
    exported = {"signatures": {DEFAULT: {}}}
    shipment = SimpleNamespace(name="m", document=lambda stage: exported, in_8_bits=False)
    assert _asked(shipment, callee, "address", {})["agrees"] == agrees


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_on_one_side_alone_differs(value):
    zeros, odd = np.zeros(3, np.float32), np.array([0, value, 0], np.float32)
    assert _difference(zeros, odd) == _difference(odd, zeros) == math.inf
    assert _difference(odd, odd) == 0
    assert _difference(odd, -odd) == (0 if np.isnan(value) else math.inf)
