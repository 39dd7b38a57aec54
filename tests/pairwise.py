"""A small random sample of combinations that contains every pair of values of two dimensions.

Most faults that a combination shows need two of its values and not three. The slow tests run such a
sample of what would take hours, another one in each run; the marker `full` is on the rest.
It is a plugin of pytest too, which chooses the seed before workers start, and prints it. Tests with
the marker `sampled` get `slow` in a third of the runs, and `full` in the others.
"""

import heapq
import itertools
import os
import random
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

SEED = "DEPLOYKIT_TEST_SEED"
"""The environment variable with the seed of a run, which all its processes share."""
LARGEST = 10**6
RUNS = 3
"""In one of how many slow runs a test with the marker `sampled` is, on average."""

Combination = TypeVar("Combination", bound=Hashable)


def seed() -> int:
    """Return the seed of this run: a random one, unless the environment has it.

    pytest.UsageError: what the environment has is not an integer.
    """
    value = os.environ.get(SEED) or str(random.SystemRandom().randrange(LARGEST))
    os.environ[SEED] = value  # for the processes that this one starts
    try:
        return int(value)
    except ValueError:
        raise pytest.UsageError(f"{SEED} must be an integer (got {value!r})") from None


def pytest_sessionstart(session):
    """Choose the seed before the workers of xdist start, and print it, which these do not.

    With -q, pytest prints no header.
    """
    line = f"{SEED}={seed()} chooses samples of slow tests, and the order with --shuffle-files"
    if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
        reporter.write_line(line)


@pytest.hookimpl(tryfirst=True)  # before `-m` takes some away
def pytest_collection_modifyitems(items):
    """Choose the tests with the marker `sampled` that this run has, whatever their parameters."""
    for item in items:
        if item.get_closest_marker("sampled"):
            test = item.nodeid.partition("[")[0]
            chosen = random.Random(f"{seed()} {test}").randrange(RUNS) == 0
            item.add_marker(pytest.mark.slow if chosen else pytest.mark.full)


def pairs(values: Sequence[Hashable]) -> set[Hashable]:
    """Return the pairs of values in a combination: a value for each dimension, in their order."""
    return set(itertools.combinations(enumerate(values), 2))


def sample(
    combinations: Iterable[Combination],
    covers: Callable[[Combination], Iterable[Hashable]],
    random_seed: int,
    covered: Iterable[Combination] = (),
) -> list[Combination]:
    """Return combinations that together cover whatever any of them covers, in their order.

    Args:
        combinations: Those that are possible.
        covers: What a combination covers, such as its `pairs`.
        random_seed: Chooses between combinations that cover as much.
        covered: Combinations that are tested anyway.
    """
    items = list(combinations)
    left = [set(covers(item)) for item in items]
    done = {each for item in covered for each in covers(item)}
    order = list(range(len(items)))
    random.Random(random_seed).shuffle(order)
    queue = [(-len(left[index]), place, index) for place, index in enumerate(order)]
    heapq.heapify(queue)
    chosen = []
    while queue:
        _, place, index = heapq.heappop(queue)
        left[index] -= done
        entry = (-len(left[index]), place, index)
        if queue and entry > queue[0]:  # others may add more; what one adds never grows
            heapq.heappush(queue, entry)
        elif left[index]:
            chosen.append(index)
            done |= left[index]
    return [items[index] for index in sorted(chosen)]


def marks(
    combination: Hashable, slow: Container[Hashable], quick: Container[Hashable] = ()
) -> list[pytest.MarkDecorator]:
    """Return the markers of a combination: what is neither quick nor slow has `full`."""
    if combination in quick:
        return []
    return [pytest.mark.slow if combination in slow else pytest.mark.full]


def drawn(name: str, values: Sequence[Any], count: int, *, quick: int = 0) -> list[Any]:
    """Return test parameters: `quick` for all tests, `count` more marked `slow`, the rest `full`.

    The quick ones are spread evenly, from the first on. The slow ones are random: they follow from
    the seed of the run and from `name`, such as `__name__`, as lists of the same length with other
    names are drawn independently. A tuple has the values of several parameters.
    """
    given = [value if isinstance(value, tuple) else (value,) for value in values]
    always = {n * len(given) // quick for n in range(quick)}
    others = [place for place in range(len(given)) if place not in always]
    slow = random.Random(f"{seed()} {name}").sample(others, min(count, len(others)))
    return [
        pytest.param(*value, marks=marks(place, slow, always)) for place, value in enumerate(given)
    ]


def once_each(
    names: Sequence[str], *dimensions: Sequence[Any], quick: int | None = None
) -> pytest.MarkDecorator:
    """Parametrize a test with all combinations; the quick tests take few, with each value once.

    This is for tests that start processes.

    Args:
        names: The names of the parameters.
        dimensions: The values of each; tuples where a dimension has several of the names.
        quick: The number of combinations in the quick tests. Default: those with each value once.
    """
    most = quick or max(map(len, dimensions))
    few = {tuple(n % len(values) for values in dimensions) for n in range(most)}
    found = []
    for places in itertools.product(*(range(len(values)) for values in dimensions)):
        given = [values[place] for values, place in zip(dimensions, places, strict=True)]
        flat = [part for each in given for part in (each if isinstance(each, tuple) else (each,))]
        found.append(pytest.param(*flat, marks=[] if places in few else pytest.mark.sampled))
    return pytest.mark.parametrize(names, found)
