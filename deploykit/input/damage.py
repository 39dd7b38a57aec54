"""Images that cannot be decoded, found before anything is measured, and left out by name."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from deploykit.input.feed import check_records
from deploykit.input.pipeline import Pipeline
from deploykit.machine import usable_cores
from transforms.core.child import call
from transforms.core.errors import Error, GraphError


def without_damaged(pipeline: Pipeline) -> tuple[Pipeline, tuple[str, ...]]:
    """Return the pipeline over sound images, and the files that are left out.

    So every style reads the same images, and none meets a damaged one. GraphError: the data are no
    image files, or none is sound.
    """
    data = pipeline.data
    if data.kind != "images":
        raise GraphError(
            f"{data.path}: --on-error skip leaves out images; a damaged line or record should be "
            "written again"
        )
    found: tuple[str, ...] = tuple(call(f"{__name__}:damaged", pipeline))
    return (replace(pipeline, data=data.without(found)) if found else pipeline), found


def damaged(pipeline: Pipeline) -> list[str]:
    """Return the files of images that cannot be used; this is done in a child process."""

    def is_damaged(number: int) -> bool:
        data = pipeline.data
        file, label = data.files[number], data.labels[number]
        only = replace(data, files=(file,), labels=(label,), counts=(1,))
        try:
            check_records(replace(pipeline, data=only))
        except Error:
            return True
        return False

    files = pipeline.data.files
    with ThreadPoolExecutor(usable_cores()) as pool:
        flags = pool.map(is_damaged, range(len(files)))
        return [file for file, flag in zip(files, flags, strict=True) if flag]
