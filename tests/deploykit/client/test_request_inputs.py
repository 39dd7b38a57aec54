"""What is given to a served model as a request becomes its inputs, or is refused."""

import numpy as np
import pytest

from deploykit.client.request_inputs import arrays_from
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import SignatureDef
from tests.support import raises

VALUES = np.ones((4,), np.float32)


def signature(*names):
    tensors = {name: Tensor(f"{name}:0", "float32", (-1, 4)) for name in names}
    return Signature("", tensors, {}, SignatureDef())


@pytest.mark.parametrize("given", [["x.npy"], ["x=[1, 2, 3, 4]"], {"x": VALUES}])
def test_preprocessing_without_an_image_is_refused(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", VALUES)
    assert arrays_from(given, signature("x"))[0]["x"].shape == (1, 4)
    with raises(GraphError, "no-effect", option="--preprocess"):
        arrays_from(given, signature("x"), "0..1")


def test_preprocessing_of_an_input_that_is_none_is_refused():
    with raises(GraphError, "unknown-name", name="y", known=["x"]):
        arrays_from({"x": VALUES}, signature("x"), "y=0..1")


def test_an_input_that_is_given_twice_is_refused_with_the_list_that_works():
    numbers = Signature("", {"x": Tensor("x:0", "float32", (-1,))}, {}, SignatureDef())
    with raises(GraphError, "input-given-twice", name="x", example="[1, 2]"):
        arrays_from(["1", "2"], numbers)
    assert arrays_from(["[1, 2]"], numbers)[0]["x"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("[1, 2]", ["[1, 2]"]),
        ("[]", ["[]"]),
        ("[[1], [2, 3]", ["[[1], [2, 3]"]),
        ("[[1], [2, 3]]", ["[[1], [2, 3]]"]),
        ("[null]", ["[null]"]),
        ('[{"a": "b"}]', ['[{"a": "b"}]']),
        ("[100000000000000000000]", ["[100000000000000000000]"]),
        ("7", ["7"]),
        ("good great", ["good great"]),
        ('["[1, 2]"]', ["[1, 2]"]),
        ('["a", "b"]', ["a", "b"]),
    ],
)
def test_text_is_a_list_of_texts_only_where_it_holds_texts(given, expected):
    texts = Signature("", {"x": Tensor("x:0", "string", (-1,))}, {}, SignatureDef())
    for written in (given, f"x={given}"):
        assert arrays_from([written], texts)[0]["x"].tolist() == expected
