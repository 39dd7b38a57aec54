"""Fetch the programming-language classifier of guesslang, a SavedModel.

    python models/guesslang/fetch.py [--to DIR]

Writes `fetched/` beside this file, which is the SavedModel folder, unless it is there already.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.fetch import Wheel, destination, fetch

WHEEL = Wheel(
    "guesslang", "2.2.1", "36bd12130515ee0e637f7255340ba92ea919d53423743f4c1b0c73727a5499cb"
)

if __name__ == "__main__":
    folder = destination(__doc__, Path(__file__).parent / "fetched")
    print(fetch(WHEEL, "guesslang/data/model/", folder))
