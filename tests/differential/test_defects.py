"""Where the original is wrong, aborts or hangs: it does so, and deploykit does not."""

import importlib
import pkgutil

import pytest

from deploykit.transforms.common.errors import Error
from tests import pairwise
from tests.differential import defects
from tests.differential.case import placed
from tests.differential.defects.defect import Defect
from tests.support import transform

MODULES = sorted(module.name for module in pkgutil.iter_modules(defects.__path__))
DEFECTS: list[Defect] = [
    defect
    for name in MODULES
    if name != "defect"
    for defect in importlib.import_module(f"{defects.__name__}.{name}").DEFECTS
]
IDS = [f"{defect.transform}: {defect.what}" for defect in DEFECTS]


@pytest.mark.parametrize("defect", pairwise.drawn(__name__, DEFECTS, 40, quick=50), ids=IDS)
def test_right_where_the_original_is_not(defect: Defect, original, tmp_path):
    defect.files(tmp_path)
    before, text = defect.graph(), placed(defect.transforms, tmp_path)
    answer = original.ask(before, text, defect.seconds, outputs=defect.outputs)
    assert defect.shown(before, answer), answer
    try:
        ours = transform(before, placed(defect.ours, tmp_path) or text)
    except Error as refusal:
        ours = refusal
    assert defect.right(before, ours), str(ours)


def test_names_are_unique():
    assert len(set(IDS)) == len(IDS)
