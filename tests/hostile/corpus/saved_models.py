"""SavedModels that act when they are loaded, lack what they need, or claim what they have not."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from deploykit.transforms.ir.protos import SavedModel
from tests.hostile.bundles import entry, index
from tests.hostile.case import (
    BAD,
    EFFECT,
    HARMLESS,
    UNREAD,
    Case,
    Statuses,
    canary,
    statuses,
    written,
)
from tests.hostile.commands import saved_model
from tests.hostile.corpus.effects import DEAD
from tests.hostile.graphs import (
    FLOAT,
    RESOURCE,
    STRING,
    Shape,
    Type,
    constant,
    floats,
    net,
    node,
    placeholder,
    text,
)  # fmt: skip
from tests.hostile.wire import block

KIND = "saved_models"
MISSING = statuses(2, 4, serve=(0, 2, 4))
DAMAGED = statuses(2, serve=(0, 2))
ODD = statuses(0, 2, 4, 5)
UNUSED = statuses(0, 2, check=2)
"""What is wrong is not part of what is frozen."""
OUTSIDE = statuses(2, 3, serve=(0, 2, 3))
VALUES = np.linspace(-1, 1, 12, dtype=np.float32).tobytes()


def save(folder: Path, saved: SavedModel | bytes) -> Path:
    """Write a SavedModel as version 1 of a model; return its folder."""
    content = saved if isinstance(saved, bytes) else saved.SerializeToString(deterministic=True)
    return written(folder, "1/saved_model.pb", content).parent


def case(
    name: str, make: Callable[[Path], SavedModel | bytes], *culprit: str, right: Statuses = DAMAGED,
    heavy: bool = False,
) -> Case:  # fmt: skip
    """Return a case of a SavedModel; `make` may write more into the folder of its version."""

    def write(folder: Path) -> Path:
        (folder / "1").mkdir()
        return save(folder, make(folder / "1"))

    return Case(KIND, name, write, "served", right, culprit, heavy)


def with_variable(sizes: tuple[int, ...] = (3, 4)) -> SavedModel:
    """Return a model whose weights are a variable."""
    handle = node("w", "VarHandleOp", dtype=Type(FLOAT), shape=Shape(sizes), container="",
                  shared_name="w")  # fmt: skip
    made = net()
    made.node[0].CopyFrom(placeholder("x", (-1, 3)))
    made.node[1].CopyFrom(node("weights", "ReadVariableOp", "w", dtype=Type(FLOAT)))
    made.node.extend([
        handle, text("save/Const", "model"),
        constant("save/names", np.array([b"w"], object)),
        constant("save/slices", np.array([b""], object)),
        node("save/RestoreV2", "RestoreV2", "save/Const", "save/names", "save/slices",
             dtypes=[Type(FLOAT)]),
        node("save/Assign", "AssignVariableOp", "w", "save/RestoreV2", dtype=Type(FLOAT),
             validate_shape=False),
        node("save/restore_all", "NoOp", "^save/Assign"),
    ])  # fmt: skip
    saved = saved_model(made)
    saver = saved.meta_graphs[0].saver_def
    saver.filename_tensor_name, saver.restore_op_name = "save/Const:0", "save/restore_all"
    saver.save_tensor_name, saver.version = "save/Const:0", 2
    return saved


def variables(
    folder: Path, of: bytes | None = None, content: bytes | None = VALUES,
    index_file: bytes | None = None,
) -> None:  # fmt: skip
    """Write the files of the variable."""
    whole = index({"w": of or entry(FLOAT, (3, 4), 0, len(VALUES), VALUES)})
    written(folder, "variables/variables.index", whole if index_file is None else index_file)
    if content is not None:
        written(folder, "variables/variables.data-00000-of-00001", content)


def stored(sizes: tuple[int, ...] = (3, 4), **files) -> Callable[[Path], SavedModel]:
    """Return what makes a model with a variable in such files."""

    def make(folder: Path) -> SavedModel:
        variables(folder, **files)
        return with_variable(sizes)

    return make


def with_init(folder: Path, key: str, in_signature: bool = False) -> SavedModel:
    """Return a model that writes a file when it is loaded."""
    file = str(canary(folder.parent))
    made = net(text("file", file), text("content", "was run"),
               node("write", "WriteFile", "file", "content"))  # fmt: skip
    saved = saved_model(made)
    meta = saved.meta_graphs[0]
    if in_signature:
        meta.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "write"
    else:
        meta.collection_def[key].node_list.value.append("write")
    return saved


def with_asset(folder: Path, name: str) -> SavedModel:
    """Return a model with an asset of any name."""
    saved = saved_model(net(text("asset", "x")))
    made = saved.meta_graphs[0].asset_file_def.add(filename=name)
    made.tensor_info.name = "asset:0"
    return saved


def with_asset_in_table(folder: Path, name: str) -> SavedModel:
    """Return a model that fills a table from an asset when it is loaded."""
    saved = with_asset(folder, name)
    meta = saved.meta_graphs[0]
    meta.graph_def.node.extend([
        node("table", "HashTableV2", container="", shared_name="t", key_dtype=Type(STRING),
             value_dtype=Type(9), use_node_name_sharing=False),
        node("init", "InitializeTableFromTextFileV2", "table", "asset", key_index=-2,
             value_index=-1, vocab_size=-1, delimiter="\t", offset=0),
    ])  # fmt: skip
    meta.collection_def["saved_model_main_op"].node_list.value.append("init")
    return saved


def changed(edit: Callable[[SavedModel], object]) -> Callable[[Path], SavedModel]:
    """Return what makes a sound model and then changes it."""

    def make(folder: Path) -> SavedModel:
        saved = saved_model()
        edit(saved)
        return saved

    return make


def signature(saved: SavedModel):
    """Return its only signature."""
    return saved.meta_graphs[0].signature_def["serving_default"]


def set_name(saved: SavedModel, side: str, name: str) -> None:
    """Let the signature name a tensor."""
    each = getattr(signature(saved), side)
    each["x" if side == "inputs" else "y"].name = name


def many(count: int) -> Callable[[SavedModel], None]:
    """Return what adds so many meta graphs of other tags."""
    return lambda saved: [
        saved.meta_graphs.add().meta_info_def.tags.append(f"t{i}") for i in range(count)
    ]


def same_tags(saved: SavedModel) -> None:
    """Add the same again."""
    saved.meta_graphs.add().CopyFrom(saved.meta_graphs[0])


def object_graph(saved: SavedModel) -> None:
    """Add a circle of objects, one of which is not there."""
    graph = saved.meta_graphs[0].object_graph_def
    for child in (1, 0, 10**6):
        graph.nodes.add().children.add(node_id=child, local_name="again")
    graph.nodes[0].user_object.identifier = "_generic_user_object"


def linked(folder: Path, what: str, target: str) -> SavedModel:
    """Return a model of which something is a link out of its folder."""
    (folder / what).parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, folder / what)
    return with_variable() if what.startswith("variables") else saved_model()


TIB = entry(FLOAT, (1 << 20, 1 << 18), 0, 1 << 40)
GOOD = saved_model().SerializeToString(deterministic=True)

CASES = (
    case("sound", lambda _: saved_model(), right=HARMLESS),
    case("sound with a variable", stored(), right=HARMLESS),
    case("empty file", lambda _: b""),
    case("garbage", lambda _: b"\xff" * 1000),
    case("truncated", lambda _: GOOD[:-30]),
    case("a GraphDef in its place", lambda _: net().SerializeToString(deterministic=True)),
    case("no meta graph", lambda _: SavedModel(saved_model_schema_version=1)),
    case("schema of another version", changed(lambda s: setattr(s, "saved_model_schema_version",
         99)),
         right=ODD),
    case("meta graph of garbage", lambda _: GOOD + block(2, b"\xff" * 100)),
    case("meta graph without a graph",
         changed(lambda s: s.meta_graphs[0].ClearField("graph_def"))),
    case("5,000 meta graphs", changed(many(5000)), right=ODD),
    case("200,000 empty meta graphs", lambda _: GOOD + b"\x12\x00" * 200_000, right=ODD,
         heavy=True),
    case("two meta graphs of the same tags", changed(same_tags), right=ODD),
    case("no tags", changed(lambda s: s.meta_graphs[0].meta_info_def.ClearField("tags")),
         right=ODD),
    case("tags of a path",
         changed(lambda s: s.meta_graphs[0].meta_info_def.tags.append("../../etc")), right=ODD),
    case("stripped ops that are unknown",
         changed(lambda s: s.meta_graphs[0].meta_info_def.stripped_op_list.op.add(name="Nothing")),
         right=ODD),
    case("signature with an output that is missing",
         changed(lambda s: set_name(s, "outputs", "gone:0")), "'gone"),
    case("signature with an input that is missing",
         changed(lambda s: set_name(s, "inputs", "gone:0")), "'gone"),
    case("signature with a port that is missing",
         changed(lambda s: set_name(s, "outputs", "out:7")), "'out:7'"),
    case("signature with an empty name", changed(lambda s: set_name(s, "outputs", "")), "''",
         "serving_default"),
    case("signature with a name of a path",
         changed(lambda s: set_name(s, "outputs", "../../etc/passwd:0")), "passwd"),
    case("signature of no outputs", changed(lambda s: signature(s).outputs.clear()),
         "serving_default", right=ODD),
    case("signature of no inputs", changed(lambda s: signature(s).inputs.clear()), right=ODD),
    case("no signature", changed(lambda s: s.meta_graphs[0].signature_def.clear()), right=ODD),
    case("signature that gives its output as its input",
         changed(lambda s: set_name(s, "inputs", "out:0")), right=ODD),
    case("signature of a type that is not the tensor's",
         changed(lambda s: setattr(signature(s).inputs["x"], "dtype", STRING)), "'x", right=ODD),
    case("signature of a shape that is not the tensor's",
         changed(lambda s: setattr(signature(s).inputs["x"].tensor_shape.dim[1], "size", 99)), "'x",
         right=ODD),
    case("signature of another method",
         changed(lambda s: setattr(signature(s), "method_name", "../../x")), right=ODD),
    case("10,000 signatures", changed(lambda s: [
        s.meta_graphs[0].signature_def[f"s{i}"].CopyFrom(signature(s)) for i in range(10_000)]),
         right=ODD, heavy=True),
    case("init op that writes a file, saved_model_main_op",
         lambda f: with_init(f, "saved_model_main_op"), "'write'", right=EFFECT),
    case("init op that writes a file, legacy_init_op",
         lambda f: with_init(f, "legacy_init_op"), "'write'", right=EFFECT),
    case("init op that writes a file, in a signature",
         lambda f: with_init(f, "", in_signature=True), "'write'", right=EFFECT),
    case("init op that is not there", changed(lambda s: s.meta_graphs[0].collection_def[
        "saved_model_main_op"].node_list.value.append("gone")), "'gone'", right=UNUSED),
    case("asset outside the folder", lambda f: with_asset(f, "../../../etc/passwd"), "passwd",
         right=OUTSIDE),
    case("asset with an absolute path", lambda f: with_asset(f, "/etc/passwd"), "passwd",
         right=OUTSIDE),
    case("asset that is missing", lambda f: with_asset(f, "nothing.txt"), "nothing.txt",
         right=ODD),
    case("asset with a null in its name", lambda f: with_asset(f, "a\0b"), "a\\x00b", "'a",
         right=OUTSIDE),
    case("asset outside the folder that fills a table",
         lambda f: with_asset_in_table(f, "../../../../../../etc/passwd"), "passwd",
         right=OUTSIDE),
    case("variables missing", lambda _: with_variable(), "variables", "'w'", right=MISSING),
    case("index missing", lambda f: (variables(f), (f / "variables/variables.index").unlink(),
                                     with_variable())[-1], "variables.index", right=MISSING),
    case("values missing", stored(content=None), "variables", right=MISSING),
    case("values empty", stored(content=b""), "variables", right=MISSING),
    case("values truncated", stored(content=VALUES[:-3]), "variables", right=MISSING),
    case("values with a wrong checksum", stored(content=b"\1" + VALUES[1:]), "variables",
         right=UNREAD),
    case("index empty", stored(index_file=b""), "variables"),
    case("index of garbage", stored(index_file=b"\xff" * 500), "variables"),
    case("index of zeros", stored(index_file=bytes(500)), "variables"),
    case("index truncated", stored(index_file=index({})[:-9]), "variables"),
    case("index without the variable", stored(index_file=index({})), "'w'", right=UNREAD),
    case("index of a million shards", stored(index_file=index({"w": TIB}, 1_000_000)), "variables",
         "'w'"),
    case("variable of 1 TiB", stored((1 << 20, 1 << 18), of=TIB), "'w'", "variables"),
    case("variable of 1 TiB, graph of 12 values", stored(of=TIB), "'w'", "variables"),
    case("variable of 16 GiB that is not there",
         stored((1 << 16, 1 << 16), of=entry(FLOAT, (1 << 16, 1 << 16), 0, 1 << 34)), "'w'",
         "variables", heavy=True),
    case("variable of minus one", stored(of=entry(FLOAT, (-1, 4), 0, 48)), "'w'", "variables"),
    case("variable beyond the end of the file", stored(of=entry(FLOAT, (3, 4), 1 << 40, 48)), "'w'",
         "variables"),
    case("variable of another shape", stored((4, 3), of=entry(FLOAT, (3, 4), 0, 48, VALUES)),
         "'w'"),
    case("variable of another type", stored(of=entry(3, (3, 4), 0, 48, VALUES)), "'w'",
         "variables", right=UNREAD),
    case("variable of an unknown type", stored(of=entry(99, (3, 4), 0, 48, VALUES)), "'w'",
         "variables"),
    case("variable of texts of 1 GiB each", stored(of=entry(STRING, (3, 4), 0, 48, None)), "'w'",
         "variables", right=UNREAD),
    Case(KIND, "saved_model.pb is a folder",
         lambda folder: ((folder / "1/saved_model.pb").mkdir(parents=True), folder / "1")[1],
         "served", statuses(2, 4, serve=(0, 2, 4))),
    case("variables linked out of the folder",
         lambda f: linked(f, "variables/variables.index", "/etc/passwd"), "variables",
         right=MISSING),
    case("variables linked to a device",
         lambda f: linked(f, "variables/variables.index", "/dev/zero"), "variables", right=MISSING),
    case("folder of variables linked in a circle", lambda f: linked(f, "variables", "variables"),
         "variables", right=MISSING),
    case("assets linked to everything", lambda f: linked(f, "assets", "/"), right=ODD),
    case("a circle of objects", changed(object_graph), right=ODD),
    case("objects of garbage", lambda _: GOOD + block(2, block(7, b"\xff" * 50))),
    case("a variable that is read and not there",
         lambda f: saved_model(net(placeholder("res", (), RESOURCE), node(
             "odd", "ReadVariableOp", "res", dtype=Type(FLOAT)))), right=ODD),
    case("a recursive function",
         changed(lambda s: s.meta_graphs[0].graph_def.library.function.add(
             signature={"name": "f"}, node_def=[node("again", "f")])), "'f'",
         right=UNUSED),
    case("a graph with a wrong constant",
         changed(lambda s: s.meta_graphs[0].graph_def.node.append(constant("odd", 1.0, of=3))),
         "'odd'", right=UNUSED),
    case("a graph that reads a file",
         changed(lambda s: s.meta_graphs[0].graph_def.node.extend(
             [text("f", "/etc/passwd"), node("odd", "ReadFile", "f")])), "'odd'", right=DEAD),
    case("a graph with a missing input",
         changed(lambda s: s.meta_graphs[0].graph_def.node.append(floats("odd", "Relu", "gone"))),
         "'odd'", "'gone'", right=UNUSED),
    case("deep messages within messages",
         lambda _: GOOD + deep(200), right=BAD),
)  # fmt: skip


def deep(levels: int) -> bytes:
    """Return a list of functions within functions."""
    content = b""
    for _ in range(levels):
        content = block(10, block(1, b"f") + block(2, block(1, b"a") + block(2, content)))
    held = block(5, block(1, b"deep") + block(2, content))
    return block(2, block(2, block(1, block(1, b"n") + block(2, b"NoOp") + held)))
