"""What an image shows: every kind of file, of input and of output."""

import json
import re
import struct

import numpy as np
import pytest

from deploykit.data.samples import open_samples
from deploykit.importers.graph_files import load_graph
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import Containing, assert_error, build, says, shows

pytestmark = pytest.mark.usefixtures("in_process")

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 4, 3)).astype(np.uint8)


def encoded(kind: str, pixels: np.ndarray = PIXELS) -> bytes:
    """Return an image as the bytes of a file."""
    import tensorflow as tf

    if kind == "png":
        return tf.io.encode_png(pixels).numpy()
    if kind == "jpeg":
        return tf.io.encode_jpeg(pixels, quality=100, chroma_downsampling=False).numpy()
    if kind == "gif":
        return gif(pixels)
    assert kind == "bmp"
    height, width, channels = pixels.shape
    rows = pixels[::-1, :, [2, 1, 0, *range(3, channels)]].tobytes()  # from below, blue first
    head = struct.pack("<IHHIIiiHHIIiiII", 54 + len(rows), 0, 0, 54, 40, width, height, 1,
                       8 * channels, 0, len(rows), 0, 0, 0, 0)  # fmt: skip
    return b"BM" + head + rows


def gif(*frames: np.ndarray) -> bytes:
    """Return an animation of 16 pixels a frame, each with a colour of its own."""
    size = struct.pack("<HH", 4, 4)
    out = b"GIF89a" + size + b"\x00\x00\x00"
    for frame in frames:
        codes, bits = [16, *range(16), 17], 5  # clear, the pixels, end; LZW without compression
        for place in range(15, 1, -14):  # before the table grows a bit wider
            codes.insert(place, 16)
        packed = sum(code << (bits * place) for place, code in enumerate(codes))
        data = packed.to_bytes(-(-bits * len(codes) // 8), "little")
        out += b"," + bytes(4) + size + b"\x83" + frame.tobytes()
        out += b"\x04" + bytes([len(data)]) + data + b"\x00"
    return out + b";"


def model(shape=(None, 4, 4, 3), dtype="float32", outputs=("scores",)) -> bytes:
    """Return a model whose score of class n is the value n of the image as it was fed."""

    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(dtype, shape, name="x")
        flat = tf.reshape(tf.cast(x, tf.float32), [tf.shape(x)[0], -1], name="scores")
        tf.nn.softmax(flat, name="softmax")

    return b"".join(build(body, ["x"], outputs).serialized())


@pytest.fixture
def label(deploykit, tmp_path):
    """Run `deploykit label` on an image, with 48 labels."""

    def run(image: bytes, graph: bytes | None = None, *more):
        paths = [tmp_path / name for name in ("image", "model.pb", "labels.txt")]
        names = "".join(f"label {n}\n" for n in range(48)).encode()
        for path, content in zip(paths, (image, graph or model(), names), strict=True):
            path.write_bytes(content)
        output = () if "--output_layer" in " ".join(map(str, more)) else ("--output_layer=scores",)
        return deploykit(
            "label", paths[0], "--model", paths[1], "--labels", paths[2], *output, *more
        )

    return run


@pytest.fixture
def values(label):
    """Return what the model was fed, as it stood in the tensor."""

    def run(image: bytes, graph: bytes | None = None, *more):
        found = label(image, graph, "--json", "--top=9999", *more)
        assert found.status == 0, found.stderr
        by_class = {p["class"]: p["score"] for p in found.document["predictions"]}
        return np.array([by_class[n] for n in range(len(by_class))])

    return run


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["png", "bmp", "gif"])
def test_kinds_of_images(values, kind):
    np.testing.assert_allclose(values(encoded(kind)), PIXELS.ravel() / 255, rtol=1e-6)


def test_jpeg(values):
    """JPEG loses; TensorFlow's decoder says how much."""
    import tensorflow as tf

    image = encoded("jpeg")
    expected = tf.io.decode_jpeg(image, channels=3).numpy()
    assert 0 < np.abs(expected.astype(int) - PIXELS).max() < 20
    np.testing.assert_allclose(values(image), expected.ravel() / 255, rtol=1e-6)


@pytest.mark.sampled
def test_transparency_is_dropped_and_grey_is_every_colour(values):
    clear = np.concatenate([PIXELS, np.full((4, 4, 1), 7, np.uint8)], axis=2)
    for kind in ("png", "bmp"):
        np.testing.assert_allclose(values(encoded(kind, clear)), PIXELS.ravel() / 255, rtol=1e-6)
    grey = PIXELS[:, :, :1]
    expected = np.repeat(grey, 3, axis=2).ravel() / 255
    np.testing.assert_allclose(values(encoded("png", grey)), expected, rtol=1e-6)


def test_of_an_animation_the_first_image_counts(values):
    np.testing.assert_allclose(values(gif(PIXELS, 255 - PIXELS)), PIXELS.ravel() / 255, rtol=1e-6)


@pytest.mark.parametrize("dash", ["-", "_"])
def test_mean_and_std(values, dash):
    found = values(encoded("png"), None, f"--input{dash}mean", "127.5", f"--input{dash}std=64")
    np.testing.assert_allclose(found, (PIXELS.ravel() - 127.5) / 64, rtol=1e-6)
    assert np.abs(found - (PIXELS.ravel() / 64 - 127.5)).max() > 1  # nor the other way round


@pytest.mark.sampled
def test_an_image_is_resized_as_label_image_does(values):
    """Halving takes every second pixel: TensorFlow's first ResizeBilinear, corners at 0."""
    expected = PIXELS[::2, ::2].ravel() / 255
    np.testing.assert_allclose(values(encoded("png"), model((None, 2, 2, 3))), expected, rtol=1e-6)
    open_size = model((None, None, None, 3))
    for dash in "-_":
        sizes = (f"--input{dash}height=2", f"--input{dash}width=2")
        np.testing.assert_allclose(values(encoded("png"), open_size, *sizes), expected, rtol=1e-6)


def test_a_size_that_is_left_open_is_299(label):
    found = label(encoded("png"), model((None, None, None, 3)), "--input_width=2", "--json")
    assert found.status == 0
    assert shows(found.stderr, "size-open", input=Containing("'x'"), size=299)
    assert shows(found.stderr, "labels-count", classes=299 * 2 * 3, labels=48)


def test_inputs_of_other_kinds(values):
    image = encoded("png")
    first = values(image, model((None, 3, 4, 4)))
    np.testing.assert_allclose(first, PIXELS.transpose(2, 0, 1).ravel() / 255, rtol=1e-6)
    grey = values(image, model((None, 4, 4, 1)))
    luma = PIXELS.astype(float) @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(grey, luma.ravel() / 255, rtol=1e-5)
    whole = values(image, model(dtype="uint8"))
    np.testing.assert_array_equal(whole, PIXELS.ravel())
    signed = values(image, model(dtype="int8"), "--input_mean=128")
    np.testing.assert_array_equal(signed, PIXELS.ravel().astype(int) - 128)
    batch = values(image, model((5, 4, 4, 3)))
    np.testing.assert_allclose(batch, PIXELS.ravel() / 255, rtol=1e-6)


def test_the_table(label):
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[3, 3, 2], pixels[0, 1, 0], pixels[0, 0, 1] = 255, 51, 51
    found = label(encoded("png", pixels), None, "--top=4")
    heading, rule, *rows = found.stdout.splitlines()
    assert (heading.split(), set(rule)) == (["score", "class", "label"], {"─"})
    assert [line.split(maxsplit=2) for line in rows] == [
        ["1.000000", "47", "label 47"],
        ["0.200000", "1", "label 1"],  # equal ones by number
        ["0.200000", "3", "label 3"],
        ["0.000000", "0", "label 0"],
    ]
    assert found.stderr == Containing("x: ", "4x4 -> 4x4", "0..1", " 0", " 255")


def test_the_document(label, tmp_path):
    found = label(encoded("png"), None, "--json", "--output-layer=softmax:0")
    document = found.document
    assert (document["command"], document["outputs"]) == ("label", ["softmax"])
    assert document["image"] == str(tmp_path / "image")
    assert document["input_file"] == str(tmp_path / "model.pb")
    assert len(document["predictions"]) == 5
    best = document["predictions"][0]
    assert best["class"] == PIXELS.argmax()
    assert best["label"] == f"label {PIXELS.argmax()}"
    found = [each["score"] for each in document["predictions"]]
    assert found == sorted(found, reverse=True)


@pytest.mark.sampled
def test_layers_are_named_or_the_models_own(label):
    assert label(encoded("png"), None, "--input_layer=x:0").status == 0
    assert label(encoded("png"), None, "--input-layer=x", "--output_layer=softmax").status == 0
    found = label(encoded("png"), None, "--output_layer=sofmax")
    assert found.status == 2
    assert shows(found.stderr, "outputs-wrong", problem=Containing("softmax"))


def declared(tmp_path, **steps):
    """Write a preprocessing of the input x and return its path."""
    path = tmp_path / "steps.json"
    path.write_text(json.dumps({"format": 1, "inputs": {"x": steps}}))
    return path


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["png", "jpeg"])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_declared_preprocessing_gives_what_calibration_takes(values, tmp_path, kind, dtype):
    steps = {"resize": [7, 6], "crop": [4, 4], "mean": [1, 20, 30], "std": [2, 1, 0.5]}
    path = declared(tmp_path, **(steps if dtype == "float32" else {"resize": [4, 4]}))
    image = encoded(kind, np.concatenate([PIXELS, PIXELS[::-1, ::-1]]))
    graph = model(dtype=dtype)
    found = values(image, graph, "--preprocess", path)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / f"a.{kind}").write_bytes(image)
    fed = open_samples(str(tmp_path / "images"), load_graph(tmp_path / "model.pb"), str(path))
    np.testing.assert_array_equal(
        found.astype(np.float32), fed.arrays["x"].astype(np.float32).ravel()
    )
    assert np.abs(found - values(image, graph)).max() > 0.1  # the default is label_image's


def test_the_feature_of_records_is_the_image(values, tmp_path):
    path = declared(tmp_path, feature="photo", scale=0.5)
    np.testing.assert_array_equal(
        values(encoded("png"), None, "--preprocess", path), PIXELS.ravel() / 2
    )


@pytest.mark.sampled
def test_what_was_done_can_be_declared(label, values, tmp_path):
    graph = model((None, 2, 3, 3))
    options = ("--input_mean=127.5", "--input_std=64")
    document = label(encoded("png"), graph, "--json", *options).document["preprocessing"]
    assert document == {"format": 1, "inputs": {"x": {
        "channels": 3, "resize": [2, 3], "corners": True, "mean": [127.5], "std": [64.0],
    }}}  # fmt: skip
    (tmp_path / "done.json").write_text(json.dumps(document))
    again = values(encoded("png"), graph, "--preprocess", tmp_path / "done.json")
    np.testing.assert_array_equal(again, values(encoded("png"), graph, *options))


@pytest.mark.parametrize(
    ("steps", "options", "says"),
    [
        ({"resize": [5, 5]}, (), says("does-not-fit", got="[?, 5, 5, 3]", expected="[?, 4, 4, 3]")),
        ({"resise": [4, 4]}, (), says("unknown-name")),
        ({}, ("--input_mean=0",), says("preprocess-or-input-options")),
        ({}, ("--input_width=4",), says("preprocess-or-input-options")),
    ],
)
def test_wrong_preprocessing(label, tmp_path, steps, options, says):
    found = label(encoded("png"), None, "--preprocess", declared(tmp_path, **steps), *options)
    assert (found.status, found.printed) == (2, "")
    assert re.search(says, found.stderr)
    assert len(found.stderr.splitlines()) == 1


def test_an_image_may_enter_within_the_model(values):
    """The model's own input takes rows, no image."""

    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 48], name="x")
        pixels = tf.reshape(x, [-1, 4, 4, 3], name="pixels")
        tf.reshape(pixels, [-1, 48], name="scores")

    sizes = ("--input_layer=pixels", "--input_height=4", "--input_width=4")
    found = values(encoded("png"), b"".join(build(body).serialized()), *sizes)
    np.testing.assert_allclose(found, PIXELS.ravel() / 255, rtol=1e-6)


def test_one_input_and_one_output(label):
    def body():
        import tensorflow as tf

        a, b = (tf.compat.v1.placeholder(tf.float32, [None, 4, 4, 3], name) for name in "ab")
        tf.reshape(a + b, [-1, 48], name="scores")
        tf.reshape(a, [-1, 48], name="others")

    graph = b"".join(build(body).serialized())
    found = label(encoded("png"), graph)
    assert found.status == 2
    assert shows(found.stderr, "image-input-ambiguous", inputs_count=2, known=["a", "b"])
    found = label(encoded("png"), graph, "--output_layer=scores,others", "--input_layer=a")
    assert found.status == 2
    assert shows(found.stderr, "scores-output-ambiguous", outputs_count=2)
    found = label(encoded("png"), graph, "--output_layer=others", "--input_layer=a")
    assert found.status == 0


INPUTS = {
    "[?, 784]": ((None, 784), "float32"),
    "[?, 4, 4, 2]": ((None, 4, 4, 2), "float32"),
    "type string": ((None,), "string"),
    "type bool": ((None, 4, 4, 3), "bool"),
    "[]": ((), "float32"),
}


@pytest.mark.parametrize("what", INPUTS)
def test_inputs_that_take_no_image(label, what):
    shape, dtype = INPUTS[what]
    nodes = [
        Node("x", "Placeholder").with_attrs(
            dtype=DType(dtype), shape=tuple(-1 if s is None else s for s in shape)
        ),
        Node("scores", "Identity", ("x",)).with_attrs(T=DType(dtype)),
    ]
    found = label(encoded("png"), b"".join(Graph(nodes).serialized()))
    assert (found.status, found.printed) == (2, "")
    assert "input 'x'" in found.stderr
    assert what in found.stderr
    assert len(found.stderr.splitlines()) == 1


OUTPUTS = {
    "output-scores-shape": ("tensor", lambda tf, x: x),
    "output-not-scores": ("tensor", lambda tf, x: tf.as_string(x)),
    "class-scores-nan": ("name", lambda tf, x: tf.reshape(x, [1, -1]) / 0.0),
}


@pytest.mark.parametrize("code", OUTPUTS)
def test_outputs_that_give_no_scores(label, code):
    field, change = OUTPUTS[code]

    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 4, 4, 3], name="x")
        tf.identity(change(tf, x), name="scores")

    found = label(encoded("png"), b"".join(build(body).serialized()))
    assert (found.status, found.printed) == (2, "")
    assert_error(found.error, code, **{field: Containing("scores")})


def test_a_model_that_acts_on_files_is_refused(label, tmp_path):
    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 4, 4, 3], name="x")
        with tf.control_dependencies([tf.io.write_file(str(tmp_path / "trace"), "was here")]):
            tf.reshape(x, [-1, 48], name="scores")

    found = label(encoded("png"), b"".join(build(body).serialized()))
    assert (found.status, found.printed) == (3, "")
    assert not (tmp_path / "trace").exists()


IMAGES = {
    "empty": (b"", says("not-an-image", got="is empty")),
    "text": (b"hello", says("not-an-image")),
    "cut PNG": (None, says("image-not-decoded-file")),
    "damaged BMP": (b"BM" + bytes(60), says("image-not-decoded-file")),
}


@pytest.mark.parametrize("name", IMAGES)
def test_bad_images(label, tmp_path, name):
    content, message = IMAGES[name]
    found = label(encoded("png")[:60] if content is None else content)
    assert (found.status, found.printed) == (2, "")
    assert found.stderr.startswith(f"deploykit: error: {tmp_path / 'image'}: ")
    assert re.search(message, found.stderr)
    assert len(found.stderr.splitlines()) == 1


def test_labels_of_another_count_are_said(label):
    found = label(encoded("png"), model((None, 5, 5, 3)), "--top=75", "--json")
    assert found.status == 0
    assert shows(found.stderr, "labels-count", classes=75, labels=48)
    labels = {each["class"]: each["label"] for each in found.document["predictions"]}
    assert (labels[47], labels[48]) == ("label 47", None)


@pytest.fixture
def files(label, tmp_path):
    """Write an image, a model and labels; return what `deploykit label` says of them."""
    found = label(encoded("png"), None, "--json")
    return {name: tmp_path / name for name in ("image", "model.pb", "labels.txt")}, found.document


SPELLINGS = {  # of label_image in C++ and in Python, of its first version, and our own
    "image": (("IMAGE",), ("--image=IMAGE",), ("--image", "IMAGE")),
    "model": (("--model=MODEL",), ("--graph=MODEL",), ("--graph", "MODEL")),
    "top": ((), ("--top=5",), ("--num_top_predictions=5",), ("--num-top-predictions", "5")),
    "root": ((), ("--root_dir=ROOT",), ("--root-dir", "ROOT/")),
}


@pytest.mark.sampled
@pytest.mark.parametrize("root", SPELLINGS["root"])
def test_the_flags_of_label_image(deploykit, files, tmp_path, root):
    """Each spelling of one beside spellings of the others says the same."""
    paths, expected = files
    below = "" if root else f"{tmp_path}/"
    words = {"IMAGE": f"{below}image", "MODEL": f"{below}model.pb", "ROOT": str(tmp_path)}
    rest = ["--input_layer=x", "--output_layer=scores", "--input_mean=0", "--input_std=255",
            "--input_width=4", "--input_height=4", f"--labels={paths['labels.txt']}"]  # fmt: skip
    fed = {"x": "photos 4x4 -> 4x4 bilinear by corners, 0..1 (from --input_mean and --input_std)"}
    for turn, top in enumerate(SPELLINGS["top"]):
        image, model = (SPELLINGS[name][turn % 3] for name in ("image", "model"))
        given = " ".join((*image, *model, *top, *root))
        for word, path in words.items():
            given = given.replace(word, path)
        found = deploykit("label", *given.split(), *rest, "--json")
        assert found.status == 0, found.stderr
        assert found.document | {"seconds": 0} == expected | {"seconds": 0, "fed": fed}


def test_a_folder_before_all_paths_is_joined_as_label_image_does(deploykit, files, tmp_path):
    """An absolute path lies below it too; labels lie where they are said to."""
    paths, expected = files
    found = deploykit(
        "label", "--root_dir=/", f"--image={tmp_path}/image", f"--graph={tmp_path}/model.pb",
        f"--labels={paths['labels.txt']}", "--output_layer=scores", "--json",
    )  # fmt: skip
    assert found.document["predictions"] == expected["predictions"]
    found = deploykit("label", f"{tmp_path}/image", f"--graph={tmp_path}/model.pb",
                      f"--labels={paths['labels.txt']}", f"--root_dir={tmp_path}")  # fmt: skip
    assert found.status == 4
    assert f"{tmp_path}{tmp_path}/image: No such file" in found.stderr


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (("IMAGE", "--model=MODEL", "--graph=MODEL"), ["--model", "--graph"]),
        (("IMAGE",), ["--model", "--graph"]),
        (("IMAGE", "--image=IMAGE", "--graph=MODEL"), ["IMAGE", "--image"]),
        (("--graph=MODEL",), ["IMAGE", "--image"]),
    ],
)
def test_image_and_model_are_each_given_once(deploykit, files, given, options):
    paths, _ = files
    words = [word.replace("IMAGE", str(paths["image"])).replace("MODEL", str(paths["model.pb"]))
             for word in given]  # fmt: skip
    found = deploykit("label", *words, f"--labels={paths['labels.txt']}")
    assert (found.status, found.printed) == (2, "")
    assert_error(found.error, "give-one", options=options)
