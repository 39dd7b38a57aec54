"""Photos in front of an exported model: equal to what is done elsewhere, and refused by place."""

import itertools
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import deploykit
from deploykit.data.apply_preprocessing import in_python
from deploykit.data.preprocessing import Steps, load_preprocessing
from deploykit.records.examples import Feature
from deploykit.serving.execution.engines.engine import Loading
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.serving.execution.servable import Servable
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import Example
from deploykit.serving.saved_model.warmup_requests import read_requests
from deploykit.storage.arrays import load_data
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import VersionDef
from deploykit.transforms.ir.tensors import DType, decode
from tests import pairwise
from tests.deploykit.conftest import FASHION
from tests.deploykit.storage.tiny_images import JPEG_XL, WEBP, webp_head
from tests.loading import answers
from tests.pairwise import once_each
from tests.support import Containing, raises, says, shows

pytestmark = pytest.mark.usefixtures("in_process")

FILE = Feature("string", (), "image")
NAMES = [f"kind {n}" for n in range(10)]


def written(pixels: np.ndarray, kind: str) -> bytes:
    """Return an image file; TensorFlow writes neither BMP nor GIF of its own."""
    import tensorflow as tf

    if kind == "bmp":
        height, width, _ = pixels.shape
        rows = np.zeros((height, -(-width * 3 // 4) * 4), np.uint8)
        rows[:, : width * 3] = pixels[::-1, :, ::-1].reshape(height, -1)
        head = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 54 + rows.size, 0, 0, 54, 40, width, height,
                           1, 24, 0, rows.size, 0, 0, 0, 0)  # fmt: skip
        return head + rows.tobytes()
    encode = tf.io.encode_jpeg if kind == "jpeg" else tf.io.encode_png
    return encode(pixels).numpy()


def photos(count: int = 6, channels: int = 3, seed: int = 0) -> list[bytes]:
    """Return files of different kinds and sizes."""
    rng = np.random.default_rng(seed)
    kinds = itertools.cycle(("jpeg", "png", "bmp") if channels == 3 else ("jpeg", "png"))
    sizes = ((18, 31), (12, 12), (40, 9), (16, 16))
    found = []
    for (height, width), kind in zip(itertools.cycle(sizes), kinds, strict=False):
        if len(found) == count:
            return found
        pixels = rng.integers(0, 256, (height, width, channels)).astype(np.uint8)
        found.append(written(pixels, kind))
    return found


def texts(values: list[bytes]) -> np.ndarray:
    return np.array([*values, b""], object)[:-1]


def echo(shape=(-1, 12, 12, 3), dtype="float32", producer=0, **more) -> Graph:
    """Return a graph that answers with what it is fed; `more` inputs are of these shapes."""
    nodes, inputs = [], {"x": (shape, dtype)} | {name: (each, dtype) for name, each in more.items()}
    for name, (sizes, type_) in inputs.items():
        node = Node(name, "Placeholder").with_attrs(dtype=DType(type_))
        nodes.append(node if sizes is None else node.with_attrs(shape=sizes))
        nodes.append(Node(f"{name}_out", "Identity", (name,)).with_attrs(T=DType(type_)))
    outputs = [f"{name}_out" for name in inputs]
    return Graph(nodes, list(inputs), outputs, VersionDef(producer=producer))


def scored(classes: int = 10, output: str = "y") -> Graph:
    """Return a graph that scores photos of 4x4 by random weights."""
    rng = np.random.default_rng(1)
    float_ = DType("float32")
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=float_, shape=(-1, 4, 4, 3)),
        Node.constant("flat", np.array([-1, 48], np.int32)),
        Node("row", "Reshape", ("x", "flat")).with_attrs(T=float_, Tshape=DType("int32")),
        Node.constant("w", rng.normal(0, 1, (48, classes)).astype(np.float32)),
        Node(output, "MatMul", ("row", "w")).with_attrs(T=float_),
    ]
    return Graph(nodes, ["x"], [output])


def opened(graph, base: Path, **options) -> Servable:
    found = deploykit.export(graph, base, name="m", **options)
    return open_version(found.folder, "m", found.version, Loading())


def run(served: Servable, signature: str, outputs=(), **feeds):
    wanted = list(outputs or served.signatures[signature].outputs)
    return served.run(signature, feeds, wanted)


STEPS = {
    "plain": {},
    "grey": {"channels": 1},
    "scaled": {"scale": 1 / 255},
    "signed": {"scale": 1 / 127.5, "mean": [1.0]},
    "of each channel": {"scale": 1 / 255, "mean": [0.485, 0.456, 0.406], "std": [0.22, 0.2, 0.3]},
    "corners": {"corners": True, "resize": [12, 12]},
    "cropped": {"resize": [20, 17], "crop": [12, 12], "std": [58.8]},
}  # fmt: skip
OTHERS = ("float16", "bfloat16", "uint8", "int32")


@pytest.mark.parametrize(
    ("steps", "dtype"),
    pairwise.drawn(
        __name__,
        [
            *((each, "float32") for each in STEPS.values()),
            *itertools.product([STEPS["of each channel"], STEPS["grey"]], OTHERS),
        ],
        4,
        quick=4,
    ),
)
def test_equal_to_the_last_bit(steps, dtype, tmp_path):
    channels = steps.get("channels", 3)
    if dtype == "uint8" and steps.get("mean"):
        steps = {k: v for k, v in steps.items() if k != "mean"}  # it holds nothing below 0
    if not steps.get("scale") and dtype != "float32":
        steps = {**steps, "scale": 1.0}  # or nobody says which values it takes
    shape = (-1, 12, 12, channels)
    declared = {"format": 1, "inputs": {"x": {"scale": 1, **steps}}}
    served = opened(echo(shape, dtype), tmp_path, preprocess=declared)
    files = photos(6, channels) + photos(2, channels=1)  # no grey is made of a BMP
    kept = load_preprocessing(served.folder / "assets.extra" / "preprocessing.json").inputs["x"]
    want = [in_python(kept, FILE, each) for each in files]
    found = run(served, "serving_default", bytes=texts(files))["x_out"]
    np.testing.assert_array_equal(found, np.stack(want), strict=True)
    for loaded in answers(served.folder, "serving_default", {"bytes": texts(files)}):
        np.testing.assert_array_equal(loaded["x_out"], np.stack(want))
    sizes = (12, 12) if dtype == "uint8" else (30, 14)
    pixels = np.random.default_rng(3).integers(0, 256, (2, *sizes, channels)).astype(np.uint8)
    as_files = texts([written(each, "png") for each in pixels])
    np.testing.assert_array_equal(
        run(served, "pixels", pixels=pixels)["x_out"],
        run(served, "serving_default", bytes=as_files)["x_out"],
    )
    own = want[0][np.newaxis]
    np.testing.assert_array_equal(run(served, "tensors", x=own)["x_out"], own)
    served.close()


@pytest.mark.sampled
def test_equal_to_what_the_other_commands_feed(tmp_path):
    from deploykit.data.samples import open_samples

    folder = tmp_path / "photos"
    folder.mkdir()
    for number, content in enumerate(photos(5)):
        (folder / f"{number}.png").write_bytes(content)
    graph = echo()
    declared = {"format": 1, "inputs": {"x": {"scale": 1 / 255, "mean": [0.4, 0.5, 0.6]}}}
    fed = open_samples(str(folder), graph, declared).arrays["x"]
    served = opened(graph, tmp_path / "base", preprocess=declared)
    files = texts([each.read_bytes() for each in sorted(folder.iterdir())])
    np.testing.assert_array_equal(run(served, "serving_default", bytes=files)["x_out"], fed)
    served.close()


def claims(width: int, height: int) -> dict[str, bytes]:
    """Return the heads of images that say they are so large."""
    jpeg, frame = written(np.zeros((8, 8, 3), np.uint8), "jpeg"), b"\xff\xc0\x00\x11\x08"
    head = struct.pack(">II5B", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I4s", 13, b"IHDR") + head
    chunk += struct.pack(">I", zlib.crc32(chunk[4:]))
    return {
        "png": b"\x89PNG\r\n\x1a\n" + chunk,
        **{f"webp {kind}": webp_head(kind, min(width, sides), min(height, sides))
           for kind, sides in ((b"VP8 ", 16_000), (b"VP8L", 16_000), (b"VP8X", 1 << 24))},
        "gif": b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0),
        "bmp": b"BM" + bytes(16) + struct.pack("<ii", width, -height),
        "jpeg": jpeg.replace(frame + struct.pack(">HH", 8, 8), frame + struct.pack(">HH", height,
                                                                                 width)),
    }  # fmt: skip


@pytest.mark.sampled
def test_a_damaged_photo_is_named_by_its_place(tmp_path):
    sound = photos(8)
    served = opened(echo(), tmp_path, preprocess="0..1")
    damaged = {
        "truncated": (sound[0][: len(sound[0]) // 2], says("photo-not-decoded")),
        "png": (sound[1][:60], says("photo-not-decoded")),
        "empty": (b"", says("not-an-image-file")),
        "text": (b"hello", says("not-an-image-file")),
        "begin": (b"\xff\xd8\xff", says("photo-not-decoded")),
        **{kind: (each, says("image-exceeds", most=50_000_000))
           for kind, each in claims(60_000, 50_000).items()},
    }  # fmt: skip
    for (content, why), place in zip(damaged.values(), itertools.cycle(range(8)), strict=False):
        batch = [*sound[:place], content, *sound[place + 1 :]]
        with pytest.raises(ServingError, match=rf"^bytes\[{place}\]: .*{why}") as error:
            run(served, "serving_default", bytes=texts(batch))
        assert error.value.status == "INVALID_ARGUMENT"
        assert len(run(served, "serving_default", bytes=texts(sound))["x_out"]) == 8
    served.close()


@pytest.mark.sampled
def test_images_are_bounded_before_they_are_decoded(tmp_path):
    served = opened(echo(), tmp_path, preprocess="0..1", max_pixels=12 * 12)
    fits = written(np.zeros((12, 12, 3), np.uint8), "png")
    for kind in ("png", "jpeg", "bmp"):
        run(
            served, "serving_default", bytes=texts([written(np.zeros((12, 12, 3), np.uint8), kind)])
        )
        large = written(np.zeros((12, 13, 3), np.uint8), kind)
        with pytest.raises(ServingError, match=r"bytes\[1\]: " + says("image-exceeds", most=144)):
            run(served, "serving_default", bytes=texts([fits, large]))
    served.close()


@pytest.mark.sampled
def test_every_kind_of_webp_is_served_within_its_bound(tmp_path):
    served = opened(echo(), tmp_path / "fits", preprocess="0..1", max_pixels=7 * 5)
    kinds = [WEBP["lossy"], WEBP["lossless"]]
    assert len(run(served, "serving_default", bytes=texts(kinds))["x_out"]) == 2
    served.close()
    served = opened(echo(), tmp_path / "large", preprocess="0..1", max_pixels=7 * 5 - 1)
    for content in WEBP.values():
        with pytest.raises(ServingError, match=says("image-exceeds", most=34)):
            run(served, "serving_default", bytes=texts([content]))
    served.close()


def test_models_that_demand_a_batch(tmp_path):
    served = opened(echo((2, 12, 12, 3)), tmp_path, preprocess="0..1")
    assert run(served, "serving_default", bytes=texts(photos(2)))["x_out"].shape == (2, 12, 12, 3)
    with pytest.raises(ServingError, match=r"bytes\[1\]: "):
        run(served, "serving_default", bytes=texts([photos(1)[0], b"x"]))
    served.close()


@pytest.mark.sampled
def test_no_photo_at_all(tmp_path):
    served = opened(echo(), tmp_path, preprocess="0..1")
    assert run(served, "serving_default", bytes=texts([]))["x_out"].shape == (0, 12, 12, 3)
    served.close()


@pytest.mark.slow
def test_several_inputs(tmp_path):
    sizes = np.ones((2, 4), np.float32)
    served = opened(echo(sizes=(-1, 4)), tmp_path, preprocess="0..1")
    assert set(served.signatures["serving_default"].inputs) == {"bytes", "sizes"}
    found = run(served, "serving_default", bytes=texts(photos(2)), sizes=sizes)
    assert found["sizes_out"].tolist() == sizes.tolist()
    served.close()
    both = opened(echo(right=(-1, 5, 5, 1)), tmp_path / "both", preprocess="0..1")
    assert set(both.signatures["serving_default"].inputs) == {"x_bytes", "right_bytes"}
    assert set(both.signatures["pixels"].inputs) == {"x_pixels", "right_pixels"}
    files = texts(photos(2))
    found = run(both, "serving_default", x_bytes=files, right_bytes=files)
    assert [each.shape for each in found.values()] == [(2, 5, 5, 1), (2, 12, 12, 3)] or {
        name: each.shape for name, each in found.items()
    } == {"x_out": (2, 12, 12, 3), "right_out": (2, 5, 5, 1)}
    with pytest.raises(ServingError, match=r"right_bytes\[1\]"):
        run(both, "serving_default", x_bytes=files, right_bytes=texts([files[0], b"?"]))
    both.close()
    one = opened(echo(mask=(-1, 12, 12, 1)), tmp_path / "one", preprocess="x=0..1")
    assert set(one.signatures["serving_default"].inputs) == {"bytes", "mask"}
    one.close()


@pytest.mark.sampled
@pytest.mark.parametrize("producer", [8, 21, 134])
def test_graphs_of_any_age(producer, tmp_path):
    served = opened(echo(producer=producer), tmp_path, preprocess="0..1")
    assert len(run(served, "serving_default", bytes=texts(photos(3)))["x_out"]) == 3
    served.close()


def test_names_that_are_taken(tmp_path):
    graph = echo()
    graph.add(Node.constant("photos/bytes", np.zeros(1, np.float32)))
    served = opened(graph, tmp_path, preprocess="0..1")
    assert served.signatures["serving_default"].inputs["bytes"].name == "photos_1/bytes:0"
    with pytest.raises(ServingError, match=r"bytes\[0\]"):
        run(served, "serving_default", bytes=texts([b"x"]))
    served.close()


def test_known_labels_of_two_possible_scores_are_left_out_with_a_warning(tmp_path, caplog):
    graph = scored(len(NAMES))
    graph.add(Node("p", "Softmax", ("y",)).with_attrs(T=DType("float32")))
    graph.outputs = ("y", "p")
    path = tmp_path / "m.pb"
    deploykit.save_graph(deploykit.freeze(graph, preprocess="0..1", labels=NAMES), path)
    for outputs, has_classes in (((), False), (("p",), True)):
        caplog.clear()
        found = deploykit.export(path, tmp_path / "base", preprocess="0..1", outputs=outputs)
        assert ("classes" in found.signatures["serving_default"].outputs) == has_classes
        assert shows(caplog.text, "scores-ambiguous", count=2) != has_classes


def test_labels_name_the_best(tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(NAMES))
    served = opened(scored(), tmp_path / "base", preprocess="0..1", labels=labels)
    files = texts(photos(4))
    found = run(served, "serving_default", bytes=files)
    order = np.argsort(-found["y"], axis=1)[:, :5]
    assert [[each.decode() for each in row] for row in found["classes"].tolist()] == [
        [NAMES[n] for n in row] for row in order
    ]
    np.testing.assert_array_equal(found["scores"], np.take_along_axis(found["y"], order, 1))
    assert set(served.signatures["tensors"].outputs) == {"y"}
    examples = []
    for each in files:
        example = Example()
        example.features.feature["bytes"].bytes_list.value.append(each)
        examples.append(example.SerializeToString())
    classified = run(served, "classify", inputs=texts(examples))
    np.testing.assert_array_equal(classified["classes"], found["classes"])
    examples[2] = examples[2][:40]
    broken = Example()
    broken.features.feature["bytes"].bytes_list.value.append(b"?")
    examples[3] = broken.SerializeToString()
    with raises(ServingError, "tensorflow-refuses", reason=Containing("inputs[3]: ")):
        run(served, "classify", inputs=texts([*examples[:2], examples[0], examples[3]]))
    kept = (served.folder / "assets.extra" / "labels.txt").read_text()
    assert kept.split("\n") == [*NAMES, ""]
    served.close()
    few = opened(scored(3), tmp_path / "few", labels=["a", "b", "c"])
    assert run(few, "serving_default", x=np.zeros((2, 4, 4, 3), np.float32))["classes"].shape == (
        2,
        3,
    )
    few.close()
    with pytest.raises(
        GraphError,
        match=says("counts-differ", what="labels", count=2, other="scores", other_count=10),
    ):
        deploykit.export(scored(), tmp_path / "no", labels=["a", "b"])
    with pytest.raises(GraphError, match=says("output-exists", name="classes")):
        deploykit.export(scored(output="classes"), tmp_path / "no", labels=NAMES)
    with raises(GraphError, "labels-need-scores"):
        deploykit.export(echo(), tmp_path / "no", labels=NAMES)


def keras_nets(folder: Path):
    """Return three nets of the trained one: Rescaling inside, 0..1 outside, whole numbers."""
    import keras

    trained = keras.models.load_model(FASHION / "fashion.keras")
    inside = keras.Input((28, 28, 1), name="photo")
    whole = keras.Input((28, 28, 1), dtype="uint8", name="photo")
    scaled = keras.layers.Rescaling(1 / 255)
    nets = {
        "inside": keras.Model(inside, trained(scaled(inside))),
        "outside": trained,
        "whole": keras.Model(whole, trained(scaled(whole))),
    }
    for name, net in nets.items():
        net.save(folder / f"{name}.keras")
    return nets


@pytest.mark.sampled
def test_served_photos_are_as_accurate_as_keras(tmp_path):
    data = load_data(str(FASHION / "test_1000.npz"))
    values = next(each for each in data.values() if each.ndim == 4)[:200]
    labels = next(each for each in data.values() if each.ndim == 1)[:200]
    largest = values.max()
    pixels = np.rint(values * (255 / largest if largest <= 1 else 1)).astype(np.uint8)
    files = texts([written(each, "png") for each in pixels])
    accuracies = set()
    for name, net in keras_nets(tmp_path).items():
        given = "0..1" if name == "outside" else "known"
        fed = pixels if name == "whole" else pixels.astype(np.float32)
        own = net.predict(fed / np.float32(255) if name == "outside" else fed, verbose=0)
        served = opened(tmp_path / f"{name}.keras", tmp_path / name, preprocess=given)
        (found,) = run(served, "serving_default", bytes=files).values()
        np.testing.assert_allclose(found, own, atol=1e-5)
        assert (found.argmax(1) == labels).mean() == (own.argmax(1) == labels).mean()
        accuracies.add((found.argmax(1) == labels).mean())
        served.close()
    assert max(accuracies) > 0.8


@pytest.mark.slow
def test_warm_up_of_photos_and_of_arrays(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, content in enumerate(photos(3)):
        (folder / f"{number}.jpg").write_bytes(content)
    found = deploykit.export(echo(), tmp_path / "base", preprocess="0..1", warmup=str(folder))
    logs = [each.predict_log.request for each in read_requests(found.folder)]
    assert [each.model_spec.signature_name for each in logs] == ["serving_default"] * 3
    sent = [each.inputs["bytes"].string_val[0] for each in logs]
    assert sent == [each.read_bytes() for each in sorted(folder.iterdir())]
    arrays = tmp_path / "x.npz"
    np.savez(arrays, x=np.zeros((2, 12, 12, 3), np.float32))
    found = deploykit.export(echo(), tmp_path / "base", preprocess="0..1", warmup=str(arrays))
    logs = [each.predict_log.request for each in read_requests(found.folder)]
    assert [each.model_spec.signature_name for each in logs] == ["tensors"] * 2


@once_each(["channels"], [1, 3], quick=1)
def test_warm_up_takes_what_the_exported_model_accepts(tmp_path, caplog, channels):
    folder = tmp_path / "photos"
    folder.mkdir()
    whole = {"png": photos(2)[1], "large": written(np.zeros((90, 90, 3), np.uint8), "png")}
    whole |= {f"{kind}.webp": content for kind, content in WEBP.items()}
    whole |= {"cut.jpg": photos(1)[0][:90], "jxl": JPEG_XL}
    for name, content in whole.items():
        (folder / name).write_bytes(content)
    graph = echo((-1, 12, 12, channels))
    options = {"preprocess": "0..1", "max_pixels": 80 * 80}
    found = deploykit.export(graph, tmp_path / "base", **options, warmup=str(folder))
    sent = [each.predict_log.request.inputs["bytes"].string_val[0]
            for each in read_requests(found.folder)]  # fmt: skip
    served = opened(graph, tmp_path / "served", **options)
    wanted = []
    for name in sorted(whole):
        try:
            run(served, "serving_default", bytes=texts([whole[name]]))
        except ServingError:
            continue
        wanted.append(whole[name])
    served.close()
    assert whole["png"] in sent == wanted
    skipped = len(whole) - len(wanted)
    assert shows(caplog.text, "warm-up-skipped", count=skipped, every=len(whole))


@pytest.mark.parametrize(("scale", "largest"), [("0..1", 1), ("0..255", 255)])
def test_photos_to_warm_up_with_become_tensors_where_nothing_is_put_in_front(
    scale, largest, tmp_path
):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, content in enumerate(photos(2)):
        (folder / f"{number}.jpg").write_bytes(content)
    found = deploykit.export(echo(), tmp_path / "base", warmup=str(folder), warmup_preprocess=scale)
    assert set(found.signatures) == {"serving_default"}
    logs = [each.predict_log.request for each in read_requests(found.folder)]
    values = [decode(each.inputs["x"]) for each in logs]
    assert [each.shape for each in values] == [(1, 12, 12, 3)] * 2
    assert largest / 2 < max(each.max() for each in values) <= largest


def test_photos_to_warm_up_with_do_not_excuse_steps_that_nothing_takes(tmp_path):
    samples = tmp_path / "x.npz"
    np.savez(samples, x=np.zeros((2, 7), np.float32))
    with raises(GraphError, "photos-without-input"):
        deploykit.export(echo((-1, 7)), tmp_path / "base", preprocess="0..1", warmup=str(samples))
    assert not (tmp_path / "base").exists()


def test_what_has_no_photos_is_refused(tmp_path):
    text = echo((-1,), "string")
    for graph, given, why in (
        (text, "0..1", says("photos-without-input", inputs=Containing("x (string"))),
        (echo((-1, 7)), "0..1", says("photos-without-input")),
        (echo((-1, -1, -1, 3)), "0..1", says("preprocess-needs-resize")),
        (echo(), {"format": 1, "inputs": {}}, says("photo-range-unknown")),
        (echo(), "known", says("photo-range-unknown")),
        (echo(), {"format": 1, "inputs": {"z": {}}}, says("unknown-name", name="z")),
        (echo(bytes=(-1, 4)), "0..1", says("input-exists", name="bytes")),
    ):
        with pytest.raises(GraphError, match=why):
            deploykit.export(graph, tmp_path / "base", name="m", preprocess=given)
    assert not (tmp_path / "base" / "m").exists()


@pytest.mark.sampled
def test_what_is_known_of_a_model(tmp_path):
    path = tmp_path / "m.pb"
    graph = scored()
    deploykit.save_graph(graph, path)
    deploykit.save_graph(deploykit.freeze(path, preprocess="0..1", labels=NAMES), path, force=True)
    assert json.loads((tmp_path / "m.pb.json").read_text())["labels"] == NAMES
    served = opened(path, tmp_path / "base", preprocess="known")
    assert set(served.signatures["serving_default"].outputs) == {"classes", "scores", "y"}
    served.close()
    plain = opened(path, tmp_path / "plain")
    assert set(plain.signatures) == {"serving_default"}
    assert set(plain.signatures["serving_default"].inputs) == {"x"}
    plain.close()


def test_an_export_is_a_model_again(tmp_path):
    found = deploykit.export(scored(), tmp_path / "base", name="m", preprocess="0..1")
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, content in enumerate(photos(3)):
        (folder / f"{number}.jpg").write_bytes(content)
    frozen = deploykit.freeze(str(found.folder))
    from deploykit.data.samples import open_samples

    samples = open_samples(str(folder), frozen)
    (values,) = samples.arrays.values()
    assert values.tolist() == [each.read_bytes() for each in sorted(folder.iterdir())]
    with raises(GraphError, "preprocess-step-decided"):
        open_samples(str(folder), frozen, "0..1")


def test_steps_are_what_python_does():
    """The comparison itself would see another order of the steps."""
    steps = Steps(channels=3, resize=(12, 12), scale=1 / 255, mean=(0.5,), dtype="float32")
    other = Steps(channels=3, resize=(12, 12), scale=1 / 255, mean=(0.501,), dtype="float32")
    content = photos(1)[0]
    assert (in_python(steps, FILE, content) != in_python(other, FILE, content)).any()
