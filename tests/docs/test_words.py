"""Docstrings, comments, strings, pages and public names use the field's words, no private ones."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import deploykit
from tests.docs.walking import ROOT

DENIED = re.compile(
    r"""
    \b(?:(?:put\ |a\ model\ )?in\ 8\ bits|(?:stays?|keeps?|turned\ back\ to)\ float\b(?!32)
    |made[- ]up|samples\ of\ real\ use|kept\ aside|to\ judge\ by|judged?\ (?:by|as|of)
    |foreseen?|foresaw|contestants?|for\ sure|the\ calls\ scatter|calls\ at\ the\ same\ time
    |bears?\ a\ load|held\ loads?|is\ asked|are\ asked|asked\ for|is\ wanted|wanted\ range
    |is\ none\ of|(?:cannot|can)\ be\ had|is\ had|goes\ on|whole\ or\ not\ at\ all|rows\ mix
    |lies\ beside|stands\ in|it\ is\ said|is\ said|are\ said|is\ told|are\ told|left\ out
    |passed\ over|anew|so\ many\b(?!\ that)|how(?:so)?ever\ many|whoever|anybody|nobody|somebody
    |what\ becomes|cut\ short|does\ not\ pay|lone\ calls?|misfused|aliveness|lettering|seating
    |is\ no\ (?!longer|more|less|better|worse|such|need|other|way)[a-zA-Z]+
    |departs|the\ bar\ of|say\ (?:how|what|which|whether|why)|in\ turn\b)
    """,
    re.VERBOSE | re.IGNORECASE,
)
ALLOWED = (
    "engine-departs", "force-begins-anew",  # codes of errors
    '"left out"', "`left out`",  # a value in documents of ship
    "no layer '",  # of the name of a layer
    "len(contestants)", "foreseen_ms",  # names in code
)  # fmt: skip
"""Parts of lines in which words of the list are codes, keys or names."""
PRODUCT = ("deploykit", "transforms", "serving", "docs/generator")
CODE = (".py", ".pyi")
STRINGS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def product_files() -> list[Path]:
    """Return the modules, templates and pages whose text users or developers read."""
    code = [
        path
        for top in PRODUCT
        for path in sorted((ROOT / top).rglob("*"))
        if path.suffix in (*CODE, ".jinja") and not path.is_symlink()
    ]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [*code, ROOT / "transforms/common/messages.json", *pages]


def written(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of text of a file: of code, its strings and comments alone."""
    text = path.read_text()
    if path.suffix not in CODE:
        yield from enumerate(text.split("\n"), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in STRINGS:
            yield from enumerate(token.string.split("\n"), token.start[0])


def denied(path: Path) -> list[str]:
    """Return where a file uses a word of the list."""
    if not DENIED.search(path.read_text()):
        return []
    return [
        f"{path}:{number}: {match[0]!r} in {line.strip()[:100]}"
        for number, line in written(path)
        if not any(part in line for part in ALLOWED)
        for match in DENIED.finditer(line)
    ]


def test_texts_use_no_word_of_the_list():
    files = product_files()
    assert {path.suffix for path in files} == {*CODE, ".jinja", ".json", ".md"}
    assert not [line for path in files for line in denied(path)]


def test_public_names_use_no_word_of_the_list():
    names = [re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name) for name in deploykit.__all__]
    assert not [name for name in names if DENIED.search(name)]


@pytest.mark.parametrize(
    "text", ["stays float", "It is made up", "faster for sure", "is no number"]
)
def test_words_of_the_list_are_seen(text, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\nThe layer: {text}.\n")
    code = tmp_path / "code.py"
    code.write_text(f'"""A module: {text}."""\n')
    assert len(denied(page)) == len(denied(code)) == 1


def test_names_of_variables_are_not_texts(tmp_path):
    code = tmp_path / "code.py"
    code.write_text("made_up = judged = 1  # an integer\n")
    assert denied(code) == []
