"""The commands that write, each on sound files: what they are given and what they leave."""

import hashlib
from dataclasses import dataclass

import numpy as np

from tests.hostile.commands import Goods
from tests.hostile.graphs import constant, floats, graph, placeholder
from tests.hostile.watching import Place

WRITERS = ("optimize", "quantize", "export", "records")


@dataclass(frozen=True)
class Writer:
    """A command line that writes into `place.out`."""

    name: str
    place: Place
    line: list[str]

    @property
    def again(self) -> list[str]:
        """The same, where an output is there already; `export` takes the next number."""
        return self.line if self.name == "export" else [*self.line, "--force"]

    def listing(self) -> dict[str, str]:
        """Return the hashes of all files that were written, by name."""
        return {
            str(path.relative_to(self.place.out)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.place.out.rglob("*"))
            if path.is_file()
        }


def writer(name: str, place: Place, kibibytes: int = 0) -> Writer:
    """Return a writer; its output takes about so many KiB, or few."""
    out, goods = place.out, Goods(place.goods)
    if name == "records":
        table = place.goods / "rows.csv"
        rows = np.arange(max(kibibytes << 7, 30_000) * 3).reshape(-1, 3) % 997
        np.savetxt(table, rows, "%d", ",")
        line = ["records", "convert", table, out / "set", "--shard-size", "0.1", "--processes", "2"]
        return Writer(name, place, [str(each) for each in line])
    model = goods.net
    if kibibytes:
        model = place.goods / "large.pb"
        model.write_bytes(_large(kibibytes).SerializeToString())
    line = {
        "optimize": ["optimize", model, "-o", out / "o.pb"],
        "quantize": ["quantize", model, "-o", out / "q.pb", "--minimum-size", 1],
        "export": ["export", model, out / "served"],
    }[name]
    return Writer(name, place, [str(each) for each in line])


def _large(kibibytes: int):
    weights = np.random.default_rng(0).uniform(-1, 1, (256, kibibytes)).astype(np.float32)
    return graph(
        placeholder("x", (2, 256)),
        constant("weights", weights),
        floats("out", "MatMul", "x", "weights", transpose_a=False, transpose_b=False),
    )
