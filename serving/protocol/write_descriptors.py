"""Write the descriptors of the private pool: `make protos`.

They come from the installed packages and from the .proto files next to this module.
"""

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2

from deploykit.transforms.common.errors import Error
from deploykit.transforms.ir import protos
from deploykit.transforms.ir.protos import DESCRIPTORS


def main() -> None:
    """Write the file. It needs tensorflow-serving-api and a protobuf that can load it."""
    import tensorflow  # noqa: F401  the modules of services need it
    from tensorflow_serving.apis import (
        model_service_pb2,
        prediction_log_pb2,
        prediction_service_pb2,
    )

    results: dict[str, Any] = {}
    for name in protos.__all__:
        results |= _with_imports(getattr(protos, name).DESCRIPTOR.file, results)
    for module in (model_service_pb2, prediction_log_pb2, prediction_service_pb2):
        results |= _with_imports(module.DESCRIPTOR, results)
    files = descriptor_pb2.FileDescriptorSet()
    for file in results.values():
        file.CopyToProto(files.file.add())
    files.MergeFrom(_compiled(Path(__file__).parent))
    content = files.SerializeToString(deterministic=True)
    DESCRIPTORS.write_bytes(gzip.compress(content, 9, mtime=0))
    sys.stdout.write(f"{DESCRIPTORS}: {len(files.file)} files\n")


def _compiled(folder: Path) -> descriptor_pb2.FileDescriptorSet:
    """Return the descriptors of the .proto files in a folder. Error: protoc rejects them."""
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary, "files.binpb")
        names = sorted(path.name for path in folder.glob("*.proto"))
        # protoc would crash next to TensorFlow's protobuf in this process.
        protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}"]
        if subprocess.run([*protoc, f"--descriptor_set_out={target}", *names]).returncode:
            raise Error("protoc-failed", names=names, folder=folder)
        return descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())


def _with_imports(file: Any, known: dict[str, Any]) -> dict[str, Any]:
    """Return a file after all files that it imports, by name, without known ones."""
    if file.name in known:
        return {}
    results: dict[str, Any] = {}
    for dependency in file.dependencies:
        results |= _with_imports(dependency, {**known, **results})
    return {**results, file.name: file}


if __name__ == "__main__":
    main()
