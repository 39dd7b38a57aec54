"""Node names do not influence the results of a graph."""

from deploykit.transforms.ir.functions import rename
from deploykit.transforms.ir.graph import Graph

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def obfuscate_names(graph: Graph) -> None:
    """Replace names by numbers; inputs and outputs of the graph keep their names.

    Functions of the graph's library, and the nodes in them, keep their names too. Run
    inline_functions and remove_unused_functions first to remove these names.
    """
    retained = {
        node.name for node in graph if graph.is_input(node.name) or graph.is_output(node.name)
    }
    names: dict[str, str] = {}
    number = 0
    for node in graph:
        if node.name in retained:
            continue
        while (name := _numeral(number)) in retained:
            number += 1
        names[node.name] = name
        number += 1
    rename(graph, names)


def _numeral(number: int) -> str:
    """Return a number in base 62."""
    numeral = ""
    while number or not numeral:
        number, digit = divmod(number, len(_DIGITS))
        numeral = _DIGITS[digit] + numeral
    return numeral
