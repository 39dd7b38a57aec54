"""HDF5 files that anybody may have made: what they say of themselves is judged before it is read.

An HDF5 file can show the bytes of any other file as its own, and declare more values than any
machine holds.
"""

from typing import Any

from deploykit.storage.room import check_unpacked
from deploykit.transforms.core.errors import RefusedError


def check_hdf5(file: Any, size: int) -> None:
    """Check an open HDF5 file of so many bytes.

    RefusedError: it shows what lies in other files. GraphError: it declares what no honest file
    does. LimitError: its values take more memory than there is.
    """
    import h5py

    waiting, seen, declared = [file], {h5py.h5o.get_info(file.id).addr}, 0
    while waiting:
        group = waiting.pop()
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise RefusedError("hdf5-link", group=group.name, name=name)
            each = group[name]
            address = h5py.h5o.get_info(each.id).addr
            if address in seen:
                continue
            seen.add(address)
            if isinstance(each, h5py.Group):
                waiting.append(each)
            elif isinstance(each, h5py.Dataset):
                if each.external or each.is_virtual:
                    raise RefusedError("hdf5-external", name=each.name)
                declared += (each.size or 0) * each.dtype.itemsize
    check_unpacked(declared, size, "its HDF5 file")
