"""The file of ranges: what is written is read back, and a slip of an editor's hand is named."""

import json

import pytest

from deploykit.transforms.common.errors import FileError, GraphError, MismatchError
from deploykit.transforms.int8.ranges import Ranges, TensorRange, check_ranges, load_ranges
from tests.support import assert_golden, because, raises, refusal, says, shows

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
    with pytest.raises(
        GraphError, match=says("missing", name="y", hint=because("did-you-mean", names="y:1"))
    ):
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
        assert shows(caplog.text, "ranges-sha256-missing", file=path, model="net.pb")
        caplog.clear()


REPLACED = [
    ('"format": 1', '"format": 2'), ('"format": 1,', ""), ('"samples": 3', '"samples": 0'),
    ('"samples": 3', '"samples": true'), ('"ab12"', "7"), ('"samples": 3,', ""),
    ('"samples"', '"sample"'), ('"min": 0.0', '"min": 7'), ('"min": 0.0', '"min": NaN'),
    ('"min": 0.0', '"min": "0"'), ('"max": 6.0', '"max": 6.0, "scale": 2'),
    ('"max": 6.0', '"max": 6.0, "max": 5'), ('"max": 6.0,', ""), ("[0.25, 0.5]", "0.25"),
    ("[0.25, 0.5]", "[0.25, null]"), (TEXT, "[]"), (TEXT, "{"), (TEXT, "[" * 100_000),
]  # fmt: skip


@pytest.mark.golden("refusals/ranges")
def test_bad_files(tmp_path):
    path, said = tmp_path / "x.ranges.json", []
    for old, new in REPLACED:
        assert old in TEXT
        path.write_text(TEXT.replace(old, new))
        shown = f"{old if old != TEXT else 'all'} -> {new[:30]}\n{refusal(load_ranges, path)}"
        said.append(shown.replace(f"{tmp_path}/", ""))
    assert all('"source": "x.ranges.json' in each for each in said)
    assert_golden(*said)


def test_no_file(tmp_path):
    with pytest.raises(FileError, match="No such file"):
        load_ranges(tmp_path / "none.json")


def test_numbers_are_json(tmp_path):
    assert json.loads(FOUND.text())["tensors"]["x"]["channel_min"] == [-1.5, 0.0]
