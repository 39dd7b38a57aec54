"""One set of decisions in both forms: that of oneDNN's kernels and codes in plain ops."""

import pytest

from deploykit.pipelines.int8 import codes_graph, int8_graph
from deploykit.transforms.int8.stored_codes import holds_codes
from deploykit.transforms.runtime.differences import compare
from tests.support import ops, run
from tests.transforms.int8_nets import calibrated, feeds_of
from tests.transforms.test_quantize_static import inception, residual

EQUAL_DB = 40.0  # a code that is rounded the other way here and there; one net's noise is 30 to 45


@pytest.mark.parametrize("make", [residual, inception])
def test_codes_give_the_numbers_of_the_8_bit_form(make, in_process, tmp_path):
    graph = make()
    path, feeds = calibrated(graph, tmp_path), feeds_of(graph, 3)
    codes, eight = codes_graph(graph, path), int8_graph(graph, path)  # for this processor
    assert holds_codes(codes)
    assert not holds_codes(eight)
    assert not holds_codes(graph)
    assert "Cast" in ops(codes)
    assert min(each.sqnr_db for each in compare(run(eight, feeds), run(codes, feeds))) >= EQUAL_DB


def test_layers_stay_float_where_they_are_to(in_process, tmp_path):
    graph = residual()
    path = calibrated(graph, tmp_path)
    codes = codes_graph(graph, path, "vnni", ["second"])
    assert codes["second"].inputs[1] == graph["second"].inputs[1]
    assert codes["third"].inputs[1] != graph["third"].inputs[1]
    every = codes_graph(graph, path, "vnni", ["first", "second", "third"])
    assert not holds_codes(every)
