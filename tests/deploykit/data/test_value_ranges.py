"""A value that does not fit the dtype of an input is an error in every input style."""

import numpy as np
import pytest

from deploykit.data.data import Data, open_data
from deploykit.data.pipeline import STYLES, Pipeline
from deploykit.data.pipeline_code import written
from deploykit.data.preprocessing import Preprocessing, Steps
from deploykit.data.preprocessing_plan import plan
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import numpy_type
from tests import pairwise
from tests.deploykit.data import made_up
from tests.deploykit.data.test_writing import batches_of
from tests.support import tf

CASES = [  # the kind of data, the dtypes of the feature and the input, values that fit and not
    *((kind, "int64", dtype, good, bad)
      for kind in ("records", "raw", "arrays")
      for dtype, good, bad in (
          ("int32", [2**31 - 1, -(2**31)], [2**31, -(2**31) - 1, 2**32, 2**62]),
          ("int8", [127, -128], [128, -129, 256]),
          ("int16", [-(2**15)], [2**15, 2**16]))),
    *(("arrays", "uint64", "int64", [2**63 - 1], [2**63, 2**64 - 1]),
      ("arrays", "int64", "bool", [0, 1], [2, -1, 256]),
      ("arrays", "int64", "uint8", [0, 255], [-1, 256]),
      ("arrays", "float64", "float32", [2.0**100, np.inf, -np.inf], [1e39]),
      ("arrays", "float32", "float16", [65504.0, np.nan], [1e6]),
      ("arrays", "complex128", "complex64", [1 + 2j, complex(0, np.inf)], [1e39, 1e39j]),
      ("arrays", "complex64", "complex128", [1 + 2j], []),
      ("arrays", "float64", "complex64", [2.5, np.inf], [1e39]),
      ("arrays", "int64", "complex64", [2**30, -3], []),
      ("arrays", "uint64", "complex64", [2**63], []),
      ("arrays", "bool", "complex64", [True, False], []),
      ("arrays", "float32", "int32", [-(2.0**31), 5.0], [2.0**31, 0.5, np.nan, np.inf]),
      ("csv", "float32", "int32", [-(2.0**31), 7.0], [2.0**31, -3e9, 0.5]),
      ("csv", "float32", "int8", [-128.0, 127.0], [128.0, -129.0, 1e9])),
]  # fmt: skip


def data_of(folder, kind, dtype, values) -> Data:
    """Write a value a row as a kind of data."""
    folder.mkdir()
    array = np.array(values, numpy_type(dtype))
    if kind == "arrays":
        np.savez(folder / "a.npz", x=array)
        return open_data(str(folder / "a.npz"))
    if kind == "csv":
        (folder / "a.csv").write_text("".join(f"{value!r}\n" for value in values))
        return open_data(str(folder / "a.csv"))
    if kind == "raw":
        feature = Feature("int64", (1,), "raw")
        contents = [made_up.example(x=[value.tobytes()]) for value in array]
    else:
        feature = Feature("int64")
        contents = [made_up.example(x=[int(value)]) for value in array]
    return made_up.write_shards(folder, {"x": feature}, contents)


def read(style, data, steps):
    """Return the values that a style reads. An error of it is None."""
    pipeline = Pipeline(data, {"x": steps}, batch=2)
    try:
        found = batches_of(written(pipeline)) if style == "code" else made_up.epoch(style, pipeline)
    except (GraphError, tf.errors.InvalidArgumentError):
        return None
    return np.concatenate([batch["x"].reshape(-1) for batch in found])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "dtype", "result", "good", "bad"), pairwise.drawn(__name__, CASES, 4, quick=4)
)
@pytest.mark.parametrize("style", [*STYLES, "code"])
def test_a_value_beyond_the_dtype_is_an_error(tmp_path, style, kind, dtype, result, good, bad):
    steps = Steps(feature="x", dtype=result)
    found = read(style, data_of(tmp_path / "good", kind, dtype, good), steps)
    assert found.dtype == numpy_type(result)
    np.testing.assert_array_equal(found, np.array(good, dtype).astype(found.dtype))
    for number, value in enumerate(bad):
        data = data_of(tmp_path / f"{number}", kind, dtype, [*good, good[0], value])
        assert read(style, data, steps) is None, value


COMPUTED = {2.9: 2, -2.9: -2, 127.9: 127, -128.9: -128, 128.0: None, -129.0: None, 1e9: None}


@pytest.mark.parametrize(("value", "expected"), COMPUTED.items())
@pytest.mark.parametrize("style", [*STYLES, "code"])
def test_computed_values_lose_their_fraction_only(tmp_path, style, value, expected):
    data = data_of(tmp_path / "data", "arrays", "float32", [1.0, value])
    found = read(style, data, Steps(feature="x", dtype="int8", scale=1.0))
    assert (None if found is None else found.tolist()) == (
        None if expected is None else [1, expected]
    )


@pytest.mark.parametrize(
    "steps", [Steps(scale=2.0), Steps(mean=(1.0,)), Steps(std=(2.0,)), Steps(resize=(2, 2))]
)
def test_steps_that_would_drop_the_imaginary_part_are_refused(tmp_path, steps):
    np.savez(tmp_path / "a.npz", x=np.full((2, 4, 4, 3), 1 + 2j, np.complex64))
    data = open_data(str(tmp_path / "a.npz"))
    assert plan(data, None, Preprocessing({"x": Steps(feature="x")}))["x"].steps.dtype
    with pytest.raises(GraphError) as caught:
        plan(data, None, Preprocessing({"x": steps}))
    assert caught.value.code == "preprocess-refused"
