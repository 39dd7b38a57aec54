"""A plot is a picture of its kind with all names in it, and what cannot be one is said early."""

import dataclasses
import struct
import sys
from xml.etree import ElementTree

import pytest

from deploykit.benchmarking.settings import Settings
from deploykit.reporting.panels import ends, lines, varied
from deploykit.reporting.plots import check_plot, plot
from deploykit.transforms.core.errors import GraphError
from tests.deploykit.benchmarking.made_up_results import measurement, result

BATCHES = [measurement(f"batch {n}", 2.0 + n, Settings(batch=n), model="a.pb") for n in (1, 8, 32)]


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


def words(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_png_grows_with_the_measurements_and_with_a_curve():
    one = size(plot(result(measurement()), "a.png"))
    many = size(plot(result(*(measurement(f"{n}.pb") for n in range(12))), "a.PNG"))
    curve = size(plot(result(*BATCHES), "a.png"))
    assert one[0] == many[0] < curve[0]
    assert many[1] > 4 * one[1] / 2


def test_an_svg_holds_the_names_and_figures():
    found = words(plot(result(measurement("first.pb"), measurement("second.pb", 3.0)), "a.svg"))
    assert {"first.pb", "second.pb", "p50 6.00 ms", "p50 3.00 ms"} <= set(found)
    assert "AMD EPYC 7R13 Processor, 2 cores, TensorFlow 2.21.0, oneDNN on" in found
    assert {"latency of a call in ms", "time since the first run in s"} <= set(found)
    assert "items/s" not in found


def test_a_curve_goes_along_batches():
    found = words(plot(result(*BATCHES), "a.svg"))
    assert {"items/s", "1", "8", "32", "throughput against latency, by batch"} <= set(found)


def test_a_curve_has_a_line_for_each_model_and_setting():
    both = [
        measurement(f"{model} {n} {onednn}", 2.0 + n, Settings(onednn=onednn, concurrency=n),
                    model=f"models/{model}")
        for model in ("a.pb", "b.pb") for n in (4, 1) for onednn in (True, False)
    ]  # fmt: skip
    along = varied(both)
    assert along == "calls in flight"
    found = lines(both, along)
    assert [line.name for line in found] == [
        "a.pb, oneDNN on", "a.pb, oneDNN off", "b.pb, oneDNN on", "b.pb, oneDNN off",
    ]  # fmt: skip
    assert all([e.settings.concurrency for e in line.measurements] == [1, 4] for line in found)
    assert len({line.colour for line in found}) == 4
    assert {line.name for line in found} <= set(words(plot(result(*both), "a.svg")))


def test_models_of_one_file_name_keep_their_folders():
    pair = [measurement(model=model) for model in ("x/a.pb", "y/a.pb")]
    assert [line.name for line in lines(pair, "")] == ["x/a.pb", "y/a.pb"]


def test_a_single_slow_call_does_not_stretch_the_axis():
    calm = measurement()
    slow = dataclasses.replace(
        calm, rounds_ms=(*calm.rounds_ms, (6000.0,)), rounds_seconds=(*calm.rounds_seconds, 6.0)
    )
    assert ends([slow]).latencies_ms[1] < 15
    assert "max 6000 ms" in words(plot(result(slow), "a.svg"))


def test_the_same_result_gives_the_same_bytes():
    for name in ("a.svg", "a.png"):
        assert plot(result(*BATCHES), name) == plot(result(*BATCHES), name)


@pytest.mark.parametrize(
    "name", ["a$b$c_\\frac{.pb", "<&>\".pb", "\x01\udce9.pb", "模型.pb", "long " * 100]
)  # fmt: skip
def test_any_name_can_be_drawn(name, recwarn):
    for kind in ("a.svg", "a.png"):
        picture = plot(result(measurement(name), measurement(f"{name}2")), kind)
        assert kind.endswith("png") or len(words(picture)) > 10
    assert not recwarn.list


def test_many_calls_make_a_small_picture():
    many = tuple(0.1 + (n * 7919 % 1000) / 1e5 for n in range(200_000))
    found = measurement(rounds_ms=(many,), rounds_seconds=(20.0,), warm_up_ms=many)
    assert len(plot(result(found), "a.svg")) < 200_000


def test_equal_latencies_and_no_warm_up_can_be_drawn():
    found = measurement(rounds_ms=((5.0,),), rounds_seconds=(0.005,), warm_up_ms=())
    size(plot(result(found), "a.png"))


@pytest.mark.parametrize("name", ["a.pdf", "a", "png", ".png", "a.png.txt"])
def test_another_end_is_refused(name):
    with pytest.raises(GraphError, match=r"a plot is a \.png or an \.svg"):
        check_plot(name)
    with pytest.raises(GraphError, match=r"a plot is a \.png or an \.svg"):
        plot(result(measurement()), name)


def test_without_matplotlib_the_way_out_is_said(monkeypatch):
    check_plot("a.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(GraphError, match=r"pip install 'deploykit\[report\]'"):
        check_plot("a.png")


def test_neither_pyplot_nor_tensorflow_is_loaded():
    """A window system and a start of seconds."""
    import subprocess

    code = (
        "import sys\n"
        "from deploykit.reporting.plots import plot\n"
        "from tests.deploykit.benchmarking.made_up_results import measurement, result\n"
        "plot(result(measurement()), 'a.png')\n"
        "sys.exit(str({'matplotlib.pyplot', 'tensorflow'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.stderr.strip()
