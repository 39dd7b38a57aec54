"""Fetch the music transcription network of basic-pitch, a SavedModel.

    python models/basic_pitch/fetch.py [--to DIR]

Writes `fetched/` beside this file, which is the SavedModel folder, unless it is there already.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.fetch import Wheel, destination, fetch

WHEEL = Wheel(
    "basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0"
)

if __name__ == "__main__":
    folder = destination(__doc__, Path(__file__).parent / "fetched")
    print(fetch(WHEEL, "basic_pitch/saved_models/icassp_2022/nmp/", folder))
