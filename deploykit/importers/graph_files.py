"""Frozen graph files: validated when read, and written deterministically."""

import hashlib
import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from deploykit.importers.metadata_file import (
    check_graph_output,
    load_sidecar,
    sidecar,
    sidecar_path,
)
from deploykit.importers.signature import check_outputs, guess_inputs, guess_outputs
from deploykit.importers.unusual_ops import leave_out_unknown_ops, unknown_ops
from deploykit.storage.files import MAX_BYTES, hidden, read_bytes, write
from deploykit.transforms.common.errors import FileError, GraphError, cannot_be, naming
from deploykit.transforms.engines.packages import package_folder
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.shapes.import_check import check_import
from deploykit.transforms.untrusted.file_locks import sync
from deploykit.transforms.untrusted.files import read_released
from deploykit.transforms.untrusted.validate import check_ends, read_graph
from deploykit.transforms.untrusted.wire import binary_form, check_growth, decoded

_MAGIC = {
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"PK\x03\x04": "a zip archive, perhaps a .keras file",
    b"\x1f\x8b": "a gzip file; unpack it first",
    b"\x80\x02": "a Python pickle, which deploykit never loads",
    b"\x80\x03": "a Python pickle, which deploykit never loads",
    b"\x80\x04": "a Python pickle, which deploykit never loads",
    b"\x80\x05": "a Python pickle, which deploykit never loads",
    b"version https://git-lfs": "a Git LFS pointer; run `git lfs pull`",
}


Content = TypeVar("Content", bound=bytes | mmap.mmap)

_LARGE_PIECE = 1 << 20  # bytes above which hashing in a thread is worthwhile
_TEXT = re.compile(rb"(?:\s|#[^\n]*\n)*+[a-z_]+\s*[:{<]")  # no binary GraphDef begins like this


def parse_graph_def(path: str | os.PathLike[str]) -> GraphDef:
    """Read a binary or text GraphDef, whatever its file name; its nodes are not checked.

    GraphError: the file is empty, damaged, or of another kind.
    """
    with naming(path):
        return decoded(graph_bytes(read_bytes(path)), GraphDef)


def graph_bytes(content: Content) -> Content | bytes:
    """Return the binary form of a GraphDef file's contents, safe to decode in limited memory.

    GraphError: it is empty, damaged, of another kind, or too large once decoded.
    """
    if not content:
        raise GraphError("file-empty", expected="a GraphDef")
    for magic, kind in _MAGIC.items():
        if content[: len(magic)] == magic:
            raise GraphError("file-kind", got=kind, expected="a GraphDef")
    try:
        if _TEXT.match(content):
            return binary_form(content[:], GraphDef)
        check_growth(content, GraphDef)
    except GraphError as error:
        raise GraphError(
            "not-a", what="a GraphDef, neither binary nor text", reason=error
        ) from None
    return content


def load_graph(
    path: str | os.PathLike[str],
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    *,
    needs_output: bool = True,
) -> Graph:
    """Read a frozen graph from a `.pb` or `.pbtxt` file.

    The metadata file `X.pb.json` provides the inputs, the outputs and the graph's `about`. The
    file's bytes are checked before decoding. TensorFlow is not started, so graphs with invalid
    shapes are read too.

    Args:
        path: the file.
        inputs: the tensors to feed; default: from the metadata file, or the placeholders.
        outputs: the tensors to fetch; default: from the metadata file, or the nodes that no node
            reads.
        needs_output: whether a graph without a recognizable output is refused; otherwise it gets
            no outputs.

    FileError: it cannot be read. GraphError: it is not a valid graph, or lacks an input or output.

    Example:
        >>> graph = deploykit.load_graph("fashion.pb", outputs=["probabilities"])
        >>> graph.inputs
        ('images',)
    """
    return _loaded(Path(path), inputs, outputs, needs_output)[0]


def load_importable_graph(
    path: str | os.PathLike[str],
    inputs: Iterable[str],
    outputs: Iterable[str],
    *,
    needs_output: bool,
) -> tuple[Graph, bool]:
    """Read a frozen graph like `load_graph`, and check that TensorFlow can import it.

    The second value is whether nodes were removed that TensorFlow cannot import.

    GraphError, additionally: TensorFlow refuses the graph or crashes on it.
    """
    graph, is_cut = _loaded(Path(path), inputs, outputs, needs_output)
    # Commands that only read a graph work without TensorFlow.
    if package_folder() is not None and (graph.outputs or not unknown_ops(graph)):
        with naming(path):
            check_import(graph, is_validated=True)
    return graph, is_cut


def _loaded(
    path: Path, inputs: Iterable[str], outputs: Iterable[str], needs_output: bool
) -> tuple[Graph, bool]:
    content = read_released(path)
    sha256 = hashlib.sha256(content).hexdigest() if sidecar_path(path).is_file() else None
    with naming(path):
        graph = read_graph(graph_bytes(content))
        known_inputs, known_outputs, graph.about = load_sidecar(path, sha256) or ((), (), None)
        named = tuple(_name_after_a_cut(graph, tensor) for tensor in inputs)
        graph.inputs = named or tuple(known_inputs) or guess_inputs(graph)
        outputs = tuple(outputs)
        check_outputs(graph, outputs, tuple(known_outputs))
        graph.outputs = outputs or tuple(known_outputs)
        if not graph.outputs and needs_output:
            graph.outputs = guess_outputs(graph)
        check_ends(graph)
        is_cut = leave_out_unknown_ops(graph)
    return graph, is_cut


def _name_after_a_cut(graph: Graph, tensor: str) -> str:
    """Return the Placeholder NODE_PORT if `strip_unused_nodes` replaced NODE:PORT by it."""
    name, port = split(tensor)
    cut = [name, f"{name}_{port}"]
    is_cut = port > 0 and all(n in graph and graph[n].op == "Placeholder" for n in cut)
    return cut[1] if is_cut else tensor


def save_graph(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    as_text: bool = False,
    check: Callable[[Path], object] | None = None,
) -> int:
    """Write a graph deterministically and return its size in bytes.

    Its metadata is written to `X.pb.json` for `X.pb`: inputs, outputs, signatures, preprocessing
    and labels. Every command reads that file. `check` is called with a temporary path of the
    complete file before the rename; if it raises, nothing is written.

    FileError: the file exists and `force` is not set, or it cannot be written.

    Example:
        >>> graph = deploykit.load_graph("fashion.pb")
        >>> size = deploykit.save_graph(graph, "copy.pb")
        >>> deploykit.save_graph(graph, "copy.pb", force=True) == size
        True
    """
    if path == "-":
        raise FileError("graph-to-stdout")
    check_graph_output(path, force)
    beside, is_new = sidecar_path(path), not os.path.lexists(path)
    try:
        with hidden(beside) as (partial, file):
            count, _ = write_graph(
                graph, path, force=force, as_text=as_text, check=check, metadata=file
            )
            try:
                partial.replace(beside)
            except OSError:
                if is_new:
                    Path(path).unlink(missing_ok=True)
                raise
        sync(beside.parent)
    except OSError as error:
        raise cannot_be("written", beside, error) from None
    return count


def write_graph(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    as_text: bool = False,
    check: Callable[[Path], object] | None = None,
    metadata: BinaryIO | None = None,
) -> tuple[int, str]:
    """Write a graph; return the size in bytes and the SHA-256.

    `metadata` is an open file that gets the graph's metadata before the graph gets its name, so
    that a graph always has it.
    """
    digest = hashlib.sha256()
    pieces: Iterable[bytes] = _within_limit(graph.serialized())
    if as_text:
        from google.protobuf import text_format

        pieces = [text_format.MessageToString(graph.to_graph_def()).encode()]

    def complete(partial: Path) -> None:
        if check is not None:
            check(partial)
        if metadata is not None:
            metadata.writelines(sidecar(graph, digest.hexdigest()))
            metadata.flush()
            os.fsync(metadata.fileno())

    with ThreadPoolExecutor(1) as pool:
        count = write(path, _hashed(pieces, digest, pool), force, complete)
    return count, digest.hexdigest()


def _hashed(pieces: Iterable[bytes], digest: Any, pool: ThreadPoolExecutor) -> Iterator[bytes]:
    """Yield pieces; large ones are hashed while they are written."""
    for piece in pieces:
        if len(piece) < _LARGE_PIECE:
            digest.update(piece)
            yield piece
        else:
            hashing = pool.submit(digest.update, piece)
            yield piece
            hashing.result()


def _within_limit(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a message. GraphError: protobuf could not parse one this large."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_BYTES:
            raise GraphError("graph-too-large", container="GraphDef file")
        yield piece
