"""HDF5 files that reach outside themselves, claim terabytes, or run code."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.hostile.case import Case, Statuses, statuses, written
from tests.hostile.corpus.keras_archives import DENSE, code, layer, pickled, sequential, whole

KIND = "hdf5_files"
WRONG = statuses(2, 3)
REFUSED = statuses(3)


def keras_2(*layers: dict) -> dict:
    """Return the description of a model as Keras 2 wrote it."""
    first = {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 3], "name": "x",
                                                    "dtype": "float32"}}  # fmt: skip
    return {"class_name": "Sequential", "config": {"name": "model", "layers": [first, *layers]}}


DENSE_2 = {"class_name": "Dense", "config": {"name": "dense", "units": 4, "activation": "linear",
                                             "use_bias": False, "dtype": "float32"}}  # fmt: skip


def make(folder: Path, fill: Callable, config: object = None, name: str = "model.h5") -> Path:
    """Write a file with a description, and let `fill` put the weights into it."""
    import h5py

    path = folder / name
    with h5py.File(path, "w", track_order=False) as file:
        text = config if isinstance(config, str) else json.dumps(config or keras_2(DENSE_2))
        file.attrs["model_config"] = text
        file.attrs["keras_version"] = "2.13.1"
        file.attrs["backend"] = "tensorflow"
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [b"x", b"dense"]
        group.attrs["keras_version"] = "2.13.1"
        group.attrs["backend"] = "tensorflow"
        group.create_group("x").attrs["weight_names"] = []
        dense = group.create_group("dense")
        dense.attrs["weight_names"] = [b"dense/kernel:0"]
        fill(file, dense)
    return path


def case(
    name: str, fill: Callable, *culprit: str, config: object = None, right: Statuses = WRONG,
    heavy: bool = False,
) -> Case:  # fmt: skip
    """Return a case of one file."""

    def write(folder: Path) -> Path:
        described = config(folder) if callable(config) else config
        return make(folder, fill, described)

    return Case(KIND, name, write, "model", right, culprit, heavy)


def inside(name: str, fill: Callable, *culprit: str, heavy: bool = False) -> Case:
    """Return a case of an archive of Keras 3 with such weights."""

    def write(folder: Path) -> Path:
        import io

        import h5py

        made = io.BytesIO()
        with h5py.File(made, "w") as file:
            group = file.create_group("layers/dense/vars")
            fill(group)
            file.create_group("vars")
        content = whole(DENSE, model__weights__h5=made.getvalue())
        return written(folder, "model.keras", content)

    return Case(KIND, f"{name}, in an archive", write, "model", WRONG, culprit, heavy)


def sound(file, dense) -> None:
    """Store the right weights."""
    dense.create_dataset("dense/kernel:0", data=[[0.5] * 4] * 3, dtype="float32")


def outside(file, dense) -> None:
    """Store the weights as a link to another file."""
    import h5py

    dense["dense/kernel:0"] = h5py.ExternalLink("/etc/passwd", "/")


def external(file, dense) -> None:
    """Store the weights in another file, as they lie there."""
    dense.create_dataset("dense/kernel:0", shape=(3, 4), dtype="float32",
                         external=[("/etc/passwd", 0, 48)])  # fmt: skip


def of_shape(*sizes: int, **given) -> Callable:
    """Return what declares weights of which nothing is stored."""

    def fill(file, dense) -> None:
        dense.create_dataset("dense/kernel:0", shape=sizes, dtype="float32", **given)

    return fill


def circle(file, dense) -> None:
    """Store links in a circle."""
    import h5py

    dense["dense"] = h5py.SoftLink("/model_weights/dense/again")
    dense["again"] = h5py.SoftLink("/model_weights/dense/dense")


def own_parent(file, dense) -> None:
    """Store a folder in itself."""
    dense["dense"] = file["model_weights"]


def virtual(file, dense) -> None:
    """Store the weights as a view of another file."""
    import h5py

    layout = h5py.VirtualLayout(shape=(3, 4), dtype="float32")
    layout[:] = h5py.VirtualSource("/etc/passwd", "data", shape=(3, 4))
    dense.create_virtual_dataset("dense/kernel:0", layout)


def packed(file, dense) -> None:
    """Store weights of 1 GiB of zeros, packed."""
    dense.create_dataset("dense/kernel:0", shape=(1 << 14, 1 << 14), dtype="float32",
                         chunks=(1 << 11, 1 << 11), compression="gzip", fillvalue=0.0)[:2048,
                         :2048] = 0  # fmt: skip


def texts(file, dense) -> None:
    """Store texts for weights."""
    dense.create_dataset("dense/kernel:0", data=[[b"a"] * 4] * 3)


def objects(file, dense) -> None:
    """Store references for weights."""
    import h5py

    dense.create_dataset("dense/kernel:0", shape=(3, 4), dtype=h5py.ref_dtype)


def lambda_2(folder: Path) -> dict:
    """Return a description with code."""
    from tests.hostile.case import canary

    return keras_2({"class_name": "Lambda", "config": {
        "name": "odd", "function": [code(canary(folder)), None, None], "function_type": "lambda",
        "module": "__main__", "output_shape": None, "output_shape_type": "raw",
        "output_shape_module": None, "arguments": {}}})  # fmt: skip


def without_config(folder: Path) -> Path:
    """Write a file with weights alone."""
    path = make(folder, sound)
    import h5py

    with h5py.File(path, "a") as file:
        del file.attrs["model_config"]
    return path


def cut(folder: Path) -> Path:
    """Write a file that ends too early."""
    path = make(folder, sound)
    path.write_bytes(path.read_bytes()[:-1000])
    return path


def flipped(folder: Path) -> Path:
    """Write a file with wrong bytes in its middle."""
    path = make(folder, sound)
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 2] = b"\xa5" * (
        len(content) // 2 - len(content) // 3
    )
    path.write_bytes(content)
    return path


CASES = (
    case("sound", sound, right=statuses(0, 2, quantize=(0, 2, 5))),
    Case(KIND, "signature alone", lambda f: written(f, "model.h5", b"\x89HDF\r\n\x1a\n"),
         right=WRONG),
    Case(KIND, "garbage after the signature",
         lambda f: written(f, "model.h5", b"\x89HDF\r\n\x1a\n" + b"\xff" * 4000), right=WRONG),
    Case(KIND, "truncated", cut, right=WRONG),
    Case(KIND, "wrong bytes in the middle", flipped, right=statuses(0, 2, quantize=(0, 2, 5))),
    Case(KIND, "weights without a description", without_config, right=statuses(2, 4)),
    case("link to another file", outside, "kernel", "link"),
    case("values in another file", external, "kernel", "external", "outside"),
    case("view of another file", virtual, "kernel", "virtual", "outside"),
    case("links in a circle", circle, "kernel", "dense"),
    case("a folder within itself", own_parent, "kernel", "dense"),
    case("weights of 1 TiB that are not stored", of_shape(1 << 20, 1 << 18, chunks=(1024, 1024)),
         "kernel", "dense"),
    case("weights of 16 GiB that are not stored", of_shape(1 << 16, 1 << 16, chunks=(1024, 1024)),
         "kernel", "dense", heavy=True),
    case("weights of 1 GiB, packed", packed, "kernel", "dense", heavy=True),
    case("weights of another shape", of_shape(5, 5), "dense"),
    case("weights of no dimensions", of_shape(), "dense"),
    case("weights of nothing", of_shape(0, 4), "dense"),
    case("weights of texts", texts, "kernel", "dense"),
    case("weights of references", objects, "kernel", "dense"),
    case("weights missing", lambda file, dense: None, "kernel", "dense"),
    case("description that is no JSON", sound, config="{"),
    case("description that is a list", sound, config="[]"),
    case("description 50,000 deep", sound, config="[" * 50_000),
    case("description of nothing", sound, config="null"),
    case("Lambda with code of Keras 2", sound, "odd", "Lambda", config=lambda_2, right=REFUSED),
    case("a layer of another module", sound, "Popen", config=keras_2(
        {"class_name": "Popen", "module": "subprocess", "config": {"args": "true"}})),
    case("a layer of Keras 3 in a file of Keras 2", sound, config=sequential(layer("Nothing"))),
    case("a call of tf.io.write_file", sound, "write_file", config=keras_2(
        {"class_name": "TFOpLambda", "config": {"name": "odd", "function": "io.write_file"},
         "inbound_nodes": [["x", 0, 0, {"contents": "was run"}]]})),
    Case(KIND, "a pickle in its place", lambda f: written(f, "model.hdf5", pickled(f)),
         right=WRONG),
    inside("link to another file", lambda group: group.__setitem__(
        "0", __import__("h5py").ExternalLink("/etc/passwd", "/")), "dense", "link"),
    inside("values in another file", lambda group: group.create_dataset(
        "0", shape=(3, 4), dtype="float32", external=[("/etc/passwd", 0, 48)]), "dense", "external",
        "outside"),
    inside("weights of 16 GiB that are not stored", lambda group: group.create_dataset(
        "0", shape=(1 << 16, 1 << 16), dtype="float32", chunks=(1024, 1024)), "dense", heavy=True),
)  # fmt: skip
