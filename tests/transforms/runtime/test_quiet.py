"""What TensorFlow's Python code says on its way."""

import logging

import pytest

from deploykit.transforms.runtime.tensorflow_start import quiet


@pytest.mark.parametrize(
    ("level", "said"), [(logging.WARNING, ["warning", "error"]), (logging.ERROR, ["error"])]
)
def test_what_is_below_the_level_is_not_said(level, said):
    logger, records = logging.getLogger("tensorflow"), []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    before = logger.level
    logger.addHandler(handler)
    try:
        with quiet(level):
            logger.setLevel(logging.INFO)  # as TensorFlow does when it first says something
            logger.info("note")
            logger.warning("warning")
            logger.error("error")
        assert records == said
        logger.info("later")
        assert records == [*said, "later"]
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
