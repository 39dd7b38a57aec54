"""A plot is a picture of its kind with all names in it, and what cannot be one is said early."""

import dataclasses
import os
import struct
import sys
from xml.etree import ElementTree

import pytest

from deploykit.benchmarking.run_config import RunConfig
from deploykit.reporting.charts.curves import curve_lines, varied
from deploykit.reporting.charts.plots import check_plot, plot, plot_loads
from deploykit.reporting.charts.strips import latency_limits
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.support import Containing, because, raises, showing, shows

BATCHES = [measurement(f"batch {n}", 2.0 + n, RunConfig(batch=n), model="a.pb") for n in (1, 8, 32)]


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


def words(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.sampled
def test_a_png_grows_with_the_measurements():
    one = size(plot(result(measurement()), "a.png"))
    many = size(plot(result(*(measurement(f"{n}.pb") for n in range(12))), "a.PNG"))
    assert one[0] == many[0]
    assert many[1] > 3 * one[1]


def test_an_svg_holds_the_names_and_figures():
    found = words(plot(result(measurement("first.pb"), measurement("second.pb", 3.0)), "a.svg"))
    assert {"first.pb", "second.pb", "second.pb: speed"} <= set(found)
    assert any(each.startswith("p50 6.00 ms, p99 ") for each in found)
    assert any(each.startswith("p50 3.00 ms, p99 ") for each in found)
    assert Containing("AMD EPYC 7R13", "2 ", "TensorFlow 2.21.0", "oneDNN") in found
    assert "Latencies" in found
    assert "Items per second" not in found


def test_a_curve_goes_along_batches():
    found = words(plot(result(*BATCHES), "a.svg"))
    assert {"Items per second", "1", "8", "32", "Throughput over latency, by batch"} <= set(found)


def test_a_curve_has_a_line_for_each_model_and_setting():
    both = [
        measurement(f"{model} {n} {onednn}", 2.0 + n, RunConfig(onednn=onednn, concurrency=n),
                    model=f"models/{model}")
        for model in ("a.pb", "b.pb") for n in (4, 1) for onednn in (True, False)
    ]  # fmt: skip
    along = varied(both)
    assert along == "calls in flight"
    found = curve_lines(both, along)
    assert [line.name for line in found] == [
        "a.pb, oneDNN on", "a.pb, oneDNN off", "b.pb, oneDNN on", "b.pb, oneDNN off",
    ]  # fmt: skip
    assert all([e.settings.concurrency for e in line.measurements] == [1, 4] for line in found)
    assert {line.name for line in found} <= set(words(plot(result(*both), "a.svg")))


def test_models_of_one_file_name_keep_their_folders():
    pair = [measurement(model=model) for model in ("x/a.pb", "y/a.pb")]
    assert [line.name for line in curve_lines(pair, "")] == ["x/a.pb", "y/a.pb"]


def test_a_single_slow_call_does_not_stretch_the_axis_and_is_counted():
    calm = measurement()
    slow = dataclasses.replace(
        calm, rounds_ms=(*calm.rounds_ms, (6000.0,)), rounds_seconds=(*calm.rounds_seconds, 6.0)
    )
    assert latency_limits([slow])[1] < 15
    found = words(plot(result(slow), "a.svg"))
    assert Containing("6.00 s", "411", "1 ") in found


@pytest.mark.slow
def test_the_same_result_gives_the_same_bytes():
    for name in ("a.svg", "a.png"):
        assert plot(result(*BATCHES), name) == plot(result(*BATCHES), name)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", ["a$b$c_\\frac{.pb", "<&>\".pb", "\x01\udce9.pb", "模型.pb", "long " * 100]
)  # fmt: skip
def test_any_name_can_be_drawn(name, recwarn):
    for kind in ("a.svg", "a.png"):
        picture = plot(result(measurement(name), measurement(f"{name}2")), kind)
        assert kind.endswith("png") or len(words(picture)) > 10
    assert not recwarn.list


@pytest.mark.sampled
def test_many_calls_make_a_small_picture():
    many = tuple(0.1 + (n * 7919 % 1000) / 1e5 for n in range(200_000))
    found = measurement(rounds_ms=(many,), rounds_seconds=(20.0,))
    assert len(plot(result(found), "a.svg")) < 100_000


def test_equal_latencies_can_be_drawn():
    found = measurement(rounds_ms=((5.0,),), rounds_seconds=(0.005,))
    size(plot(result(found), "a.png"))


@pytest.mark.parametrize("name", ["a.pdf", "a", "png", ".png", "a.png.txt"])
def test_another_end_is_refused(name):
    with raises(GraphError, "plot-ending"):
        check_plot(name)
    with raises(GraphError, "plot-ending"):
        plot(result(measurement()), name)


def test_neither_pyplot_nor_tensorflow_is_loaded_and_nothing_is_said_without_a_home():
    """A window system, a start of seconds, and a cache that has nowhere to go."""
    import subprocess

    code = (
        "import sys\n"
        "from deploykit.reporting.charts.plots import plot\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from tests.deploykit.benchmarking.made_up_results import measurement, result\n"
        "plot(result(measurement()), 'a.png')\n"
        "sys.exit(str({'matplotlib.pyplot', 'tensorflow'} & set(sys.modules) or ''))"
    )
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), "/proc/none")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={k: v for k, v in os.environ.items() if k != "MPLCONFIGDIR"} | nowhere,
    )  # fmt: skip
    assert not done.stderr.strip()


LOADS = [
    {"callers": callers, "rate": rate, "latency_ms": {"p50": 2.0, "p99": 9.0 + callers},
     "throughput": 100.0 * callers + rate, "generator_limited": callers == 8}
    for callers, rate in ((1, 0.0), (8, 0.0), (0, 250.0))
]  # fmt: skip
NO_ANSWER = {"callers": 99, "rate": 0.0, "latency_ms": {}, "throughput": 0.0,
             "generator_limited": False}  # fmt: skip


def load_test(*loads: dict) -> dict:
    return {"address": "localhost:8500", "model": "shapes", "loads": loads,
            "latency_limit_ms": 20.0, "highest_rate": 311.0}  # fmt: skip


def test_a_load_test_names_its_loads_and_what_limits_them():
    found = words(plot_loads(load_test(*LOADS, NO_ANSWER), "a.svg"))
    assert {"1 client", "8 clients", "250 requests/s", "shapes at localhost:8500"} <= set(found)
    assert "99 clients" not in found
    assert showing("loads-without-response", count=1, every=4) in found
    assert shows(" ".join(found), "load-within-limit", limit=20, rate="311 requests/s")
    assert shows(" ".join(found), "loads-of-generator", count=1)


def test_a_load_test_without_an_answer_says_so():
    assert because("nothing-answered") in words(plot_loads(load_test(NO_ANSWER), "a.svg"))
    size(plot_loads(load_test(NO_ANSWER), "a.png"))


@pytest.mark.sampled
def test_the_style_of_the_user_changes_nothing():
    from matplotlib import rc_context

    plain = plot(result(*BATCHES), "a.svg")
    with rc_context({"font.size": 30, "text.usetex": True, "svg.fonttype": "path"}):
        assert plot(result(*BATCHES), "a.svg") == plain
