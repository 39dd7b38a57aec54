"""Train a ResNet, an Inception-like and a MobileNetV3-like net on Fashion-MNIST, as Keras files.

    python models/fashion_nets/build.py [--to DIR] [--data DIR]

Writes `built/` beside this file, unless it is there already: the nets, 128 images for calibration,
and the test images with their labels. The data comes from a Debian package, as in models/fashion.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.building import new_folder
from models.fashion.build import add_data_option, read_data, train_keras
from models.fashion_nets.nets import NETS

HERE = Path(__file__).parent
EPOCHS = 2
CALIBRATION_IMAGES = 128


def write(data: Path | None, folder: Path) -> None:
    """Train each net, write all files to the folder, and print how well the nets do."""
    train, test = read_data(data)
    np.savez_compressed(folder / "calibration.npz", images=train[0][:CALIBRATION_IMAGES])
    np.savez_compressed(folder / "test.npz", images=test[0], labels=test[1])
    for name, net in NETS.items():
        start, cpu_start = time.perf_counter(), time.process_time()
        classes = train_keras(net, train, test, EPOCHS, folder / f"{name}.keras")
        print(
            f"{name}: test accuracy {np.mean(classes == test[1]):.4f} after "
            f"{time.perf_counter() - start:.0f} s ({time.process_time() - cpu_start:.0f} CPU s)"
        )


def main() -> None:
    """Build what is not there yet; all files appear at once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = "where to put it, a new folder (default: beside the script)"
    parser.add_argument("--to", type=Path, metavar="DIR", default=HERE / "built", help=where)
    add_data_option(parser)
    options = parser.parse_args()
    if not options.to.exists():
        with new_folder(options.to) as partial:
            write(options.data, partial)
    print(options.to)


if __name__ == "__main__":
    main()
