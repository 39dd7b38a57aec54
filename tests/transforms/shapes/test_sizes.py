import numpy as np
import pytest

from deploykit.transforms.shapes.sizes import broadcast


@pytest.mark.parametrize(
    ("shapes", "result"),
    [
        (((2, 3), (3,)), (2, 3)),
        (((2, 1), (1, 3)), (2, 3)),
        (((-1, 3), (1, 3)), (-1, 3)),
        (((-1, 3), (4, 3)), (4, 3)),
        (((), (4, 3)), (4, 3)),
        (((1,), (1, 1)), (1, 1)),
        ((None, (4, 3)), None),
    ],
)
def test_broadcast(shapes, result):
    assert broadcast(shapes) == result
    if result is not None and -1 not in [size for shape in shapes for size in shape]:
        assert result == np.broadcast_shapes(*shapes)
