"""The options that state how data files are read, for the option classes of several commands."""

from collections.abc import Mapping
from typing import Any

from deploykit.storage.csv_files import HeaderRule
from deploykit.transforms.common.errors import GraphError
from deploykit.verification.samples import PreprocessLike

READ_BY = ("preprocess", "header", "columns")
"""The names of these options."""


class ReadsData:
    """The part of an option class that states how data files are read.

    A class declares the fields itself, with their places among its own and their flags.
    """

    preprocess: PreprocessLike | None
    header: HeaderRule
    columns: Mapping[str, str]

    @property
    def read_by(self) -> PreprocessLike | None:
        """The preprocessing of the data, with the header and the columns of tables."""
        from deploykit.data.preprocessing import with_header  # a slow import

        result: PreprocessLike | None = with_header(self.preprocess, self.header, self.columns)
        return result


def reading_options(how: ReadsData) -> dict[str, Any]:
    """Return these options by name, to pass them to another command."""
    return {name: getattr(how, name) for name in READ_BY}


def check_columns(columns: Mapping[str, str] | None, data: object, needed: str = "--data") -> None:
    """Raise GraphError if columns are named without the data of the option `needed`."""
    if columns and data is None:
        raise GraphError("option-needs", option="--columns", needed=needed)
