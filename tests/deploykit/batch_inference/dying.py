"""Runs that die at every act on files in turn, and what the same command makes of what they left.

`python -m tests.deploykit.batch_inference.dying FOLDER` prints how many deaths there were; it is a
process of its own, as it forks. A hook of Python's audit is told of each act before it is done.
With the word `wrong` behind, old results are removed in the wrong order, which has to be seen.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from deploykit.batch_inference import results_folder
from deploykit.records import conversion
from deploykit.transforms.untrusted.files import sha256_of
from tests.deploykit.batch_inference.made_up_results import NAME, made_of, run

_ACTS = ("open", "os.mkdir", "os.remove", "os.rename", "os.link", "os.rmdir", "os.truncate")
_DIED = 9


def dies(act: Callable[[], object], number: int) -> bool:
    """Do something in a child that dies before the act of this number; say whether it did."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == _DIED
    left = number

    def hook(event: str, arguments: object) -> None:
        nonlocal left
        if event in _ACTS:
            left -= 1
            if left < 0:
                os._exit(_DIED)

    try:
        sys.addaudithook(hook)
        act()
    except BaseException as error:
        print(error, file=sys.stderr)
        os._exit(1)
    os._exit(0)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check_index(folder: Path) -> None:
    """Fail where there is an index, and not all that it lists."""
    path = folder / f"{NAME}.index.json"
    for each in json.loads(path.read_text())["shards"] if path.exists() else ():
        assert sha256_of(folder / each["file"]) == each["sha256"]


def deaths(folder: Path, before: Callable[[Path], object], act: Callable[[Path], object]) -> int:
    """Let an act die wherever it can; the same act then ends as if nothing had happened."""
    whole = folder / "whole"
    before(whole)
    act(whole)
    expected, number = contents(whole), 0
    while True:
        place = folder / str(number)
        before(place)
        died = dies(lambda place=place: act(place), number)
        check_index(place)
        if not died:
            assert contents(place) == expected
            return number
        act(place)
        assert contents(place) == expected, number
        shutil.rmtree(place)
        number += 1


def main(folder: Path, *how: str) -> None:
    os.fsync = lambda file: None  # what the disk does is not what is asked
    if how == ("wrong",):
        results_folder.remove = lambda *paths: conversion.remove(*reversed(paths))
    other = made_of(model={"source": "b.pb", "sha256": "b" * 64}, parts=3)
    acts = {
        "begun anew": (lambda place: None, lambda place: run(place, skipped=(2,))),
        "taken up": (lambda place: run(place, most=2), run),
        "replaced": (run, lambda place: run(place, other, force=True)),
    }
    for name, (before, act) in acts.items():
        (folder / name).mkdir()
        print(f"{name}: {deaths(folder / name, before, act)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
