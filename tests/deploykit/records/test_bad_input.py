"""Data that are wrong: one sentence with file and line, the right exit status, nothing written."""

import contextlib
import gzip
import pickle
import re

import numpy as np
import pytest

from deploykit.records.cifar import read_pickle
from deploykit.storage.image_files import image_problem
from deploykit.transforms.common.errors import Error, GraphError, RefusedError
from tests.deploykit.records.conftest import cifar_batch, idx_bytes, jpeg, png
from tests.deploykit.storage.tiny_images import WEBP
from tests.support import (
    Containing,
    assert_golden,
    because,
    coded,
    raises,
    says,
    showing,
    shows,
    tf,
)

FILES = {
    "ragged": ("a.csv", b"1,2,0\n1,2,3,0\n"),
    "short": ("a.csv", b"1,2,0\n\n1,0\n"),
    "no number": ("a.csv", b"1,2,0\n1,zwei,0\n"),
    "missing number": ("a.csv", b"1,2,0\n1,,0\n"),
    "missing label": ("a.csv", b"1,2,0\n1,2,\n"),
    "missing label first": ("a.csv", b"1,2,\n1,2,1\n"),
    "missing class": ("a.csv", b"1,2,a\n1,2,\n"),
    "label": ("a.csv", b"1,2,0\n1,2,cat\n"),
    "half label": ("a.csv", b"1,2,0\n1,2,0.5\n"),
    "nan label": ("a.csv", b"1,2,0\n1,2,nan\n"),
    "quotes": ("a.csv", b'1,2,0\n1,"2,0\n'),
    "latin": ("a.csv", b"1,2,0\n1,\xe9,0\n"),
    "header alone": ("a.csv", b"a,b,label\n"),
    "empty": ("a.csv", b""),
    "blank": ("a.csv", b"\n\n"),
    "binary": ("a.csv", b"1,2\0,3\n"),
    "text": ("a.txt", b"one\t1\ntwo\n"),
    "text label": ("a.txt", b"one\t1\ntwo\t\n"),
    "idx": ("a.idx", idx_bytes(np.zeros((2, 3)))[:-1]),
    "idx more": ("a.idx", idx_bytes(np.zeros((2, 3))) + b"a"),
    "idx gzip": ("a.gz", idx_bytes(np.zeros((2, 3)), True)[:-4]),
    "idx header": ("a.idx", b"\0\0\x08\x03\0\0"),
    "idx bomb": ("a.idx", b"\0\0\x08\x03" + b"\xff" * 12),
    "idx gzip bomb": ("a.gz", gzip.compress(b"\0\0\x08\x03" + b"\x7f" * 12)),
    "npz": ("a.npz", b"PK\x03\x04rest"),
}


@pytest.mark.golden("refusals/records")
def test_files(deploykit, tmp_path):
    said, out = [], tmp_path / "out"
    for case, (name, content) in FILES.items():
        path = tmp_path / name
        path.write_bytes(content)
        alone, together = (deploykit("records", path, out, "--processes", n) for n in (1, 2))
        assert (alone.printed, together.printed) == ("", "")
        assert alone.stderr == together.stderr
        assert len(refused(alone.stderr)) == 1, alone.stderr
        assert name in alone.stderr
        assert not out.exists() or not list(out.iterdir())
        said.append(f"{case}\n{alone.status} {coded(alone.error)}".replace(f"{tmp_path}/", ""))
    assert_golden(*said)


def refused(stderr: str) -> list[str]:
    """Return what is said, without what the header of a CSV file is, and what TensorFlow says."""
    said = [line for line in stderr.splitlines() if line.startswith("deploykit: ")]
    return [line for line in said if not re.search(r"\.csv: (no header|header: )", line)]


def run(deploykit, tmp_path, *arguments):
    outcome = deploykit("records", *arguments, tmp_path / "out")
    assert outcome.status in (2, 3, 4)
    said = refused(outcome.stderr)
    assert len(said) == 1, outcome.stderr  # what else there is, TensorFlow says
    return said[0]


def test_sources_that_make_no_sense(deploykit, tmp_path, pictures):
    table = tmp_path / "a.csv"
    table.write_text("1,2,0\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "more").mkdir()
    for arguments, said in (
        ([tmp_path / "gone.csv"], "gone.csv: No such file"),
        ([tmp_path / "empty"], says("nothing-to-convert")),
        ([tmp_path / "empty", "--kind", "images"], "expected images"),
        ([table, tmp_path / "more"], says("give-one", options=Containing("folder"))),
        ([table, "--label-column", "7"], says("csv-column-number", number=7, count=3)),
        ([table, "--label-column", "labl"], "column 'labl'"),
        ([table, "--raw"], says("only-for", option="--labels and --raw", what="images")),
        ([pictures, "--label-column", "0"], says("only-for", option="--label-column", what="csv")),
        ([pictures / "cat" / "0.jpg"], says("images-folder-expected")),
        ([table, "--name", "a/b"], says("name-invalid", name="a/b", what="records")),
    ):
        assert re.search(said, run(deploykit, tmp_path, *arguments))


def test_arrays_that_do_not_go_together(deploykit, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), y=np.zeros(2))
    assert shows(run(deploykit, tmp_path, tmp_path / "a.npz"), "arrays-expected")
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2), complex))
    assert shows(
        run(deploykit, tmp_path, tmp_path / "a.npz"), "array-type-not-storable", dtype="complex128"
    )
    np.savez(tmp_path / "a.npz", x=np.full(3, 2**63, np.uint64))
    said = run(deploykit, tmp_path, tmp_path / "a.npz")
    assert shows(said, "array-not-int64", got=2**63)
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    said = run(deploykit, tmp_path, tmp_path / "a.npz", "--label-column", "y")
    assert shows(said, "unknown-name", kind="array", known=["x"], name="y")


@pytest.mark.parametrize("raw", [[], ["--raw"]])
def test_a_corrupt_picture(deploykit, tmp_path, pictures, raw, decoder_here):
    bad = pictures / "cat" / "1.jpg"
    bad.write_bytes(bad.read_bytes()[:-20])
    said = run(deploykit, tmp_path, pictures, *raw, *decoder_here)
    assert shows(said, "item-failed", reason=Containing(because("jpeg-truncated")))
    outcome = deploykit(
        "records", pictures, tmp_path / "out", *raw, *decoder_here, "--on-error", "skip", "--json"
    )
    assert outcome.status == 0, outcome.stderr
    assert outcome.document["records"] == 5
    assert outcome.document["skipped"] == 1
    assert str(bad) in outcome.document["problems"][0]


def test_a_picture_that_only_the_decoder_refuses(deploykit, tmp_path, pictures, decoder_here):
    bad = pictures / "dog" / "0.jpg"
    content = bytearray(bad.read_bytes())
    tables = content.index(b"\xff\xc4") + 4
    content[tables + 1 : tables + 17] = b"\xff" * 16  # more codes than there are
    bad.write_bytes(content)
    said = run(deploykit, tmp_path, pictures, "--raw", *decoder_here)
    assert shows(said, "item-failed", reason=showing("image-not-decoded-file"))


def test_pixels_of_another_size(deploykit, tmp_path, pictures, decoder_here):
    (pictures / "dog" / "0.jpg").write_bytes(jpeg(size=9))
    said = run(deploykit, tmp_path, pictures, "--raw", *decoder_here)
    assert shows(said, "item-failed", reason=showing("image-other-size", size="9x9x3"))


def test_a_picture_without_a_class(deploykit, tmp_path, pictures):
    (pictures / "x.jpg").write_bytes(jpeg())
    assert shows(run(deploykit, tmp_path, pictures), "image-without-class")


def test_labels_that_are_missing(deploykit, tmp_path, pictures):
    labels = tmp_path / "labels.csv"
    rows = [f"{path.relative_to(pictures)},1" for path in sorted(pictures.rglob("*.jpg"))]
    for lines, said in (
        (rows[1:], f"0.jpg: .*{labels}"),
        ([*rows, "gone.jpg,1"], "gone.jpg: No such file"),
        ([*rows, "a.jpg"], says("labels-line", source=labels, number=7)),
        ([*rows, rows[0]], says("labels-line-twice", source=labels, number=7, file="cat/0.jpg")),
    ):
        labels.write_text("\n".join(lines))
        assert re.search(said, run(deploykit, tmp_path, pictures, "--labels", labels))


def test_every_cut_of_a_picture_is_seen():
    for content in (jpeg(seed=1), png(), *WEBP.values()):
        assert image_problem(content) == ""
        assert all(image_problem(content[:length]) for length in range(len(content)))
    assert image_problem(b"GIF89a" + bytes(20)) == because("gif-truncated")
    assert image_problem(b"<html>") == (
        showing("not-an-image-of", kinds=Containing("JPEG", "PNG", "GIF", "BMP"))
    )


def test_a_flipped_bit_of_a_png_is_seen():
    content = png()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 4
        assert image_problem(bytes(changed)), place


def test_what_tensorflow_decodes_is_no_problem():
    """As many pictures of different kinds as there are seeds; none is refused."""
    pixels = tf.cast(tf.random.stateless_uniform([31, 17, 3], (1, 2), 0, 256, tf.int32), tf.uint8)
    for kind in ("rgb", "grayscale"):
        given = pixels if kind == "rgb" else pixels[..., :1]
        for progressive in (False, True):
            for quality in (5, 95):
                made = tf.io.encode_jpeg(
                    given, format=kind, progressive=progressive, quality=quality
                ).numpy()
                assert image_problem(made) == ""
                assert image_problem(made + b"trailing") == ""


class Evil:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


PICKLES = {
    "system": pickle.dumps({b"data": Evil(eval, "1/0")}, 2),
    "getattr": pickle.dumps(Evil(getattr, "", "join"), 4),
    "numpy's own": pickle.dumps(Evil(np.load, "x"), 2),
    "objects": pickle.dumps({b"data": np.array([{}, []], object)}, 2),
    "records": pickle.dumps({b"data": np.zeros(2, [("a", "u1")])}, 2),
    "class": pickle.dumps(Evil, 2),
}


@pytest.mark.parametrize("case", PICKLES)
def test_pickles_that_name_code_are_refused(tmp_path, case):
    (tmp_path / "p").write_bytes(PICKLES[case])
    with raises(RefusedError, "pickle-refused"):
        read_pickle(tmp_path / "p")


def test_pickles_that_are_damaged(tmp_path):
    path = tmp_path / "data_batch_1"
    cifar_batch(path, count=2, binary=False)
    content = path.read_bytes()
    random = np.random.default_rng(0)
    for length in [*range(0, 200), *random.integers(200, len(content), 50).tolist()]:
        path.write_bytes(content[:length])
        with pytest.raises(Error):
            read_pickle(path)
    for _ in range(500):  # whatever it becomes, it is data or an Error
        changed = bytearray(content)
        changed[random.integers(200)] = random.integers(256)
        path.write_bytes(changed)
        with contextlib.suppress(Error):
            read_pickle(path)
    path.write_bytes(b"\x80\x05\x96" + (2**36).to_bytes(8, "little") + b".")
    with pytest.raises(GraphError):  # and not MemoryError
        read_pickle(path)
    path.write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")  # a memo of 2**31 entries
    assert read_pickle(path) == []


def test_batches_that_are_none(deploykit, tmp_path):
    for data, said in (
        ([1], says("cifar-batch")),
        (
            {b"data": np.zeros((2, 9), np.uint8), b"labels": [1, 2]},
            says("cifar-shape", shape=Containing("[2, 9]")),
        ),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, says("cifar-labels", count=2)),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [300]}, says("cifar-labels", count=1)),
    ):
        (tmp_path / "data_batch_1").write_bytes(pickle.dumps(data, 2))
        assert re.search(said, run(deploykit, tmp_path, tmp_path / "data_batch_1"))
    (tmp_path / "a.bin").write_bytes(bytes(3073 * 2 - 1))
    said = run(deploykit, tmp_path, tmp_path / "a.bin", "--kind", "cifar")
    assert shows(said, "cifar-size", size=6145, size_10=3073)


def test_two_sets_in_a_folder(deploykit, tmp_path):
    folder = tmp_path / "cifar"
    folder.mkdir()
    for name in ("data_batch_1.bin", "test.bin"):
        cifar_batch(folder / name)
    assert shows(run(deploykit, tmp_path, folder), "several-sets")
    images = idx_bytes(np.zeros((2, 3, 3)))
    for name in ("train-images", "t10k-images"):
        (tmp_path / f"{name}-idx3-ubyte").write_bytes(images)
    files = sorted(tmp_path.glob("*-idx3-ubyte"))
    assert shows(run(deploykit, tmp_path, *files), "idx-several-files", name="pixels")


def test_labels_without_samples(deploykit, tmp_path):
    labels = tmp_path / "labels-idx1-ubyte"
    labels.write_bytes(idx_bytes(np.arange(5)))
    assert shows(run(deploykit, tmp_path, labels), "idx-labels-alone")
    assert not (tmp_path / "out").exists()


def test_everything_is_wrong(deploykit, tmp_path, pictures):
    for path in pictures.rglob("*.jpg"):
        path.write_bytes(b"no picture")
    said = run(deploykit, tmp_path, pictures, "--on-error", "skip")
    assert shows(said, "no-item-converted")
    assert not (tmp_path / "out").exists()
