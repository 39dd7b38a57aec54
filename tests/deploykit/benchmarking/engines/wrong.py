"""Engines that are wrong, each in its own way."""

import numpy as np

from deploykit.transforms.runtime.session import Session


class Wrong(Session):
    """TensorFlow's answers, but for what is done to those of `out`."""

    def __init__(self, graph_def, compiling):
        super().__init__(graph_def)

    spoiled = ("out",)

    def run(self, fetches, feeds=None):
        self.fed = feeds
        found = super().run(fetches, feeds)
        return [
            self.spoil(array) if name.removesuffix(":0") in self.spoiled else array
            for name, array in zip(fetches, found, strict=True)
        ]


class OfAnotherType(Wrong):
    spoil = staticmethod(lambda array: array.astype(np.float64))


class OfAnotherShape(Wrong):
    spoil = staticmethod(lambda array: array[:-1])


class OfAnotherValue(Wrong):
    spoil = staticmethod(lambda array: array * np.float32(1.01))


class WithoutASample(Wrong):
    spoil = staticmethod(lambda array: array * (np.arange(len(array)) < 2)[:, None])


class Dying(Wrong):
    def spoil(self, array):
        import os

        os.abort()


class ChoosingOtherwise(Wrong):
    """As after a rounding in front of the choice."""

    spoiled = ("indices",)

    def spoil(self, array):
        return array if len(self.fed) > 1 else array[:, ::-1]


class ChoosingWrongly(Wrong):
    spoiled = ("indices",)
    spoil = staticmethod(lambda array: array[:, ::-1])
