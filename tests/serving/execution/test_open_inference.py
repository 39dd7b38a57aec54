"""What the Open Inference Protocol computes of arrays: the only input, and the best classes."""

import numpy as np
import pytest

from deploykit.serving.execution.open_inference import check_classes, only_input, with_classes
from deploykit.serving.protocol.codec import MAX_STRINGS
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.ir.protos import SignatureDef
from tests.support import raises


def signature(dtype: str, *shapes, outputs=()) -> Signature:
    """Return a signature of inputs x0, x1, ... and the output y of these shapes."""
    inputs = {f"x{n}": Tensor(f"x{n}:0", dtype, shape) for n, shape in enumerate(shapes)}
    given = [("y", Tensor("y:0", dtype, shape)) for shape in outputs]
    return Signature("", inputs, dict(given), SignatureDef())


@pytest.mark.parametrize(
    ("dtype", "shape", "size", "expected"),
    [
        ("float32", (-1, 3), 24, (2, 3)),
        ("float32", (-1, 3), 0, (0, 3)),
        ("int64", (2, -1, 2), 64, (2, 2, 2)),
        ("uint8", (3,), 3, (3,)),
        ("float16", None, 6, (3,)),
        ("bfloat16", (), 2, ()),
        ("bool", (-1,), 5, (5,)),
        ("float32", (-1, 0), 0, (0, 0)),
    ],
)
def test_the_shape_follows_from_the_number_of_bytes(dtype, shape, size, expected):
    found = only_input("m", signature(dtype, shape), memoryview(bytes(size)))
    assert found["x0"].shape == expected


@pytest.mark.parametrize(
    ("dtype", "shapes", "size", "code"),
    [
        ("float32", [(-1, 3)], 25, "infer-raw-body-size"),
        ("float32", [(-1, 3)], 16, "infer-raw-body-size"),
        ("float32", [(-1, 0)], 4, "infer-raw-body-size"),
        ("float32", [(2, 3)], 20, "infer-contents-size"),
        ("float32", [(-1, -1)], 24, "infer-raw-body-shape"),
        ("string", [(-1, 2)], 24, "infer-raw-body-shape"),
        ("string", [(0,)], 0, "infer-raw-body-shape"),
        ("float32", [(-1,), (-1,)], 8, "infer-raw-body-inputs"),
        ("float32", [], 0, "infer-raw-body-inputs"),
        ("complex64", [(-1,)], 8, "infer-datatype-unknown"),
    ],
)
def test_bodies_that_are_no_input(dtype, shapes, size, code):
    with raises(ServingError, code):
        only_input("m", signature(dtype, *shapes), memoryview(bytes(size)))


@pytest.mark.parametrize("shape", [(), (-1,), (1,), (-1, 1), (-1, -1), None])
@pytest.mark.parametrize("content", [b"", b"\x04\0\0\0abcd"])
def test_a_body_is_one_string(shape, content):
    found = only_input("m", signature("string", shape), memoryview(content))["x0"]
    assert found.ravel().tolist() == [content]
    assert found.ndim == (1 if shape is None else len(shape))


def best(array, count, shape, labels=()):
    """Return the best classes of an output that the signature declares of this shape."""
    about = signature("float32", (-1,), outputs=[shape])
    found = with_classes(about, {"y": array}, {"y": count}, labels)["y"]
    return np.vectorize(bytes.decode, [object])(found).tolist() if found.size else found.shape


def test_the_best_classes_of_each_row():
    scores = np.array([[0.25, 0.5, 0.25], [np.nan, -1, np.inf]], np.float32)
    assert best(scores, 2, (-1, 3)) == [
        ["0.500000:1", "0.250000:0"], ["inf:2", "-1.000000:1"]
    ]  # fmt: skip
    assert best(scores, 1, (2, 3)) == ["inf:5"]  # a fixed size is not a batch
    assert best(scores, 9, (-1, 3), ["a", "ß", "c"])[1] == ["inf:2:c", "-1.000000:1:ß", "nan:0:a"]
    assert best(scores, 1, (-1, 3), ["a", "b"]) == [["0.500000:1"], ["inf:2"]]
    assert best(scores[:0], 2, (-1, 3)) == (0, 2)
    assert best(scores[0], 5, (-1,)) == [["0.250000:0"], ["0.500000:0"], ["0.250000:0"]]


def test_whole_numbers_stay_exact():
    numbers = np.array([[2**53, 2**53 + 1, -(2**63)]])
    assert best(numbers, 3, (-1, 3)) == [
        [f"{2**53 + 1}:1", f"{2**53}:0", f"{-(2**63)}:2"]
    ]  # fmt: skip
    assert best(np.array([[3, 255, 0]], np.uint8), 2, (-1, 3)) == [["255:1", "3:0"]]


def test_more_classes_than_strings_may_be():
    with raises(ServingError, "strings-too-many"):
        best(np.zeros((MAX_STRINGS // 8, 9), np.int8), 9, (-1, 9))


@pytest.mark.parametrize("dtype", ["string", "bool", "complex64"])
def test_classes_need_numbers(dtype):
    with raises(ServingError, "infer-classes-datatype", name="y"):
        check_classes(signature(dtype, (-1,), outputs=[(-1, 2)]), {"y": 1})
