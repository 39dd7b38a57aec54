"""What a SavedModel answers through each of TensorFlow's loaders; needs nothing but TensorFlow.

python -m tests.loading FOLDER FEEDS ANSWERS
does so for the pickled feeds of each signature, in whatever environment it is started.
"""

import pickle
import sys
from pathlib import Path
from typing import Any

Feeds = dict[str, Any]


def answers(folder: Path | str, signature: str, feeds: Feeds) -> list[Feeds]:
    """Return the outputs by alias, as the loader of TensorFlow 1 and that of 2 have them."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(folder))
        signed = meta.signature_def[signature]
        old = session.run(
            {alias: info.name for alias, info in signed.outputs.items()},
            {signed.inputs[alias].name: array for alias, array in feeds.items()},
        )
    loaded = tf.saved_model.load(str(folder))
    new = loaded.signatures[signature](**{k: tf.constant(v) for k, v in feeds.items()})
    return [old, {alias: tensor.numpy() for alias, tensor in new.items()}]


def main() -> None:
    folder, feeds, target = sys.argv[1:]
    asked = pickle.loads(Path(feeds).read_bytes())
    found = {name: answers(folder, name, each) for name, each in asked.items()}
    Path(target).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()
