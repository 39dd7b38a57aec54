"""The pages that are written by hand are true: links, commands, and what they print."""

import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from deploykit.cli.main import COMMANDS
from deploykit.importers.graph_files import load_graph, save_graph
from deploykit.system.machine import machine
from docs.generator.__main__ import MARK
from tests import pairwise
from tests.deploykit.cli.test_outputs import LEAVES
from tests.docs.walking import ROOT, blocks, walk, without_digits, without_progress
from tests.support import build, ops, tf

DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("models/*/README.md")]
BY_HAND = [page for page in PAGES if not page.read_text().startswith(MARK)]


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "`code`", text, flags=re.M | re.S)


def links(text: str) -> list[str]:
    """Return what the links and pictures of a page lead to."""
    return re.findall(r"\]\(([^)\s]+)\)", without_code(text))


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: Counter[str] = Counter()
    names = set()
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        words = re.sub(r"\]\([^)]*\)|[^\w\- ]", "", heading.strip().lower())
        name = words.replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def dead(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    found = []
    for target in links(page.read_text()):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there.read_text())):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert dead(page) == []


def test_a_dead_link_is_seen(tmp_path):
    (tmp_path / "there.md").write_text(
        "# A `b_c`, *d*\n## Twice\n## Twice\n```\n# no heading\n```\n"
    )
    page = tmp_path / "page.md"
    page.write_text(
        "[1](there.md) [2](there.md#a-b_c-d) [3](there.md#twice-1) [4](https://nowhere.example)\n"
        "`[5](code.md)` ![6](picture.png) [7](there.md#no-heading) [8](#above)\n"
    )
    assert dead(page) == ["picture.png", "there.md#no-heading", "#above"]


def test_each_page_can_be_reached_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        near = {
            (page.parent / link.partition("#")[0]).resolve() for link in links(page.read_text())
        }
        waiting += [each for each in near if each.suffix == ".md" and each not in reached]
    assert set(DOCS.rglob("*.md")) <= reached


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_a_page_exist(page):
    marked = [code for _, code in blocks(page, "sh", "console", "text")]
    marked += re.findall(
        r"`([^`]+)`", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    )
    used = {
        name for code in marked for name in re.findall(r"(?:^|[ /])deploykit ([a-z][a-z-]*)", code)
    }
    assert used <= set(COMMANDS)


def unknown_options(text: str) -> list[str]:
    """Return the options in lines of a shell that no command of their beginning has."""
    found = []
    for line in re.findall(r"^(?:\$ )?(deploykit .*)$", text.replace("\\\n", " "), re.M):
        words = re.split(r" [|&>#]", line)[0].split()
        names = [name for name in LEAVES if words[1 : 1 + len(name)] == list(name)]
        known = {
            option
            for name in names
            for each in LEAVES[name].params
            for option in (*each.opts, *each.secondary_opts)
        }
        given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
        found += [f"{line}: {option}" for option in given if option not in known | {"--help"}]
    return found


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_on_a_page_exist(page):
    for _, text in blocks(page, "sh", "console"):
        assert unknown_options(text) == []


def test_an_unknown_option_is_seen():
    text = "$ deploykit freeze a.keras -o b.pb --gone=1 | tail -1\ndeploykit doctor --lost\n"
    assert [each.rpartition(": ")[2] for each in unknown_options(text)] == ["--gone", "--lost"]


VNNI = {"avx512_vnni", "avx_vnni"}
WALKED = [DOCS / "tour.md", DOCS / "my-data.md", *sorted((DOCS / "recipes").glob("[!R]*.md"))]


def test_each_recipe_has_commands():
    assert len(WALKED) > 8
    assert all(list(blocks(page, "console", "text")) for page in WALKED)


@pytest.mark.slow
@pytest.mark.parametrize("page", pairwise.drawn(__name__, WALKED, 2), ids=lambda page: page.stem)
def test_a_page_runs_and_prints_what_it_says(page, tmp_path):
    """Blocks of text hold commands whose figures come from a clock: they are run, not compared."""
    if "weights for vnni" in page.read_text() and VNNI.isdisjoint(machine()["flags"]):
        pytest.skip("it shows weights for VNNI, which this CPU does not have")
    compared = [text for _, text in blocks(page, "console")]
    for said, printed in walk(page, tmp_path, "console", "text"):
        if said in compared:
            assert without_digits(without_progress(printed)) == without_digits(said)


STARTED = [DOCS / "int8.md", DOCS / "serving.md"]
FIRST_WORDS = 300


def words(text: str) -> list[str]:
    """Return the words of a part of a page, without the rules of tables that commands print."""
    return re.sub("[─|]+", " ", text).split()


@pytest.mark.parametrize("page", STARTED, ids=lambda page: page.stem)
def test_a_page_starts_with_a_task_and_its_success(page):
    start, *_ = re.split(r"^\| .* \|$", page.read_text(), maxsplit=1, flags=re.M)
    shown = list(re.finditer(r"^```\w+\n(.*?)^```$", start, re.M | re.S))
    commands = [line for each in shown for line in re.findall(r"^\$ (.*)$", each[1], re.M)]
    assert any("models/fashion/" in line for line in commands)
    assert any(set(each[1].splitlines()) - {f"$ {line}" for line in commands} for each in shown)
    assert "It worked if" in start
    assert len(words(start.partition("It worked if")[0])) < FIRST_WORDS


def heads(text: str) -> list[str]:
    """Return what the lines that commands print start with, without progress and notes."""
    lines = [line for line in text.splitlines() if not line.startswith("deploykit: ")]
    return [without_digits(line if line[:2] == "$ " else re.split("[:(]", line)[0]).strip()
            for line in lines]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("page", pairwise.drawn("starts", STARTED, 1), ids=lambda page: page.stem)
def test_the_start_of_a_page_runs_and_prints_what_it_says(page, tmp_path):
    start = tmp_path / "start.md"
    start.write_text(page.read_text().partition("\n## ")[0])
    compared = [text for _, text in blocks(start, "console")]
    found = walk(start, tmp_path, "console", "text")
    assert found
    for said, printed in found:
        alike = without_digits if said in compared else heads
        assert alike(printed) == alike(said)


def test_the_transform_of_ones_own_runs_as_written(tmp_path, monkeypatch):
    (_, module), (_, command) = blocks(DOCS / "own-transforms.md", "python", "sh")
    (tmp_path / "my_rewrites.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    save_graph(build(relu6_net, ["x"], ["y"]), "model.pb")
    line = shlex.split(command.replace("\\\n", " ").replace("--verify", ""))
    done = subprocess.run(
        [sys.executable, "-m", *line], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ops(load_graph("out.pb"))["Relu"] == 1


def relu6_net():
    tf.nn.relu6(tf.compat.v1.placeholder(tf.float32, [2], "x"), "y")
