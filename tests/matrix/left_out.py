"""What is left out of the matrix because Keras itself cannot build, write or read it.

`make test-all` sees each of them fail in Keras, and `make test-slow` a few of them.
"""

from dataclasses import dataclass

from deploykit.transforms.runtime.tensorflow_start import start_tensorflow

FORMS = ("sequential", "sequential_called", "sequential_built", "functional", "nested",
         "nested_first", "subclassed")  # fmt: skip
WRITERS = (".keras", ".h5", "export", "saved_model")
_WITHOUT_INPUT = ("sequential_called", "sequential_built", "nested", "nested_first")


@dataclass(frozen=True)
class _LeftOut:
    library: str
    kinds: tuple[str, ...]
    why: str
    forms: tuple[str, ...] = FORMS
    writers: tuple[str, ...] = WRITERS


_SEQUENTIAL = ("sequential", "sequential_called", "sequential_built", "nested", "nested_first")

_ALL = (
    *(
        _LeftOut(library, ("attention",), "a Sequential gives a layer one tensor", _SEQUENTIAL)
        for library in ("keras_2", "keras_3")
    ),
    _LeftOut(
        "keras_3", ("lstm", "gru"), "tf.saved_model.save does not find the seeds of dropout",
        writers=("saved_model",),
    ),
    _LeftOut(
        "keras_3", ("augmentation",), "tf.saved_model.save does not find the seeds of its layers",
        forms=FORMS[:-1], writers=("saved_model",),
    ),
    _LeftOut(
        "keras_3", ("masking", "masked_embedding"), "an .h5 file has no class for masks",
        forms=("functional",), writers=(".h5",),
    ),
    _LeftOut(
        "keras_3", ("string_lookup_learned", "text_vectorization_learned"),
        "an .h5 file holds no tables that were learned", writers=(".h5",),
    ),
    _LeftOut(
        "keras_3",
        ("string_lookup", "string_lookup_learned", "text_vectorization",
         "text_vectorization_learned", "hashing"),
        "the signature of a subclassed model takes floats", ("subclassed",),
    ),
    _LeftOut(
        "keras_3", ("normalization",), "read from an .h5 file, it has forgotten what it learned",
        ("nested", "nested_first"), (".h5",),
    ),
    _LeftOut(
        "keras_3", ("hashing", "string_lookup_inverse"),
        "a Sequential without Input casts what it is given to floats, or back", _WITHOUT_INPUT,
    ),
    _LeftOut(
        "keras_2", ("spectral_norm",), "its layer is written against other classes of Keras",
        ("sequential", "sequential_called", "sequential_built", "functional", "subclassed"),
    ),
    _LeftOut(
        "keras_2", ("spectral_norm",), "its layer is in no list of classes",
        ("nested", "nested_first"), (".keras", ".h5", "saved_model"),
    ),
    _LeftOut(
        "keras_2", ("normalization",), "without Input it does not know its shape when it is read",
        _WITHOUT_INPUT, (".keras", ".h5"),
    ),
    _LeftOut(
        "keras_2", ("hashing", "string_lookup", "text_vectorization"),
        "build gives floats to layers of texts", ("sequential_built",),
    ),
    _LeftOut(
        "keras_2", ("string_lookup_learned",), "a Sequential without Input casts texts to floats",
        _WITHOUT_INPUT,
    ),
    _LeftOut(
        "keras_2", ("string_lookup_learned",), "an .h5 file holds no tables that were learned",
        ("sequential", "functional"), (".h5",),
    ),
    _LeftOut(
        "keras_2", ("text_vectorization_learned",), "given a column of texts, it asks for a row",
        ("sequential_called", "sequential_built"),
    ),
    _LeftOut(
        "keras_2", ("text_vectorization_learned",), "an .h5 file holds no tables that were learned",
        writers=(".h5",),
    ),
)  # fmt: skip


_WITHOUT_ONEDNN = (
    _LeftOut("keras_2", ("first_conv3d",), "without oneDNN, no kernel has channels first"),
)


def left_out(library: str, name: str, form: str, writer: str) -> str:
    """Return why a model of the matrix cannot be had, or an empty string."""
    has_onednn = start_tensorflow().features.IsMklEnabled()
    for each in _ALL if has_onednn else (*_ALL, *_WITHOUT_ONEDNN):
        is_meant = each.library == library and name in each.kinds
        if is_meant and form in each.forms and writer in each.writers:
            return each.why
    return ""


def drawn_at_random(name: str, form: str, writer: str) -> bool:
    """Say whether a file answers otherwise at each call: model.export leaves augmentation on."""
    return name == "augmentation" and writer == "export" and form != "subclassed"
