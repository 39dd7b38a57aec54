"""What is checked of the arrays that a model is given, and when."""

import numpy as np
import pytest

from deploykit.serving.execution.servable import _check_shape, _check_type
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.signatures import Tensor
from tests.support import raises, shows

IMAGES = Tensor("x:0", "float32", (-1, 28, 28, 1))


def images(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


@pytest.mark.parametrize("shape", [(1, 28, 28, 1), (0, 28, 28, 1), (7, 28, 28, 1)])
def test_shapes_that_fit(shape):
    _check_shape("x", images(*shape), IMAGES)


@pytest.mark.parametrize("shape", [(28, 28, 1), (1, 28, 28, 3), (1, 28, 28, 1, 1), ()])
def test_shapes_that_do_not(shape):
    with pytest.raises(ServingError) as error:
        _check_shape("x", images(*shape), IMAGES)
    assert error.value.status == "INVALID_ARGUMENT"
    assert shows(str(error.value), "signature-shape", alias="x")


def test_any_shape_fits_one_that_is_not_known():
    _check_shape("x", images(3, 3), Tensor("x:0", "float32", None))


def test_no_type_is_cast():
    _check_type(0, "x", images(1), IMAGES)
    for dtype, name in ((np.float64, "double"), (np.int32, "int32"), (object, "string")):
        with raises(ServingError, "signature-argument", wanted="float", given=name):
            _check_type(0, "x", images(1, dtype=dtype), IMAGES)
