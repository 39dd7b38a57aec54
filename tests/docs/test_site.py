"""The site of the pages: its search finds what readers type, and it shows code as it is written."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from docs.generator.markdown import code
from tests.docs.walking import ROOT

CONFIG = (ROOT / "docs" / "mkdocs.yml").read_text()
NAVIGATION = [ROOT / path for path in re.findall(r": (\S+\.md)$", CONFIG, re.M)]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
ZENSICAL = ROOT / "build" / "site-venv" / "bin" / "zensical"
SEARCHED = {
    "label order": "accuracy",
    "soft placement": "benchmarking",
    "docker": "kubernetes",
    "kubernetes": "cluster",
    "glossary": "glossary",
}
"""What readers type, and the page that must have it in a heading: the search ranks these first."""


def headings(page: Path) -> str:
    """Return the headings of a page in lower case."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return "\n".join(re.findall(r"^#+ (.*)$", text, re.M)).lower()


def escaped_bars(text: str) -> list[str]:
    r"""Return the code spans in tables that have `\|`, which the site shows with its backslash."""
    rows = re.findall(r"^ *\|.*$", text, re.M)
    return [span for row in rows for span in re.findall(r"`[^`]*\\\|[^`]*`", row)]


def test_the_navigation_has_only_pages_that_exist():
    assert len(NAVIGATION) > 40
    assert [page for page in NAVIGATION if not page.exists()] == []


@pytest.mark.parametrize(("words", "name"), SEARCHED.items())
def test_the_search_finds_a_heading(words, name):
    assert name in {page.stem for page in NAVIGATION if words in headings(page)}


def test_no_code_in_a_table_has_an_escaped_bar():
    assert {str(page): found for page in PAGES if (found := escaped_bars(page.read_text()))} == {}


def test_an_escaped_bar_is_seen():
    text = "| a | b |\n|---|---|\n| `--x a\\|b` | c \\| d |\n  | `e` | `f\\|g` |\n\n`h\\|i`\n"
    assert escaped_bars(text) == [r"`--x a\|b`", r"`f\|g`"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a", "`a`"),
        ("a|b", "<code>a&#124;b</code>"),
        ("<a>|&", "<code>&lt;a&gt;&#124;&amp;</code>"),
    ],
)
def test_code_of_generated_tables(text, written):
    assert code(text) == written


def test_long_lines_of_code_wrap_or_scroll_visibly():
    (path,) = re.findall(r"^extra_css: \[(.*)\]$", CONFIG, re.M)
    rules = re.findall(r"\.md-typeset pre > code \{(.*?)\}", (ROOT / path).read_text(), re.S)
    assert any("white-space: pre-wrap" in rule for rule in rules)
    assert any("scrollbar-color" in rule for rule in rules)
    assert "'docs/*.css'" in (ROOT / "Makefile").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not ZENSICAL.exists(), reason="`make docs-site` has not installed Zensical")
def test_the_built_site():
    done = subprocess.run(["make", "docs-site"], cwd=ROOT, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    site = ROOT / "build" / "site"
    items = json.loads((site / "search.json").read_text())["items"]
    for words, name in SEARCHED.items():
        found = {item["location"] for item in items if words in item["title"].lower()}
        assert any(Path(location).name.startswith(name) for location in found), words
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= len(NAVIGATION)
    for page in pages:
        text = page.read_text()
        assert not re.search(r"<td[^>]*>(?:(?!</td>).)*<code>[^<]*\\\|", text), page
        assert "site.css" in text, page
    assert (site / "docs" / "site.css").exists()
