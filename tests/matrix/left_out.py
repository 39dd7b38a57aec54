"""What is left out of the matrix because Keras itself cannot build, write or read it."""

RANDOM_AT_EXPORT = frozenset({"augmentation"})


def left_out(library: str, name: str, form: str, writer: str) -> str:
    """Return why a model of the matrix cannot be had, or an empty string."""
    return ""


def drawn_at_random(library: str, name: str, writer: str) -> bool:
    """Say whether a file answers otherwise at each call, so that it must be refused."""
    return library == "keras_3" and name in RANDOM_AT_EXPORT and writer == "export"
