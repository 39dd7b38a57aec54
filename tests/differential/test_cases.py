"""Each case through both tools: the same graph and the same numbers, but for what is listed."""

import importlib
import pkgutil
import random

import pytest

from deploykit.transforms.common.errors import Error
from tests import pairwise
from tests.differential import cases
from tests.differential.case import Case, Refusal, placed
from tests.differential.comparison import differences, left_over
from tests.differential.deviations import DEVIATIONS, with_wide_ranges
from tests.differential.graphs import feeds
from tests.support import error, transform

MODULES = sorted(module.name for module in pkgutil.iter_modules(cases.__path__))


def parameters(kind: type) -> list:
    """Return the cases of all modules in `cases`, each under the module's name and its own."""
    found = []
    for name in MODULES:
        for case in importlib.import_module(f"{cases.__name__}.{name}").CASES:
            if isinstance(case, kind):
                found.append((f"{name}: {case.what}", case))
    long = [name for name, case in found if getattr(case, "slow", False)]
    short = [name for name, case in found if not getattr(case, "slow", False)]
    others = long + [name for place, name in enumerate(short) if place % 3 and kind is Case]
    slow = random.Random(f"{pairwise.seed()} {__name__}").sample(others, len(others) // 3)
    quick = {*short}.difference(others)
    return [
        pytest.param(case, id=name, marks=pairwise.marks(name, slow, quick)) for name, case in found
    ]


@pytest.mark.parametrize("case", parameters(Case))
def test_equal(case, original, tmp_path):
    case.files(tmp_path)
    before = case.graph()
    peer = original.ask(before, placed(case.transforms, tmp_path)).graph(before)
    ours = transform(before, placed(case.ours or case.transforms, tmp_path))
    expected, names, values = with_wide_ranges(peer), True, True
    for name in case.deviations:
        deviation = DEVIATIONS[name]
        names = names and not deviation.renames
        values = values and not deviation.rounds
        if deviation.rewrite is not None:
            unchanged = str(expected)
            expected = deviation.rewrite(expected)
            assert str(expected) != unchanged, f"'{name}' makes no difference here"
    assert not differences(expected, ours, case.tolerance, names)
    assert names or differences(expected, ours, case.tolerance), "the names do not differ"
    assert values or differences(expected, ours, 0.0, names), "the values do not differ"
    assert not left_over(ours)
    assert ours.versions == before.versions
    assert error(peer, ours, feeds(before)) <= case.tolerance


@pytest.mark.parametrize("case", parameters(Refusal))
def test_refused_by_both(case, original, tmp_path):
    case.files(tmp_path)
    before, text = case.graph(), placed(case.transforms, tmp_path)
    assert case.theirs in original.ask(before, text).error
    with pytest.raises(Error) as refusal:
        transform(before, text)
    case.ours(refusal.value)


def test_names_are_unique():
    ids = [parameter.id for kind in (Case, Refusal) for parameter in parameters(kind)]
    assert len(set(ids)) == len(ids)
