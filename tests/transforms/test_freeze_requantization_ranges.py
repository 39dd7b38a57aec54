import numpy as np
import pytest

from deploykit.transforms.common.errors import FileError, PipelineError
from deploykit.transforms.ir.graph import Graph
from tests.support import assert_golden, built, ops, random, refusal, run, says, tf, transform
from tests.transforms.examples import Example

LOGGING = 'insert_logging(op=RequantizationRange, show_name=true, message="__requant_min_max:")'
MARK = "2026-01-01 00:00:00.1: I logging_ops.cc:121] "


@built(["x"], ["out"])
def quantized():
    """Return a quantized matrix product whose range is measured at each run."""
    raw = tf.raw_ops
    x = raw.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
    a = raw.QuantizeV2(input=x, min_range=-1.0, max_range=1.0, T=tf.quint8, name="a")
    w = raw.QuantizeV2(input=random(4, 3), min_range=-1.0, max_range=1.0, T=tf.quint8, name="w")
    product = raw.QuantizedMatMul(
        a=a[0], b=w[0], min_a=a[1], max_a=a[2], min_b=w[1], max_b=w[2],
        Toutput=tf.qint32, name="product",
    )  # fmt: skip
    measured = raw.RequantizationRange(
        input=product[0], input_min=product[1], input_max=product[2], name="range"
    )
    small = raw.Requantize(
        input=product[0], input_min=product[1], input_max=product[2],
        requested_output_min=measured[0], requested_output_max=measured[1],
        out_type=tf.quint8, name="small",
    )  # fmt: skip
    raw.Dequantize(input=small[0], min_range=small[1], max_range=small[2], name="out")


def record(low, high, name: str = "range") -> str:
    return f"{MARK};{name}__print__;__requant_min_max:[{low}][{high}]"


@pytest.fixture
def freeze(tmp_path):
    def with_log(*lines: str, parameters: str = "", graph: Graph | None = None) -> Graph:
        path = tmp_path / "log"
        path.write_text("\n".join(lines) + "\n")
        text = f'freeze_requantization_ranges(min_max_log_file="{path}"{parameters})'
        return transform(graph or quantized(), text)

    return with_log


def frozen(graph: Graph) -> tuple[float, float]:
    return graph["range/frozen_min"].value.item(), graph["range/frozen_max"].value.item()


@pytest.mark.golden("freeze_requantization_ranges/quantized")
def test_golden(freeze):
    graph = quantized()
    assert_golden(graph, freeze(record(-0.5, 1.25), graph=graph))


def test_the_range_that_was_logged_gives_the_values_that_were_measured(freeze, capfd):
    """The log is a real one: of the graph that insert_logging made, run."""
    graph, feeds = quantized(), {"x": random(2, 4, seed=1)}
    logged = transform(graph, LOGGING)
    capfd.readouterr()
    expected = run(logged, feeds)[0]
    result = freeze(capfd.readouterr().err, graph=graph)
    assert "RequantizationRange" not in ops(result)
    assert result["small"].inputs[3:] == ("range/frozen_min", "range/frozen_max")
    np.testing.assert_allclose(run(result, feeds)[0], expected, atol=1e-6)


def test_lines_that_show_no_range_are_passed_over(freeze):
    result = freeze(
        "anything", ";range__print__;something else",
        record("one", 2), record(-1, "nan"), record("-inf", 1), record("", ""),
        ";range__print__;__requant_min_max:[-9]", ";range__print__;__requant_min_max:",
        f"{MARK}range;__requant_min_max:[-9][9]", ";range__print__;__requant_min_max:9[-9][9]",
        record(-2.4313571, 10.584145), "more",
    )  # fmt: skip
    assert frozen(result) == (np.float32(-2.4313571).item(), np.float32(10.584145).item())


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("", (-19, 20)),
        (", min_percentile=0, max_percentile=0", (-20, 20)),
        (", min_percentile=50, max_percentile=50", (-10, 11)),
        (", min_percentile=12.5", (-17, 20)),
        (", max_percentile=12.5", (-19, 19)),
        (", min_percentile=100, max_percentile=100", (-1, 1)),
    ],
)
def test_percentiles(freeze, parameters, expected):
    """With 20 records: how many of the lowest and of the highest count as outliers."""
    order = np.random.default_rng(0).permutation(np.arange(1, 21))
    lines = [record(-float(n), float(n)) for n in order]
    assert frozen(freeze(*lines, parameters=parameters)) == expected


def test_a_minimum_above_zero_counts_as_zero(freeze):
    """Requantize takes no other."""
    graph = freeze(record(0.5, 1.5))
    assert frozen(graph) == (0, 1.5)
    assert np.isfinite(run(graph, {"x": random(2, 4)})[0]).all()


def test_ranges_that_the_log_does_not_show_are_left_alone(freeze):
    graph = quantized()
    other = graph.add(graph["range"].with_name("other"))
    graph.outputs = ["out", "other:1", "range"]
    result = freeze(record(-1, 1), graph=graph)
    assert result["other"] is other
    assert result["range"] is graph["range"]  # an output keeps its name
    assert result["small"].inputs[3:] == ("range/frozen_min", "range/frozen_max")


REFUSED = [
    ([], ""), ([record(1, 2, name="gone")], ""), ([record(1, 2, name="out")], ""),
    ([record(-1, 0), record(-5, -3)], ", max_percentile=100, min_percentile=100"),
    ([record(1, 2)], ", min_percentile=101"), ([record(1, 2)], ", max_percentile=-1"),
]  # fmt: skip


@pytest.mark.golden("refusals/range_logs")
def test_what_cannot_be(freeze, tmp_path):
    said = (
        f"{lines}{parameters}\n{refusal(freeze, *lines, parameters=parameters)}"
        for lines, parameters in REFUSED
    )
    assert_golden(*(each.replace(f"{tmp_path}/", "") for each in said))


def test_a_log_is_needed_and_must_be_there():
    with pytest.raises(PipelineError, match=says("parameter-missing", name="min_max_log_file")):
        transform(quantized(), "freeze_requantization_ranges")
    with pytest.raises(FileError, match=r"nowhere\.log: No such file"):
        transform(quantized(), "freeze_requantization_ranges(min_max_log_file=nowhere.log)")
    with pytest.raises(FileError, match="No such file"):
        transform(quantized(), 'freeze_requantization_ranges(min_max_log_file="")')


GRAPHS = [Example("freeze_requantization_ranges(min_max_log_file={log})", quantized, bar=0.5)]
