"""The glossary explains terms that results contain, and names commands that exist."""

import ast
import re
from collections.abc import Iterator

from deploykit.cli.main import COMMANDS
from tests.docs.walking import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
PRINTING = ("rendering", "reporting", "cli/presenters", "benchmarking")  # in deploykit/
MOST_WORDS = 40


def rows() -> list[tuple[list[str], str, list[str]]]:
    """Return the terms of each row, their meaning, and the commands that print them."""
    lines = re.findall(r"^\| (`.*) \| (.*) \| (.*) \|$", GLOSSARY.read_text(), re.M)
    return [
        (re.findall("`(.+?)`", terms), meaning, re.findall("`([a-z][a-z-]*)`", where))
        for terms, meaning, where in lines
    ]


def printed() -> Iterator[str]:
    """Yield the texts that results are made of, and the results that tests compare."""
    for folder in PRINTING:
        for path in (ROOT / "deploykit" / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            explained = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
            for each in ast.walk(tree):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield "" if id(each) in explained else each.value
    for path in (ROOT / "deploykit" / "reporting").rglob("*.jinja"):
        yield path.read_text()
    for path in (ROOT / "tests" / "golden").glob("*.txt"):
        yield path.read_text()
    yield (ROOT / "tests/golden/gate/outputs.txt").read_text()


def lacking(terms: list[str]) -> list[str]:
    """Return the terms that no result contains."""
    text = "\n".join(printed())
    return [term for term in terms if not re.search(rf"\b{re.escape(term)}\b", text)]


def test_each_term_is_in_a_result():
    assert len(rows()) == 10
    assert lacking([term for terms, _, _ in rows() for term in terms]) == []


def test_a_term_that_no_result_contains_is_seen():
    assert lacking(["SQNR", "signal margin", "p5"]) == ["signal margin", "p5"]


def test_each_meaning_is_one_or_two_sentences_and_names_commands():
    for terms, meaning, commands in rows():
        assert len(re.findall(r"\.(?: |$)", meaning)) <= 2, terms
        assert len(meaning.split()) <= MOST_WORDS, terms
        assert commands, terms
        assert set(commands) <= set(COMMANDS), terms
