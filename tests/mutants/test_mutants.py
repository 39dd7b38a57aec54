"""Mutants change one expression; a mutant counts as killed only if a test that passed now fails."""

import ast
import json
import subprocess
import sys

import pytest

from tests.mutants import trying
from tests.mutants.__main__ import MODULES, ROOT, main
from tests.mutants.mutate import chosen, mutants
from tests.mutants.trying import TIME, TreeCopy, UnmutatedError, own_tests, tried


def changes(source: str) -> set[tuple[str, str]]:
    return {(mutant.kind, mutant.after) for mutant in mutants(source.encode())}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a == b", {("comparison", "(a >= b)"), ("comparison", "(a <= b)")}),
        ("a < b", {("comparison", "(a <= b)")}),
        ("a is not b", {("comparison", "(a is b)")}),
        ("a < b < c", {("comparison", "(a <= b < c)")}),
        ("a and b", {("and/or", "(a or b)"), ("operand", "a"), ("operand", "b")}),
        ("not (a or b)", {("not", "(a or b)"), ("and/or", "(a and b)"), ("operand", "a"),
                          ("operand", "b")}),
        ("a[2]", {("constant", "3"), ("constant", "1")}),
        ("max(a)", {("function", "min")}),
        ("any(a)", {("function", "all")}),
        ("f(a, b=c)", {("keyword", "f(a)")}),
        ("f(**a)", set()),
        ("zip(a, b, strict=True)", set()),
        ("f(a, strict=True)", {("keyword", "f(a)")}),
        ("b if a else c", {("condition", "True"), ("condition", "False")}),
        ("if a:\n    b", {("condition", "True"), ("condition", "False")}),
        ("while a:\n    b", {("condition", "False")}),
        ("[a for a in b if a]", {("condition", "True"), ("condition", "False")}),
        ("a - b", {("arithmetic", "(a + b)")}),
        ("a += b", {("arithmetic", "a -= b")}),
    ],
)  # fmt: skip
def test_each_kind_of_mistake(source, expected):
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Text of 3 or 4."""',
        "a: Annotated[int, f(by=2)]",
        "A: TypeAlias = f(3)",
        "def f(a: b[3]) -> c[4]: pass",
        "@f(a=True)\ndef g(): pass",
        "raise GraphError('a', number=n + 1)",
        "a = ServingError('b', rows=3)",
        "logger.info('%s', a + 1, extra=b)",
        "f'{a + 1} of {b == c}'",
        "'a' + b",
        "assert a is not None",
        "if TYPE_CHECKING:\n    a = 1",
        "True",
    ],
)
def test_texts_errors_and_types_stay(source):
    assert changes(source) == set()


def test_a_mutant_changes_its_expression_alone():
    source = 'é = "é"; a = (b + 2) * not_é(b == (\n    3))  # é\nif not (a or b) and c:\n    d\n'
    for mutant in mutants(source.encode()):
        start, end = mutant.start, mutant.end
        kept = source.encode()
        planted = mutant.planted(kept)
        assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(source))
        assert ast.unparse(ast.parse(b"(" + kept[start:end] + b")")) == mutant.before
        assert planted.startswith(kept[:start])
        assert planted.endswith(kept[end:])
        assert mutant.line == kept[:start].count(b"\n") + 1


def test_the_seed_alone_chooses_and_an_edit_elsewhere_changes_little():
    source = (ROOT / MODULES[0]).read_bytes()
    first = chosen(mutants(source), "1", 8)
    assert len(first) == 8
    assert len({mutant.kind for mutant in first}) >= 7
    assert first == chosen(mutants(source), "1", 8) != chosen(mutants(source), "2", 8)
    edited = chosen(mutants(b"import os\nNEW = f(3)\n" + source), "1", 8)
    texts, others = ({(each.before, each.after) for each in some} for some in (first, edited))
    assert len(texts & others) >= 6


@pytest.mark.sampled
@pytest.mark.parametrize("module", MODULES)
def test_each_module_has_its_tests(module):
    assert (ROOT / own_tests(module)).exists()
    source = (ROOT / module).read_bytes()
    every = mutants(source)
    assert len(every) > 50
    for mutant in chosen(every, "1", 8):
        compile(mutant.planted(source), module, "exec")


SMALL = """\
def is_large(size, limit):
    return size > limit


def is_small(size, limit):
    return not is_large(size, limit)


def unused(a, b):
    return a - b
"""
TESTS = {
    "test_small.py": """\
from deploykit.small import is_small


def test_far():
    assert is_small(1, 9) and not is_small(99, 9)
""",
    "test_others.py": """\
import subprocess
import sys


def test_near():
    code = "from deploykit.small import *; exit(is_large(9, 9) or not is_large(10, 9))"
    assert not subprocess.call([sys.executable, "-P", "-c", code], cwd="/")
""",
}


@pytest.fixture
def small(tmp_path):
    """A checkout of a package named as ours, whose only module has two functions."""
    root = tmp_path / "small"
    tests = root / "tests" / "deploykit"
    tests.mkdir(parents=True)
    (root / "deploykit").mkdir()
    for folder in (root / "deploykit", tests.parent, tests):
        (folder / "__init__.py").touch()
    (root / "deploykit" / "small.py").write_text(SMALL)
    for name, content in TESTS.items():
        (tests / name).write_text(content)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


@pytest.mark.slow
def test_what_no_test_notices_survives_and_the_rest_is_killed_by_the_first_that_does(small, capsys):
    files = {path: path.read_bytes() for path in small.rglob("*.py")}
    assert main(["deploykit/small.py", "--number=3", "--json"], small) == 0
    found = json.loads(capsys.readouterr().out)["deploykit/small.py"]
    by = {(each["from"], each["to"]): each["killed_by"] for each in found["mutants"]}
    here = "tests/deploykit"
    assert by == {
        ("size > limit", "(size >= limit)"): f"{here}/test_others.py::test_near",
        ("not is_large(size, limit)", "is_large(size, limit)"): f"{here}/test_small.py::test_far",
        ("a - b", "(a + b)"): None,
    }
    assert found["killed"] == 2
    assert {path: path.read_bytes() for path in small.rglob("*.py")} == files


@pytest.mark.slow
def test_of_a_module_alone_only_its_own_tests_are_run(small, capsys):
    assert main(["deploykit/small.py", "--number=3", "--own", "--json"], small) == 0
    found = json.loads(capsys.readouterr().out)["deploykit/small.py"]
    assert [each["from"] for each in found["mutants"] if each["killed_by"]] == [
        "not is_large(size, limit)"
    ]


@pytest.mark.parametrize(
    ("module", "part"), [("deploykit/smal.py", "no module"), ("serving/a.py", "no tests")]
)
def test_a_path_without_module_or_tests_is_refused(small, capsys, module, part):
    (small / "serving").mkdir()
    (small / "serving" / "a.py").touch()
    with pytest.raises(SystemExit) as caught:
        main([module], small)
    assert caught.value.code == 2
    assert part in capsys.readouterr().err


@pytest.mark.slow
def test_a_module_without_a_test_file_of_its_name_has_those_of_its_folder(small, capsys):
    (small / "tests" / "deploykit" / "test_small.py").unlink()
    assert main(["deploykit/small.py", "--number=3", "--json"], small) == 0
    assert json.loads(capsys.readouterr().out)["deploykit/small.py"]["killed"] == 1
    assert main(["deploykit/small.py", "--own"], small) == 1
    assert "no test file of its own" in capsys.readouterr().err


@pytest.mark.slow
def test_tests_that_do_not_run_kill_nothing(small, capsys):
    (small / "tests" / "conftest.py").write_text("import pytest\npytest.exit('no', 4)\n")
    assert main(["deploykit/small.py", "--json"], small) == 1
    assert "exit status 4" in capsys.readouterr().err


@pytest.mark.slow
def test_tests_that_fail_without_a_mutant_kill_nothing(small, capsys):
    (small / "tests" / "deploykit" / "test_others.py").write_text("def test_no():\n    assert 0\n")
    assert main(["deploykit/small.py", "--json"], small) == 1
    output = capsys.readouterr()
    assert json.loads(output.out) == {}
    assert "test_others.py::test_no" in output.err


@pytest.mark.slow
def test_tests_without_an_end_are_killed_by_time(small, tmp_path, monkeypatch):
    (small / "deploykit" / "small.py").write_text("def is_large(size):\n    return size > 1\n")
    (small / "tests" / "deploykit" / "test_small.py").write_text(
        "from deploykit.small import is_large\n\n\ndef test_end():\n"
        "    while is_large(1):\n        pass\n"
    )
    copy = TreeCopy(small, tmp_path / "copy")
    monkeypatch.setattr(trying, "_SLACK", 1)
    (mutant,) = [
        each
        for each in mutants((small / "deploykit" / "small.py").read_bytes())
        if each.kind == "comparison"
    ]
    (outcome,) = tried(copy, "deploykit/small.py", [mutant])
    assert outcome.killed_by == TIME


@pytest.mark.slow
def test_children_import_the_copy_of_this_checkout_and_its_tests_see_faults(tmp_path):
    copy = TreeCopy(ROOT, tmp_path)
    code = "from deploykit.transforms.ir import pattern as p; print(deploykit.__file__, p.__file__)"
    code = f"import deploykit; {code}"
    said = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd="/", env=copy.environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said.split() == [
        str(tmp_path / "deploykit" / "__init__.py"),
        str(tmp_path / "deploykit" / "transforms" / "ir" / "pattern.py"),
    ]
    module = "transforms/ir/pattern.py"
    tests, source = [own_tests(module)], (ROOT / module).read_bytes()
    assert copy.failure(tests) is None
    copy.write(module, source.replace(b'{"Add", "AddV2", "Mul"}', b"()"))
    assert str(copy.failure(tests)).startswith(f"{tests[0]}::")
    with pytest.raises(UnmutatedError):
        tried(copy, module, mutants(source)[:1])
    assert (ROOT / module).read_bytes() == source
