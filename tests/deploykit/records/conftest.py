"""Data of every kind in small, and what TensorFlow reads of the records that were made of them."""

import gzip
import pickle
import struct

import numpy as np
import pytest

from deploykit.records import images
from deploykit.records.images import Decoder
from deploykit.records.index import load_index
from tests.support import tf

LABELS = ("cat", "dog")


def parsed(folder, name=None):
    """Return all values by feature, as TensorFlow parses them by the index: arrays or lists."""
    index = load_index(folder, name)
    spec = {}
    for each, feature in index.features.items():
        if feature.content or feature.dtype == "string":
            shape = [] if feature.content else list(feature.shape)
            spec[each] = tf.io.FixedLenFeature(shape, tf.string)
        else:
            spec[each] = tf.io.FixedLenFeature(list(feature.shape), feature.dtype)
    data = tf.data.TFRecordDataset(index.files(folder), compression_type=index.compression)
    batch = next(iter(data.batch(max(index.records, 1) + 1)))
    assert len(batch) == index.records
    found = {}
    for each, value in tf.io.parse_example(batch, spec).items():
        feature = index.features[each]
        if feature.content == "raw":
            value = tf.io.decode_raw(value, feature.dtype)
            value = tf.reshape(value, [-1, *feature.shape])
        found[each] = value.numpy()
    return found


def jpeg(color=(255, 0, 0), size=8, seed=None):
    """Return a JPEG file: one colour, or noise."""
    pixels = np.full((size, size, 3), color, np.uint8)
    if seed is not None:
        pixels = np.random.default_rng(seed).integers(0, 256, pixels.shape).astype(np.uint8)
    return tf.io.encode_jpeg(pixels).numpy()


def png(seed=0, size=8, channels=3):
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, channels)).astype(np.uint8)
    return tf.io.encode_png(pixels).numpy()


def numbers(path, rows=10, columns=4, seed=0, label=int, header=None):
    """Write a CSV file of numbers, the label last; return inputs and labels."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, columns)).astype(np.float32)
    y = random.integers(0, 2, rows)
    lines = [",".join([*(f"{v:.9g}" for v in row), str(label(of))])
             for row, of in zip(x, y.tolist(), strict=True)]  # fmt: skip
    path.write_text("\n".join([*([header] if header else []), *lines]) + "\n")
    return x, y


def idx_bytes(array, packed=False):
    """Return an IDX file of bytes."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    content = header + array.astype(np.uint8).tobytes()
    return gzip.compress(content) if packed else content


def cifar_batch(path, count=4, seed=0, hundred=False, binary=True, protocol=2):
    """Write a batch of CIFAR; return images [count, 32, 32, 3] and labels [count, 1 or 2]."""
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 256, (count, 3072)).astype(np.uint8)
    labels = random.integers(0, 10, (count, 2 if hundred else 1))
    if binary:
        path.write_bytes(np.hstack([labels.astype(np.uint8), pixels]).tobytes())
    else:
        names = (b"coarse_labels", b"fine_labels") if hundred else (b"labels",)
        lists = dict(zip(names, labels.T.tolist(), strict=True))
        extra = {b"batch_label": b"batch 1", b"filenames": [b"a.png"] * count}
        path.write_bytes(pickle.dumps({b"data": pixels, **lists, **extra}, protocol=protocol))
    return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels


@pytest.fixture
def pictures(tmp_path):
    """A folder with two classes of three JPEG files each."""
    folder = tmp_path / "pictures"
    for number, name in enumerate(LABELS):
        (folder / name).mkdir(parents=True)
        for each in range(3):
            (folder / name / f"{each}.jpg").write_bytes(jpeg(seed=10 * number + each))
    return folder


@pytest.fixture
def decoder_here(monkeypatch):
    """Decode in this process, which has started TensorFlow already; return the option for it."""

    class Here:
        def __init__(self, kind):
            self.decoder = Decoder()

        def ask(self, method, *arguments):
            return getattr(self.decoder, method)(*arguments)

        def close(self):
            pass

    monkeypatch.setattr(images, "Worker", Here)
    return ["--processes", "1"]
