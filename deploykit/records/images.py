"""Sources of records from image folders, and decoding."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploykit.records.examples import Feature
from deploykit.records.record_source import (
    Batch,
    Problem,
    SourcePart,
    facts_of,
    no_records_error,
    numbered,
    split_items,
)
from deploykit.storage.files import read_bytes
from deploykit.storage.image_files import decoded, image_ends, image_problem, read_image
from deploykit.storage.image_folders import (
    ImageFolder,
    list_images,
    listed_labels,
)
from deploykit.transforms.common.errors import FileError, GraphError, LimitError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker


class Decoder:
    """Decodes images with TensorFlow, in a child process."""

    def decode(self, contents: Sequence[bytes], channels: int = 0) -> list[Array | str]:
        """Return the pixels of each image, uint8 [height, width, channels], or an error text.

        0 channels means the number in the file. Of an animation, only the first image is decoded.
        """
        import tensorflow as tf

        arrays: list[Array | str] = []
        for content in contents:
            try:
                arrays.append(decoded(content, channels))
            except GraphError as error:
                arrays.append(str(error))
            except tf.errors.ResourceExhaustedError as error:
                raise LimitError("image-too-large", reason=error.message.splitlines()[0]) from None
            except tf.errors.OpError as error:
                reason = error.message.splitlines()[0] if error.message else "no reason given"
                arrays.append(f"it cannot be decoded: {reason}")
        return arrays


DECODER = "deploykit.records.images:Decoder"


class Images:
    """Image files and their labels, sorted by name."""

    def __init__(self, folder: Path, labels: Path | None = None, raw: bool = False) -> None:
        """List the images. FileError, GraphError: there are none, or their labels are invalid."""
        found = list_images(folder, labels or "")
        result: Sequence[str] = found.images
        self.classes: tuple[str, ...] = ()
        numbers: list[int | None] | None = None
        if labels is not None:
            result, numbers, self.classes = _labelled(found, labels)
            found = _with_images(found, result)
        elif found.classes:
            numbers, self.classes = _by_folder(found)
        if not result:
            raise no_records_error([folder], f"expected images ({', '.join(image_ends())})")
        found.warn_of_skipped()
        self.files = facts_of([*result, str(labels)] if labels is not None else result)
        self._images = result
        self._labels = numbers
        self._labels_file = labels
        self._decoder: Worker | None = None
        self._shape: tuple[int, ...] = ()
        self.features = {"image": Feature("string", (), "image")}
        if raw:
            self._shape = _first_shape(result)
            self.features = {"pixels": Feature("uint8", self._shape, "raw")}
        if numbers is not None:
            self.features["label"] = Feature("int64")

    def parts(self) -> list[SourcePart]:
        """Return ranges of images."""
        pixels = 1
        for size in self._shape:
            pixels *= size
        if self._shape:
            return split_items(pixels for _ in self._images)
        return split_items(self.files[path][0] for path in self._images)

    def read(self, part: SourcePart) -> Batch:
        """Return the files or the pixels of some images, and their labels."""
        labels, problems = self._labels, dict[int, str]()
        images: dict[int, Any] = {}
        for number in range(part.start, part.stop):
            path = self._images[number]
            content, reason = read_image(path)
            reason = reason or image_problem(content)
            if labels and labels[number] is None:
                reason = reason or f"the image has no label in {self._labels_file}"
            if reason:
                problems[number] = reason
            else:
                images[number] = content
        if self._shape:
            for number, image in zip([*images], self._decoded([*images.values()]), strict=True):
                if isinstance(image, str):
                    problems[number] = image
                    del images[number]
                else:
                    images[number] = image
        columns: dict[str, Any] = {"pixels" if self._shape else "image": [*images.values()]}
        if labels:
            columns["label"] = [labels[n] for n in images]
        return Batch(columns, [Problem(self._images[n], problems[n]) for n in sorted(problems)])

    def _decoded(self, contents: Sequence[bytes]) -> Iterator[Array | str]:
        """Yield the pixels of each image, or why they cannot be stored."""
        if self._decoder is None:
            self._decoder = Worker(DECODER)
        for image in self._decoder.ask("decode", contents, self._shape[2]):
            if isinstance(image, str) or image.shape == self._shape:
                yield image
                continue
            sizes, first = ("x".join(map(str, shape)) for shape in (image.shape, self._shape))
            yield (f"the image is {sizes}, but the first one is {first}; without --raw, "
                   "sizes may differ")  # fmt: skip


def _by_folder(found: ImageFolder) -> tuple[list[int | None], tuple[str, ...]]:
    """Return the class of each image and all classes: the top-level subfolders, even empty ones."""
    if found.unclassed:
        file = found.relative(found.unclassed)
        raise GraphError(
            "image-without-class", source=found.path, file=file, labels="--labels FILE.csv"
        )
    found.warn_of_empty()
    places = {name: number for number, name in enumerate(found.subfolders)}
    return [places[found.top_of(image)] for image in found.images], found.subfolders


def _labelled(
    found: ImageFolder, labels: Path
) -> tuple[list[str], list[int | None], tuple[str, ...]]:
    """Return all images, including those that only the CSV file names, their labels and classes."""
    given, _ = listed_labels(found, labels)
    numbers, classes = numbered(list(given.values()))
    by_path = dict(zip(given, numbers, strict=True))
    images = sorted({*map(os.path.normpath, found.images), *given})
    return images, [by_path.get(path) for path in images], classes


def _with_images(found: ImageFolder, images: Sequence[str]) -> ImageFolder:
    """Return the folder with some of its skipped files as images, which become bad rows."""
    paths = {name: os.path.normpath(os.path.join(found.path, name)) for name in found.skipped}
    known = set(images)
    listed = {name for name, path in paths.items() if path in known}
    return replace(
        found,
        images=(*found.images, *(paths[name] for name in sorted(listed))),
        skipped=tuple(name for name in found.skipped if name not in listed),
    )


def _first_shape(images: Sequence[str]) -> tuple[int, ...]:
    """Return the shape of the first image that can be decoded."""
    worker = Worker(DECODER)
    try:
        for path in images:
            try:
                (result,) = worker.ask("decode", [read_bytes(path)])
            except FileError:
                continue
            if not isinstance(result, str):
                return tuple(result.shape)
    finally:
        worker.close()
    raise GraphError("images-all-damaged", source=os.path.dirname(images[0]))
