"""python -m tests.hostile.fuzz: change sound files at random, and see what the commands do.

Each change has a number, so that it can be made again: `--seed S --only N`. What is found is kept
in a folder, each with the command that shows it.
"""

import argparse
import contextlib
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile import mutations
from tests.hostile.asking import REFUSED, Ask, ParsedRequest, predict
from tests.hostile.case import Case, statuses
from tests.hostile.commands import Goods
from tests.hostile.inferring import LENGTH, PATH, ROW, SERVICE, document, request
from tests.hostile.judging import Verdict, judge
from tests.hostile.runner import Runner
from tests.hostile.seeds import GRAPHS, SECONDS, TARGETS, Target
from tests.hostile.watching import Place
from tests.hostile.wire import fields

DEADLINE = 2 * SECONDS + 5
ANY = statuses(0, 2, 3, 4, 5, 6)
PROVING = ("check", "optimize", "quantize")
"""What exits with 0 only on what TensorFlow imports."""
ROWS = b'{"signature_name": "serving_default", "instances": [[1, 2, 3], [4, 5, 6]]}'
REQUESTS = 25  # in a turn of the server
TRIES = 40  # to make a finding smaller


@dataclass
class Finding:
    """Something that must not happen."""

    kind: str
    number: int
    command: list[str]
    said: str
    files: Path | None = None

    @property
    def sort(self) -> str:
        """What makes it the same as another one."""
        text = re.sub(r"'[^']*'|\"[^\"]*\"|/\S+|\d+", "#", self.said)
        return f"{self.kind} {self.command[:1]} {text[:120]}"


@dataclass
class Fuzzer:
    """Makes files, runs commands on them, and keeps what it finds."""

    seed: int
    folder: Path
    place: Place
    runner: Runner = field(default_factory=Runner)
    asked: ParsedRequest | None = None
    executions: int = 0
    found: dict[str, list[Finding]] = field(default_factory=dict)

    def turn(self, number: int) -> None:
        """Make the change of this number, and run everything on it."""
        chance = random.Random(f"{self.seed}/{number}")
        shares = [target.share for target in TARGETS]
        chosen = chance.choices([*TARGETS, None], [*shares, 2])[0]
        if chosen is None:
            self._ask(number, chance)
        else:
            self._open(number, chosen, chance)

    def _open(self, number: int, target: Target, chance: random.Random) -> None:
        clear(self.place)
        opened = target.make(self.place.case, chance)
        lines = target.lines(opened, Goods(self.place.goods), self.place.out)
        refusal: str | None = None
        for name, line in lines.items():
            command = [str(each) for each in line]
            verdict = self._run(target, name, command, opened)
            for fault in verdict.faults:
                kind, _, said = fault.partition(": ")
                self._keep(Finding(kind, number, command, said), target, opened)
            if target.imported and name in PROVING and verdict.ended.status == 0:
                refusal = refusal or self.runner.refusal(opened, DEADLINE)
                if refusal:
                    self._keep(Finding("accepted", number, command, refusal), target, opened)

    def _run(self, target: Target, name: str, command: list[str], opened: Path) -> Verdict:
        case = Case("fuzz", target.name, lambda folder: folder, right=ANY)
        clear(self.place, case=False)
        before = self.place.listing()
        ended = self.runner.run(command, self.place, DEADLINE)
        self.executions += 1
        return judge(case, name, ended, self.place, before, str(opened))

    def _keep(self, finding: Finding, target: Target, opened: Path) -> None:
        same = self.found.setdefault(finding.sort, [])
        same.append(finding)
        if len(same) > 1:
            return
        print(f"{finding.kind}: {finding.said}\n  --only {finding.number}: "
              f"deploykit {' '.join(finding.command[:2])}", flush=True)  # fmt: skip
        if target.imported:
            self._make_smaller(finding, target, opened)
        finding.files = self.folder / f"{len(self.found):03}-{finding.kind}"
        shutil.rmtree(finding.files, ignore_errors=True)
        shutil.copytree(self.place.case, finding.files / "case", symlinks=True)
        shutil.copytree(self.place.goods, finding.files / "goods")
        command = " ".join(finding.command).replace(str(self.place.root), str(finding.files))
        text = f"python -m deploykit {command}\n\n{finding.said}\n\nseed {self.seed}, --only "
        (finding.files / "command.txt").write_text(f"{text}{finding.number}\n")

    def _make_smaller(self, finding: Finding, target: Target, opened: Path) -> None:
        """Drop nodes as long as the same thing happens."""
        if finding.kind == "hang":
            return
        content, tries = opened.read_bytes(), 0
        with contextlib.suppress(ValueError):
            parts = [each for _, _, each in fields(content)]
            at = 0
            while at < len(parts) and tries < TRIES:
                tries += 1
                opened.write_bytes(b"".join(parts[:at] + parts[at + 1 :]))
                if self._again(finding, target, opened):
                    del parts[at]
                else:
                    at += 1
            content = b"".join(parts)
        opened.write_bytes(content)

    def _again(self, finding: Finding, target: Target, opened: Path) -> bool:
        verdict = self._run(target, finding.command[0], finding.command, opened)
        if finding.kind == "accepted":
            said = self.runner.refusal(opened, DEADLINE) if not verdict.ended.status else None
            faults = [f"accepted: {said}"] if said else []
        else:
            faults = verdict.faults
        return finding.sort in {
            Finding(kind, 0, finding.command, said).sort
            for kind, _, said in (fault.partition(": ") for fault in faults)
        }

    def _ask(self, number: int, chance: random.Random) -> None:
        self.asked = self.asked or ParsedRequest()
        for _ in range(REQUESTS):
            ask = changed(chance)
            self.executions += 1
            for fault in self.asked.ask(ask).faults:
                kind, _, said = fault.partition(": ")
                finding = Finding(f"server-{kind}", number, [ask.target], said)
                self.found.setdefault(finding.sort, []).append(finding)
                if len(self.found[finding.sort]) == 1:
                    finding.files = self.folder / f"{len(self.found):03}-{finding.kind}"
                    finding.files.mkdir(parents=True, exist_ok=True)
                    (finding.files / "request").write_bytes(ask.content)
                    print(f"{finding.kind}: {ask.target}: {said}", flush=True)
            if not self.asked.alive:
                self.asked.close()
                self.asked = ParsedRequest()

    def close(self) -> None:
        """End every process."""
        self.runner.close()
        if self.asked is not None:
            self.asked.close()


def changed(chance: random.Random) -> Ask:
    """Return a request to the server that was sound before it was changed."""
    form = chance.random()
    if form < 0.35:
        method = chance.choice(("Predict", "Predict", "Classify", "GetModelMetadata"))
        content = mutations.message(predict().SerializeToString(), chance, GRAPHS[:2])
        return Ask("changed", method, content, REFUSED)
    if form < 0.65:
        raw = ROW if chance.random() < 0.5 else None
        content = request(raw=raw).SerializeToString()
        for _ in range(chance.randint(1, 3)):
            content = mutations.message(content, chance, GRAPHS[:2])
        method = chance.choice(("ModelInfer", "ModelInfer", "ModelInfer", "ModelMetadata"))
        return Ask("changed", f"{SERVICE}/{method}", content, REFUSED)
    right = (200, 400, 404, 405, 412, 413)
    if form < 0.8:
        return Ask("changed", "/v1/models/model:predict", mutations.document(ROWS, chance), right)
    if form < 0.9:
        return Ask("changed", PATH, mutations.document(document(), chance), right)
    text = mutations.document(document(12), chance)
    length = len(text) if chance.random() < 0.8 else chance.choice((0, 1, 12, 1 << 40))
    content = text + (ROW if chance.random() < 0.8 else mutations.noise(ROW, chance))
    return Ask("changed", PATH, content, right, f"{LENGTH}: {length}\r\n")


def clear(place: Place, case: bool = True) -> None:
    """Empty the folders of a place."""
    folders = [place.out, place.temporary, place.home, place.root / "canary"]
    for folder in [*folders, place.case] if case else folders:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()


def main(arguments: list[str] | None = None) -> int:
    """Fuzz for some minutes; 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, help="make this change alone")
    parser.add_argument("--turns", type=int, default=1 << 62, help="at most so many changes")
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"), help="for what is found")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    root = Path(tempfile.mkdtemp(prefix="hostile-"))
    fuzzer = Fuzzer(given.seed, given.folder.absolute(), Place(root))
    begun = time.monotonic()
    number = given.only or 0
    try:
        while True:
            fuzzer.turn(number)
            number += 1
            minutes = (time.monotonic() - begun) / 60
            if given.only is not None or minutes > given.minutes or number >= given.turns:
                break
    except KeyboardInterrupt:
        pass
    finally:
        fuzzer.close()
        shutil.rmtree(root, ignore_errors=True)
    seconds = time.monotonic() - begun
    print(f"{number} changes, {fuzzer.executions} executions, "
          f"{fuzzer.executions / seconds:.1f} executions/s")  # fmt: skip
    kinds: Counter[str] = Counter()
    for same in fuzzer.found.values():
        kinds[same[0].kind] += len(same)
        print(f"{len(same):5} x {same[0].kind}: {same[0].said[:150]} ({same[0].files})")
    print("found: " + (", ".join(f"{n} x {kind}" for kind, n in kinds.items()) or "nothing"))
    return int(bool(fuzzer.found))


if __name__ == "__main__":
    raise SystemExit(main())
