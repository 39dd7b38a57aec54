"""The keys of printed documents are pinned, and a change of them is seen."""

import pytest

from deploykit.cli.main import COMMANDS
from tests.documents import PINS, outline, pinned, pins

GROUPS = {"records": ("convert", "inspect", "verify"), "input": ("write",)}
LEAVES = {f"{name} {each}".strip() for name in COMMANDS for each in GROUPS.get(name, ("",))} - {
    "completion"
}  # it prints a script
DOCUMENT = {"schema": 1, "command": "x", "layers": [{"name": "a", "us": 1}], "notes": []}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "x.txt").write_text("\n".join([*outline(DOCUMENT), "more ?", "layers[].sqnr ?"]))
    return tmp_path


def test_every_command_is_pinned_with_its_schema():
    assert {path.stem for path in PINS.iterdir()} == LEAVES
    for command in LEAVES:
        always, _ = pins(command)
        assert {"schema", "command", "seconds"} <= always


@pytest.mark.parametrize("more", [{}, {"more": 1}, {"layers": []}, {"layers": [
    {"name": "a", "us": 1, "sqnr": 2}]}], ids=str)  # fmt: skip
def test_what_is_pinned_passes(folder, more):
    assert pinned(DOCUMENT | more, folder) == DOCUMENT | more


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (DOCUMENT | {"new": 1}, r"not pinned: \['new'\]"),
        (DOCUMENT | {"layers": [{"name": "a", "us": 1, "new": 1}]}, r"not pinned: \['layers\[\].n"),
        (DOCUMENT | {"layers": [{"name": "a"}]}, r"pinned and gone: \['layers\[\].us'\]"),
        ({k: v for k, v in DOCUMENT.items() if k != "notes"}, r"pinned and gone: \['notes'\]"),
        ({k: v for k, v in DOCUMENT.items() if k != "schema"}, r"pinned and gone: \['schema'\]"),
    ],
    ids=str,
)
def test_a_new_key_and_a_lost_one_are_seen(folder, document, said):
    with pytest.raises(AssertionError, match=said):
        pinned(document, folder)
