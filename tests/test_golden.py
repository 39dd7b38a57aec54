"""Each golden file belongs to one test; those of a transform show the graph before and after."""

from collections import Counter

import pytest

from deploykit.transforms.ir import pipeline
from tests import support
from tests.support import GOLDEN, assert_golden, assert_written, golden_name

FILES = sorted(str(p.relative_to(GOLDEN)).removesuffix(".txt") for p in GOLDEN.rglob("*.txt"))


def test_each_golden_file_belongs_to_one_test(request):
    tests = request.config.stash[support.COLLECTED]
    marking = {p for p in GOLDEN.parent.rglob("test_*.py") if "mark.golden" in p.read_text()}
    if not marking <= {test.path for test in tests}:
        pytest.skip("only some of the tests were collected")
    names = Counter(name for test in tests if (name := golden_name(test)))
    assert names == Counter(FILES)


@pytest.mark.parametrize("transform", pipeline.names())
def test_each_transform_shows_a_graph_before_and_after(transform):
    names = [name for name in FILES if name.split("/")[0] == transform]
    assert names
    for name in names:
        before, after = (GOLDEN / f"{name}.txt").read_text().split("---\n")
        assert before != after


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_test_without_the_mark_compares_no_golden_file(mode, monkeypatch, tmp_path):
    monkeypatch.setenv("DEPLOYKIT_GOLDEN", mode)
    with pytest.raises(AssertionError, match="name the golden"):
        assert_golden("text")
    with pytest.raises(AssertionError, match="mark the test"):
        assert_written(tmp_path / "text", "text")
    assert not list(tmp_path.iterdir())
