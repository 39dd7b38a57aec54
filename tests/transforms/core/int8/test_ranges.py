"""The file of ranges: what is written is read back, and a slip of an editor's hand is named."""

import json
import math

import pytest

from deploykit.transforms.core.errors import FileError, GraphError, MismatchError
from deploykit.transforms.core.int8.ranges import Ranges, TensorRange, check_ranges, load_ranges
from tests.support import Containing, raises, says

FOUND = Ranges("ab12", 3, {"x": TensorRange(-1.5, 2.0, (0.25, 0.5), (-1.5, 0.0)),
                           "y:1": TensorRange(0.0, 6.0)})  # fmt: skip
TEXT = """{
  "format": 1,
  "model_sha256": "ab12",
  "samples": 3,
  "tensors": {
    "x": {
      "min": -1.5,
      "max": 2.0,
      "channel_mean": [0.25, 0.5],
      "channel_min": [-1.5, 0.0]
    },
    "y:1": {
      "min": 0.0,
      "max": 6.0,
      "channel_mean": [],
      "channel_min": []
    }
  }
}
"""


def test_the_text_is_read_back(tmp_path):
    assert FOUND.text() == TEXT
    path = tmp_path / "x.ranges.json"
    path.write_text(TEXT)
    assert load_ranges(path) == FOUND
    path.write_text(TEXT.replace("6.0", "5"))  # an edit
    assert load_ranges(path).of("y:1").max == 5
    path.write_text(TEXT.replace('"x"', '"x:0"'))
    assert load_ranges(path) == FOUND
    empty = Ranges("ab12", 1, {})
    path.write_text(empty.text())
    assert load_ranges(path) == empty


def test_the_maximum_of_each_channel_is_optional(tmp_path):
    path = tmp_path / "x.ranges.json"
    known = Ranges("", 1, {"x": TensorRange(-1.5, 2.0, (0.25, 0.5), (-1.5, 0.0), (1.0, 2.0))})
    assert '"channel_min": [-1.5, 0.0],\n      "channel_max": [1.0, 2.0]\n' in known.text()
    path.write_text(known.text())
    assert load_ranges(path) == known
    path.write_text(known.text().replace("[1.0, 2.0]", "[1.0]"))
    with raises(GraphError, "ranges-channels", tensor="x", channels=2, key="channel_max", count=1):
        load_ranges(path).of("x", 2)


def test_what_is_asked_of_ranges():
    assert FOUND.of("x:0", 2).min == -1.5
    with pytest.raises(GraphError, match=says("missing", name="y", hint=" (did you mean y:1?)")):
        FOUND.of("y")
    with raises(GraphError, "ranges-channels", tensor="x", channels=3, key="channel_mean", count=2):
        FOUND.of("x", 3)


def test_ranges_are_of_one_model(tmp_path, caplog):
    path = tmp_path / "x.ranges.json"
    path.write_text(TEXT)
    check_ranges(path, "net.pb", "ab12")
    with raises(MismatchError, "calibrated-on-other-model", model="net.pb", file=path):
        check_ranges(path, "net.pb", "ab13")
    assert not caplog.text
    for old, new in (('"model_sha256": "ab12",', ""), ('"ab12"', '""')):
        path.write_text(TEXT.replace(old, new))
        check_ranges(path, "net.pb", "ab13")
        assert caplog.text == Containing("SHA-256", "another one than")
        caplog.clear()


Y = "tensor 'y:1'"


def misfit(what, got, expected, source=""):
    sources = {"source": source} if source else {}
    return says("unexpected", what=what, got=got, expected=expected, **sources)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"format": 1', '"format": 2', says("format-unsupported", got=2, known=1)),
        ('"format": 1,', "", says("ranges-without-format")),
        ('"samples": 3', '"samples": 0', misfit("samples", 0, "int >= 1")),
        ('"samples": 3', '"samples": true', misfit("samples", True, "int")),
        ('"ab12"', "7", misfit("model_sha256", 7, "str")),
        ('"samples": 3,', "", says("key-missing", what="it", key="samples")),
        (
            '"samples"',
            '"sample"',
            says("ranges-unknown-key", what="the file", key="sample", hint=Containing("samples?")),
        ),
        ('"min": 0.0', '"min": 7', says("ranges-order", source=Y, low=7.0, high=6.0)),
        ('"min": 0.0', '"min": NaN', misfit("min", math.nan, Containing("float >= -3.4"), Y)),
        ('"min": 0.0', '"min": "0"', misfit("min", "0", "float", Y)),
        ('"max": 6.0', '"max": 6.0, "scale": 2', says("ranges-unknown-key", what=Y, key="scale")),
        ('"max": 6.0', '"max": 6.0, "max": 5', says("json-key-twice", key="max")),
        ('"max": 6.0,', "", says("key-missing", source=Y, what="it", key="max")),
        ("[0.25, 0.5]", "0.25", misfit("channel_mean", 0.25, "array", "tensor 'x'")),
        ("[0.25, 0.5]", "[0.25, null]", misfit("channel_mean[1]", None, "float", "tensor 'x'")),
        (TEXT, "[]", says("ranges-without-format")),
        (TEXT, "{", says("json-expected", what="file of ranges")),
        (TEXT, "[" * 100_000, says("json-expected", reason=Containing("too deep"))),
    ],
)
def test_bad_files(tmp_path, old, new, said):
    path = tmp_path / "x.ranges.json"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(GraphError, match=f"{path}: .*{said}") as error:
        load_ranges(path)
    assert "\n" not in str(error.value)


def test_no_file(tmp_path):
    with pytest.raises(FileError, match="No such file"):
        load_ranges(tmp_path / "none.json")


def test_numbers_are_json(tmp_path):
    assert json.loads(FOUND.text())["tensors"]["x"]["channel_min"] == [-1.5, 0.0]
