"""The README is short and true: its two commands, its tour, its table of commands."""

import re
from pathlib import Path

import pytest

from deploykit.cli.main import COMMANDS
from tests.docs.walking import blocks, walk, without_digits

README = Path(__file__).parents[1] / "README.md"


def test_a_stranger_reads_it_in_three_minutes():
    assert len(README.read_bytes()) <= 8000


def test_the_two_commands_are_all_that_a_fresh_machine_needs():
    lines = [line for _, text in blocks(README, "sh") for line in text.splitlines()]
    assert [line.split("#")[0].strip() for line in lines] == [
        "pip install '.[tf]'", "make demo", "make test",
    ]  # fmt: skip


def test_the_table_names_all_commands():
    table = README.read_text().split("## Commands")[1].split("\n\n")[1]
    first = [row.split("|")[1] for row in table.splitlines()[2:]]
    named = {name.split()[0] for cell in first for name in re.findall(r"`(.+?)`", cell)}
    assert named == set(COMMANDS)


@pytest.mark.slow  # a minute; that the options exist is among the tests of all pages
def test_the_tour_prints_what_it_says(tmp_path):
    """Figures may differ from processor to processor, so digits are not compared."""
    found = walk(README, tmp_path)
    assert len(found) == 2
    for said, printed in found:
        assert without_digits(printed) == without_digits(said)
