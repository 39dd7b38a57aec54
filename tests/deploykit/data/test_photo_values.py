"""Which values photos have: what is stated, what is kept, what the graph says, or a refusal."""

import json
import re
import shlex

import numpy as np
import pytest

import deploykit as api
from deploykit.data.preprocessing import preprocessing_of
from deploykit.data.samples import open_feeds, open_samples
from deploykit.importers.graph_files import load_graph, save_graph
from deploykit.importers.image_range import SIGNED, UNIT
from deploykit.importers.metadata_file import About, SignatureNames
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.conftest import deploykit as deploykit
from tests.support import Containing, because, building, raises, showing, tf

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 6, 3)).astype(np.uint8)


def graph(divisor=None, dtype="float32", **known):
    with building(["photo"], ["out"]) as made:
        x = tf.compat.v1.placeholder(dtype, [None, 8, 6, 3], name="photo")
        scaled = tf.cast(x, tf.float32) if divisor is None else x / np.float32(divisor)
        tf.reduce_mean(scaled, [1, 2], name="out")
    made.about = About(**known) if known else None
    return made


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "photos", PIXELS)


def written(folder, photos):
    folder.mkdir()
    for number, pixels in enumerate(photos):
        (folder / f"{number}.png").write_bytes(tf.io.encode_png(pixels).numpy())
    return str(folder)


def fed(folder, model, preprocess=None):
    """Return the values of the first photo, the range in words, and who says it."""
    found = open_samples(folder, model, preprocess)
    text = found.fed["photo"]
    range_, why = re.fullmatch(r"photos 6x8 -> 6x8 bilinear, (\S+) \((.*)\)", text).groups()
    return found.arrays["photo"][0], range_, why


def steps(**of_photo):
    return {"format": 1, "inputs": {"photo": of_photo}}


KEPT = {"preprocessing": steps(scale=1 / 127.5, mean=[1.0])}
BESIDE, STATED, ITSELF = (
    "from the model metadata file", "from --preprocess", because("divides-itself"),
)  # fmt: skip
CASES = {
    "stated": (graph(), "0..1", (1 / 255, 0), "0..1", STATED),
    "stated by file": (graph(), steps(scale=1), (1, 0), "0..255", STATED),
    "inline": (graph(), json.dumps(steps(scale=0.5)), (0.5, 0), "0..127.5", STATED),
    "for all": (graph(), {"format": 1, "range": "-1..1"}, (1 / 127.5, 1), "-1..1", STATED),
    "by name": (graph(), "photo=-1..1", (1 / 127.5, 1), "-1..1", STATED),
    "by tensor": (graph(), "photo:0=-1..1", (1 / 127.5, 1), "-1..1", STATED),
    "kept": (graph(**KEPT), None, (1 / 127.5, 1), "-1..1", BESIDE),
    "stated wins": (graph(**KEPT), "0..1", (1 / 255, 0), "0..1", STATED),
    "left open": (graph(**KEPT), steps(resize=[8, 6]), (1 / 127.5, 1), "-1..1", BESIDE),
    "the graph": (graph(255), None, (1, 0), "0..255", ITSELF),
    "the graph, size stated": (graph(255), steps(resize=[8, 6]), (1, 0), "0..255", ITSELF),
    "the graph before": (graph(photos={"photo": f"0..255 ({ITSELF})"}), None, (1, 0), "0..255",
                         ITSELF),
    "bytes": (graph(dtype="uint8"), None, (1, 0), "0..255", "uint8 input"),
    "whole numbers": (graph(dtype="int32"), None, (1, 0), "0..255", "int32 input"),
    "against the graph": (graph(255), "0..1", (1 / 255, 0), "0..1",
                          f"{STATED}, but the model expects 0..255"),
    "half bytes": (graph(dtype="int8"), "-128..127", (1, 128), "-128..127", STATED),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_who_says_it(folder, case):
    model, preprocess, (scale, mean), range_, why = CASES[case]
    values, *said = fed(folder, model, preprocess)
    assert said == [range_, why]
    np.testing.assert_allclose(values, PIXELS[0] * np.float32(scale) - mean, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "preprocess"),
    [
        (graph(), None),
        (graph(), steps(resize=[8, 6], channels=3)),
        (graph(), json.dumps(steps(crop=[8, 6], resize=[9, 7]))),
        (graph(preprocessing=steps(resize=[8, 6], crop=[4, 4])), steps(resize=[8, 6])),
        (graph(photos={"photo": ""}), None),
        (graph(1.02), None),
        (graph(dtype="float64"), None),
        (graph(dtype="int8"), None),
    ],
)
def test_nobody_says_it(folder, model, preprocess):
    """One sentence names the data and the input; what it says to give works, and does not agree."""
    for take in (open_samples, open_feeds):
        with pytest.raises(GraphError, match=rf"^{folder}: ") as error:
            take(folder, model, preprocess)
        text = str(error.value)
        assert "input 'photo'" in text and "\n" not in text  # noqa: PT018
    first, second = re.fullmatch(r".*; give (--preprocess .*) or (--preprocess .*)", text).groups()
    values = []
    for line in (first, second):
        option, given = shlex.split(line)
        assert option == "--preprocess"
        found = open_samples(folder, model, given)
        assert found.fed["photo"].endswith("(from --preprocess)")
        values.append(found.arrays["photo"].astype(float))
    assert np.abs(values[0] - values[1]).max() > 0.5


@pytest.mark.sampled
def test_what_was_stated_besides_stays(folder):
    """The lines of the message keep the steps that were given; so does a range what is kept."""
    wide = steps(resize=[16, 12], crop=[8, 6])
    with pytest.raises(GraphError) as error:
        open_samples(folder, graph(), wide)
    given = shlex.split(str(error.value).split(" give ")[1])[1]
    assert preprocessing_of(given).range == UNIT
    kept = open_samples(folder, graph(preprocessing=wide), "0..1")
    stated = open_samples(folder, graph(), given)
    np.testing.assert_array_equal(kept.arrays["photo"], stated.arrays["photo"])
    assert kept.fed["photo"] == (Containing("6x8 -> 12x16", "6x8", "0..1 (from --preprocess"))


def test_an_input_is_called_as_its_callers_do(folder, tmp_path):
    signatures = {"serving_default": SignatureNames({"picture": "photo"}, {"scores": "out"})}
    model = graph(signatures=signatures)
    for name in ("picture", "photo", "photo:0"):
        assert fed(folder, model, {"format": 1, "inputs": {name: {"scale": 1}}})[1] == "0..255"
        save_graph(model, tmp_path / "m.pb", force=True)
        api.freeze(
            tmp_path / "m.pb", preprocess=f"{name}=-1..1", output=tmp_path / "kept.pb", force=True
        )
        kept = load_graph(tmp_path / "kept.pb")
        assert list(kept.about.preprocessing["inputs"]) == ["photo"]
        assert fed(folder, kept)[1:] == ("-1..1", BESIDE)
    with raises(GraphError, "unknown-name", name="pictur", known=["photo"]):
        open_samples(folder, model, "pictur=0..1")
    with raises(GraphError, "given-twice", name="photo"):
        open_samples(folder, model, {"format": 1, "inputs": {"photo": {}, "picture": {}}})


def test_a_range_is_for_photos_alone(tmp_path):
    np.savez(tmp_path / "x.npz", photo=PIXELS.astype(np.float32))
    found = open_samples(str(tmp_path / "x.npz"), graph(), "0..1")
    np.testing.assert_array_equal(found.arrays["photo"], PIXELS)
    plain = open_samples(str(tmp_path / "x.npz"), graph())
    assert (
        found.fed
        == plain.fed
        == {"photo": showing("fed-as-is", what=Containing("float32 8x6x3", "x.npz"))}
    )


def test_ranges_that_cannot_be(folder):
    for given in ("1..0", "0..1,2..3", "=0..1"):
        with pytest.raises(Exception, match=re.escape(given)):
            open_samples(folder, graph(), given)
    with raises(GraphError, "unexpected", what="range", got="1..0"):
        preprocessing_of({"format": 1, "range": "1..0"})
    with raises(GraphError, "preprocess-not-json"):
        preprocessing_of("{")
    assert preprocessing_of({"format": 1, "range": "-1..1"}).range == SIGNED


def test_photos_of_several_sizes(tmp_path):
    sizes = written(tmp_path / "sizes", [PIXELS[0], PIXELS[1, :4], PIXELS[2, :, :3]])
    text = open_samples(sizes, graph(), "0..1").fed["photo"]
    assert text == Containing("6x8 bilinear", "0..1 (from --preprocess")


@pytest.mark.parametrize("gzip", [False, True])
def test_photos_in_records(folder, tmp_path, gzip):
    api.convert_records([folder], tmp_path / "records", compression="gzip" if gzip else "none")
    with raises(GraphError, "photo-range-unknown"):
        open_samples(str(tmp_path / "records"), graph())
    found = open_samples(str(tmp_path / "records"), graph(255))
    np.testing.assert_array_equal(np.sort(found.arrays["photo"].ravel()), np.sort(PIXELS.ravel()))
    assert found.fed["photo"] == f"photos 6x8 -> 6x8 bilinear, 0..255 ({ITSELF})"


def test_means_of_channels_in_words(folder):
    how = steps(mean=[100.0, 110.5, 120.0], std=[50.0])
    text = open_samples(folder, graph(), how).fed["photo"]
    assert text == (Containing("6x8 -> 6x8", "100 110.5 120", "50 (from --preprocess"))


COMMANDS = {
    "verify": ("verify", "M", "M", "--data", "D"),
    "optimize": ("optimize", "M", "-o", "O", "--data", "D"),
    "transform": ("transform", "--in_graph", "M", "--out_graph", "O", "--data", "D",
                  "--transforms", "sort_by_execution_order", "--verify"),
    "calibrate": ("calibrate", "M", "--data", "D", "-o", "O"),
    "benchmark": ("benchmark", "M", "--data", "D", "--input", "feed", "--seconds", "0.2"),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_say_it_or_refuse(deploykit, folder, tmp_path, command):
    out, model = tmp_path / "out", tmp_path / "m.pb"
    save_graph(graph(), model)
    places = {"M": model, "D": folder, "O": out}
    words = [places.get(word, word) for word in COMMANDS[command]]
    refused = deploykit(*words)
    assert refused.status == 2, refused.stderr
    assert "give --preprocess 0..1 or --preprocess -1..1\n" in refused.stderr
    assert not out.exists()
    for option in (("--preprocess", "-1..1"), ("--preprocess=-1..1",)):
        found = deploykit(*words, *option, "--json", *(["--force"] if out.exists() else []))
        assert found.status == 0, found.stderr
        text = "photos 6x8 -> 6x8 bilinear, -1..1 (from --preprocess)"
        assert found.document["fed"] == {"photo": text}
        assert found.stderr.count(f"deploykit: photo: {text}\n") == 1


def test_warming_up_with_photos(deploykit, folder, tmp_path):
    signatures = {"serving_default": SignatureNames({"picture": "photo"}, {"scores": "out"})}
    for divisor, text in ((None, None), (255, f"0..255 ({ITSELF})")):
        save_graph(graph(divisor, signatures=signatures), tmp_path / "m.pb", force=True)
        found = deploykit(
            "export", tmp_path / "m.pb", tmp_path / "base", "--warmup", folder, "--json"
        )
        assert found.status == (2 if text is None else 0), found.stderr
        if text is not None:
            assert found.document["fed"] == {"picture": f"photos 6x8 -> 6x8 bilinear, {text}"}
    kept = {"signatures": signatures, **KEPT}
    save_graph(graph(**kept), tmp_path / "m.pb", force=True)
    found = deploykit("export", tmp_path / "m.pb", tmp_path / "base", "--warmup", folder, "--json")
    assert found.status == 0, found.stderr
    assert found.document["fed"]["picture"].endswith(f"-1..1 ({BESIDE})")


def test_a_label_of_a_model_that_rescales_itself(deploykit, folder, tmp_path):
    save_graph(graph(255), tmp_path / "m.pb")
    labels = tmp_path / "labels.txt"
    labels.write_text("red\ngreen\nblue\n")
    run = ("label", f"{folder}/0.png", "--graph", tmp_path / "m.pb", "--labels", labels, "--json")
    expected = PIXELS[0].mean((0, 1)) / 255

    def scores(found):
        assert found.status == 0, found.stderr
        return [
            each["score"]
            for each in sorted(found.document["predictions"], key=lambda e: e["class"])
        ]

    own = deploykit(*run)
    np.testing.assert_allclose(scores(own), expected, rtol=1e-5)
    warnings = [line for line in own.stderr.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert warnings[0] == showing("range-beside-label-image", range="0..255", why=Containing("255"))
    by_hand = deploykit(*run, "--input_mean", "0", "--input_std", "255")
    np.testing.assert_allclose(scores(by_hand), expected / 255, rtol=1e-5)
    assert "warning" not in by_hand.stderr
    assert by_hand.document["fed"]["photo"].endswith("0..1 (from --input_mean and --input_std)")
