"""Values that do not fit what a public function declares are refused before anything is read."""

import math

import numpy as np
import pytest

import deploykit
from tests.support import Containing, raises

F = "no_such_file.pb"


@pytest.mark.parametrize(
    ("call", "name", "got"),
    [
        (lambda: deploykit.benchmark(F, seconds=-1), "seconds", -1),
        (lambda: deploykit.benchmark(F, seconds=0), "seconds", 0),
        (lambda: deploykit.benchmark(F, runs=0), "runs", 0),
        (lambda: deploykit.benchmark(F, timing=deploykit.BenchmarkOptions(runs=-1)), "runs", -1),
        (lambda: deploykit.benchmark(F, batch=[1, 0]), "batch", 0),
        (lambda: deploykit.quantize(F, minimum_size=-5), "minimum_size", -5),
        (lambda: deploykit.quantize(F, budget=math.inf), "budget", math.inf),
        (lambda: deploykit.inspect(F, top=np.int64(-1)), "top", -1),
        (lambda: deploykit.calibrate(F, {}, batch=0), "batch", 0),
        (lambda: deploykit.verify(F, F, tolerance=-1), "tolerance", -1),
        (lambda: deploykit.infer(F, "x", "y", retries=-1), "retries", -1),
        (lambda: deploykit.accuracy(F, F, show_errors=-1), "show_errors", -1),
        (lambda: deploykit.export(F, "m", warmup_samples=0), "warmup_samples", 0),
        (lambda: deploykit.verify(F, F, input_range=(1, -1)), "input_range", [1, -1]),
        (lambda: deploykit.verify(F, F, input_range=(0, 1, 2)), "input_range", [0, 1, 2]),
        (lambda: deploykit.verify(F, F, input_range=(0, 1e39)), "input_range", [0, 1e39]),
    ],
)
def test_numbers_out_of_range(call, name, got):
    with raises(deploykit.GraphError, "out-of-range", name=name, got=got):
        call()


def test_nan_is_in_no_range():
    with raises(deploykit.GraphError, "out-of-range", name="seconds"):
        deploykit.benchmark(F, seconds=math.nan)


def test_words_that_are_not_known():
    with raises(deploykit.GraphError, "not-one-of", what="isa", got="sse"):
        deploykit.quantize(F, isa="sse")
    with raises(deploykit.GraphError, "not-one-of", what="manifests", got="helm"):
        deploykit.ship(F, manifests=["docker", "helm"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: deploykit.verify(F, F, tolerance="x"), ": tolerance .*'x'"),
        (lambda: deploykit.benchmark(F, batch="1,8"), ": batch .*'1,8'"),
        (lambda: deploykit.inspect(F, outputs="y"), ": outputs .* strings"),
        (lambda: deploykit.quantize(F, skip="abc"), ": skip .* strings"),
        (lambda: deploykit.ship(F, manifests="docker"), ": manifests .* strings"),
        (lambda: deploykit.benchmark(F, runs=2.5), r": runs .* 2\.5"),
        (lambda: deploykit.benchmark(F, runs=True), ": runs .* True"),
        (lambda: deploykit.transform(F, ["fold"]), ": transforms .* string"),
        (lambda: deploykit.quantize(F, "avx2", mode="auto"), ": how .* QuantizeOptions"),
        (lambda: deploykit.quantize(F, None), ": how .* QuantizeOptions.* None"),
        (
            lambda: deploykit.benchmark(F, [deploykit.RunConfig()], batch=[1]),
            ": batch .*settings.* list",
        ),
    ],
)
def test_values_of_other_types(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "file"),
    [
        (lambda: deploykit.verify(F, F, tolerance=0, input_range=(-1, 1)), F),
        (lambda: deploykit.inspect(F, top=np.int32(3), outputs=("y",)), F),
        (lambda: deploykit.benchmark(F, batch=range(1, 3), executor={"default"}), F),
        (lambda: deploykit.benchmark(F, batch=np.array([1, 2]), kmp_blocktime=0), F),
        (lambda: deploykit.verify(F, F, input_range=np.array([0.0, 1.0])), F),
        (lambda: deploykit.benchmark(F, batch=(1, 8), seconds=np.float32(0.5)), F),
    ],
)
def test_what_fits_goes_on(call, file):
    with pytest.raises(deploykit.FileError, match=file):
        call()


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory):
    graph = deploykit.freeze("models/fashion/fashion.keras")
    path = tmp_path_factory.mktemp("graph") / "f.pb"
    deploykit.save_graph(graph, path)
    return path


@pytest.mark.sampled
@pytest.mark.parametrize(
    "option",
    [
        {"tags": ("serve",)},
        {"graph": "model.json"},
        {"signature": "serving_defaul"},
        {"pins": {"is_training": "false"}},
    ],
    ids=lambda option: next(iter(option)),
)
def test_what_means_nothing_for_a_model_is_logged(graph_file, caplog, option):
    deploykit.open_model(graph_file, **option)
    ((name, value),) = option.items()
    assert caplog.messages == [Containing(f"{graph_file}: {name} {value} ")]
    caplog.clear()
    deploykit.open_model(graph_file, signature="serving_default")
    assert caplog.messages == []
