"""Each golden file belongs to one test; those of a transform show the graph before and after.

Sentences of messages.json are compared in golden files alone: other tests compare codes and fields.
Of sentences without a code in the product, golden/reasons.json holds each once, under a code.
"""

import functools
import re
import string
from collections import Counter, defaultdict

import pytest

from deploykit.transforms.common import messages
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


SHORTEST, WORDS = 14, 4  # a part of a sentence: characters; words of one that is not whole
TERMS = {"control inputs", "its inputs are"}  # too common to be quotations
EXEMPT = (
    "benchmarks/",  # tables and sentences of their own
    "data/",
    "differential/deviations.py",  # rows of a document
    "docs/",  # compares the documents with the sentences
    "hostile/",  # names of cases
    "serving/server/test_as_tensorflow_serving.py",  # sentences of TensorFlow Serving
    "transforms/common/",  # the messages themselves
)


TRIPLE = re.compile(r'(^ *)?[bfr]*"""[\s\S]*?"""', re.MULTILINE)
COMMENT = re.compile(r"(^ *|  )# .*$", re.MULTILINE)
ADJACENT = re.compile(r'"\s*\n\s*[bfr]*"')  # two literals of one text
LITERAL = re.compile(r"""(["'])[$^]*(.*?)[$^ ]*\1""")


@functools.cache
def sentence_parts() -> tuple[dict[str, list[str]], str]:
    """Return what stands between the fields of messages, by its first characters and as a text."""
    templates = (*messages.catalogue().values(), *support.reasons().values())
    texts = {text.strip() for each in templates for text, *_ in string.Formatter().parse(each)}
    long = [text for text in texts if len(text) >= SHORTEST and text not in TERMS]
    parts = [text for text in long if re.search(r"\w \w", text)]
    by_start = defaultdict(list)
    for part in parts:
        by_start[part[:SHORTEST]].append(part)
    return by_start, "\n".join(parts)


def quotations(source: str) -> list[str]:
    """Return the parts of sentences in a test file, and texts that are words of one.

    Comments, and docstrings, which begin a line, are left out.
    """
    by_start, parts = sentence_parts()
    source = TRIPLE.sub(lambda found: found[0] if found[1] is None else "", source)
    source = COMMENT.sub("", source)
    source = re.sub(r"\\(?=\W)", "", ADJACENT.sub("", source))  # also of regular expressions
    whole = [
        part
        for index in range(len(source) - SHORTEST + 1)
        for part in by_start.get(source[index : index + SHORTEST], ())
        if source.startswith(part, index)
    ]
    texts = [text for _, text in LITERAL.findall(source) if len(text) >= SHORTEST]
    return whole + [text for text in texts if len(text.split()) >= WORDS and text in parts]


def test_reasons_are_used_and_stand_once():
    found, others = support.reasons(), messages.catalogue()
    assert list(found) == sorted(found)
    assert not found.keys() & others.keys()
    assert len({*found.values()} - {*others.values()}) == len(found)
    tests = "".join(path.read_text() for path in GOLDEN.parent.rglob("*.py"))
    assert [code for code in found if f'"{code}"' not in tests] == []


def test_no_test_quotes_a_sentence():
    folder = GOLDEN.parent
    for path in sorted(folder.rglob("*.py")):
        if not path.relative_to(folder).as_posix().startswith(EXEMPT):
            found = quotations(path.read_text())
            assert not found, f"{path}: compare codes and fields, as support.raises and shows do"


SENTENCES = {
    "dataset-endless": messages.catalogue()["dataset-endless"].partition("(")[0],
    "weights-differ-by-matrix": support.because("weights-differ-by-matrix"),
}


@pytest.mark.parametrize("is_quoted", [True, False])
@pytest.mark.parametrize("code", SENTENCES)
@pytest.mark.parametrize(
    "how", ["assert {!r} in text\n", "with raises(Error, match={!r}):\n", "X = {!r}\n"]
)
def test_a_quoted_sentence_is_seen(how, code, is_quoted):
    sentence = SENTENCES[code]
    text = sentence if is_quoted else code
    words = " ".join(text.split()[-WORDS:])
    apart = how.format(text).replace(" ", " '\n    '")
    for source in (how.format(text), how.format(words), apart.replace("'", '"')):
        assert bool(quotations(f'"""{sentence}"""\n{source}')) == is_quoted, source
