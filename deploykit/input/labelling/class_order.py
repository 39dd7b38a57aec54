"""Which number a class has that data call by a name.

A model knows classes by the places of their scores. Data name them: photos lie in folders of
classes, say. In which place a name stands follows from the names of the model's classes, or from
numbers that serve as names; that the sorted names are the model's classes in their order can be so
only where there are as many.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deploykit.transforms.core.errors import GraphError, nearest

SORTED = "in the sorted order of their names (--labels FILE gives another)"
AS_NUMBERED = "as the data number them (--labels FILE gives another order)"


@dataclass(frozen=True)
class ClassOrder:
    """The number of each class that data name, and how it was found, in words."""

    numbers: tuple[int, ...]
    why: str


def in_order_of(names: Sequence[str], labels: Sequence[str], told_by: str) -> ClassOrder:
    """Return the place of each name among the labels of a model.

    Where none of the names is a label and all are numbers of labels, they are taken as these.

    Args:
        names: of the classes that the data hold, each once.
        labels: the names of the model's classes, in the order of their scores.
        told_by: what says so, for messages: a file, or the model.

    GraphError: a name is no label, or that of several.
    """
    if not set(names) & set(labels) and all(each.isdecimal() for each in names):
        numbers = tuple(map(int, names))
        beyond = [each for each in numbers if each >= len(labels)]
        if not beyond:
            return ClassOrder(numbers, "whose names are their numbers")
        raise GraphError("class-beyond", name=beyond[0], count=len(labels), told_by=told_by)
    places = {label: number for number, label in enumerate(labels)}
    for name in names:
        if name not in places:
            raise GraphError(
                "class-unknown",
                name=name,
                count=len(labels),
                told_by=told_by,
                hint=nearest(name, list(places)),
            )
        if (count := list(labels).count(name)) > 1:
            raise GraphError("class-names-same", count=count, told_by=told_by, name=name)
    return ClassOrder(tuple(places[name] for name in names), f"taken by their names in {told_by}")


def in_own_order(called: Mapping[int, str], classes: int | None) -> ClassOrder:
    """Return numbers of classes where nobody says what the model's are called.

    Names that are whole numbers are the numbers; others keep the places that data gave them, which
    are those of the sorted names of folders, where there are as many as classes.

    Args:
        called: the names of the classes that the data hold, by the numbers that these give them.
        classes: how many the model has; None: that is not known.

    GraphError: there are more names or fewer than classes.
    """
    names = [*called.values()]
    if all(each.isdecimal() for each in names):
        return ClassOrder(tuple(map(int, names)), "whose names are their numbers")
    if classes not in (None, len(names)):
        raise GraphError("class-order-unknown", count=len(names), scores_count=classes)
    is_sorted = [called[number] for number in sorted(called)] == sorted(names)
    return ClassOrder(tuple(called), f"taken {SORTED if is_sorted else AS_NUMBERED}")
