"""Every hostile file, and what each command does with it.

The slow tests take a third of the cases with some commands, and more where that leaves out a class
of attack with a command. Of the cases that need a process, they take some.
"""

import collections
import random

import pytest

from tests import pairwise
from tests.hostile.__main__ import SERVED, drive
from tests.hostile.asking import ParsedRequest, asks
from tests.hostile.case import Case, Statuses
from tests.hostile.commands import names
from tests.hostile.corpus import cases
from tests.hostile.runner import Runner

CASES = list(cases())
QUICK = {
    "model": ("check", "inspect", "optimize"),
    "served": ("check", "inspect"),
    "data": ("verify", "export"),
    "records": ("records inspect", "records verify", "input write"),
    "image": ("records", "label"),
    "dataset": ("records",),
    "preprocess": ("freeze",),
    "result": ("compare", "sensitivity"),
    "labels": ("freeze",),
}
"""What is run in one process: what reads it; and for some of the cases, what works with it."""
SOME = 54  # every 54th case
LIGHT = [case for case in CASES if not case.heavy and case.opened_as in QUICK]


@pytest.fixture(scope="module")
def runner():
    made = Runner()
    yield made
    made.close()


@pytest.fixture(scope="module")
def named():
    """What was refused, and whether the culprit was named."""
    return []


def test_there_are_many_and_each_has_its_own_name():
    assert len(CASES) >= 250
    assert len({case.id for case in CASES}) == len(CASES)
    assert all(isinstance(case.right, Statuses) for case in CASES)
    assert all(isinstance(case.culprit, tuple) for case in CASES)


def test_they_are_the_same_bytes_each_time(tmp_path):
    for case in LIGHT[::5]:
        made = []
        for number in (1, 2):
            folder = tmp_path / f"{case.kind}{case.name[:40].replace('/', '')}{number}" / "case"
            folder.mkdir(parents=True)
            case.make(folder)
            found = sorted(path for path in folder.rglob("*") if path.is_file())
            made.append([str(path.relative_to(folder)) for path in found])
            if case.kind not in (
                "effects",
                "keras_archives",
                "hdf5_files",
                "datasets",
            ):  # with paths
                made[-1] += [path.read_bytes() for path in found if not path.is_symlink()]
        assert made[0] == made[1], case.id


@pytest.mark.parametrize("case", LIGHT[::27], ids=lambda case: case.id)  # all are among the slow
def test_in_one_process(case: Case, runner, named):
    first, *others = QUICK[case.opened_as]
    some = others if LIGHT.index(case) % SOME == 0 else ()
    faults = []
    for verdict in drive(case, {first, *some}, runner):
        faults += [f"{verdict.command}: {fault}" for fault in verdict.faults]
        if verdict.named is not None:
            said = f"{case.id}: {verdict.command}: {verdict.ended.err[-200:].strip()}"
            named.append((verdict.named, said))
    assert not faults, "\n".join(faults)


def test_the_culprit_is_named(named):
    """In the cases above, as far as they were run."""
    missed = [said for right, said in named if not right]
    assert len(missed) <= 0.05 * len(named), "\n".join(missed)


def needs_a_process(case: Case, command: str) -> bool:
    """Say whether a command line must be a process: it serves, or must be ended at its limit."""
    return case.heavy or command == "serve" or case.opened_as in SERVED


def covers(combination: tuple[Case, str]) -> set[object]:
    """Return the pairs of its class, how it is opened and run, and the command.

    The case too, unless it takes a process, as these take most of the time.
    """
    case, command = combination
    how = needs_a_process(case, command)
    found = pairwise.pairs((case.kind, case.opened_as, command, how))
    return found if how else {case.id, *found}


def some_commands(seed: int) -> list[tuple[Case, set[str]]]:
    """Return the cases of the slow tests, each with the commands that these run."""
    every = [(case, name) for case in CASES for name in names(case.opened_as)]
    drawn = {case.id for case in random.Random(seed).sample(CASES, len(CASES) // 3)}
    left = {case.id for case in CASES} - drawn
    chosen = collections.defaultdict(set)
    for case, name in pairwise.sample(every, lambda each: covers(each) - left, seed):
        chosen[case].add(name)
    return [(case, chosen[case]) for case in CASES if case in chosen]


def test_some_commands_are_a_third_of_the_light_cases_and_every_command_of_a_class():
    found = some_commands(1)
    every = {(case.kind, name) for case in CASES for name in names(case.opened_as)}
    light = {case.id for case in CASES if not case.heavy and case.opened_as not in SERVED}
    first, other = ({case.id for case, _ in some_commands(seed)} & light for seed in (1, 2))
    assert first != other
    assert len(light) // 4 <= len(first) <= len(light) // 2
    assert any(case.heavy for case, _ in found)
    assert all(wanted for _, wanted in found)
    assert {(case.kind, name) for case, wanted in found for name in wanted} == every
    assert sum(len(wanted) for _, wanted in found) < 0.6 * len(CASES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "wanted"),
    [pytest.param(*each, id=each[0].id) for each in some_commands(pairwise.seed())],
)
def test_some_commands(case: Case, wanted: set[str], runner):
    alone = {name for name in wanted if needs_a_process(case, name)}
    verdicts = [*drive(case, wanted - alone, runner), *drive(case, alone)]
    assert {each.command for each in verdicts} == wanted
    faults = [f"{each.command}: {fault}" for each in verdicts for fault in each.faults]
    assert not faults, "\n".join(faults)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_command(case: Case):
    faults = [f"{each.command}: {fault}" for each in drive(case) for fault in each.faults]
    assert not faults, "\n".join(faults)


@pytest.mark.slow
def test_requests():
    asked = ParsedRequest()
    try:
        faults = [f"{ask.name}: {fault}" for ask in asks() for fault in asked.ask(ask).faults]
    finally:
        asked.close()
    assert not faults, "\n".join(faults)
