"""Simple mistakes that a module could contain: its mutants, each one changed expression."""

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.GtE, ast.LtE),
    ast.NotEq: (ast.Gt, ast.Lt),
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGGERS = ("logger", "logging", "warnings")
_UNCHANGED_FIELDS = ("annotation", "returns", "decorator_list")
_ATOMS = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.stmt)


@dataclass(frozen=True)
class Mutant:
    """One changed expression or statement of a module."""

    kind: str
    line: int
    """Line number, from 1."""
    before: str
    after: str
    start: int
    """First byte of the changed source; `end` is the byte behind it."""
    end: int

    def planted(self, source: bytes) -> bytes:
        """Return the source of the module with this mistake."""
        return source[: self.start] + self.after.encode() + source[self.end :]


@dataclass(frozen=True)
class _Change:
    kind: str
    old: ast.expr | ast.stmt
    new: ast.AST


def mutants(source: bytes) -> list[Mutant]:
    """Return all mutants of a module, by position."""
    tree = ast.parse(source)
    # Python counts columns in bytes of UTF-8.
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    results = [_mutant(change, starts) for node in _code(tree) for change in _changes(node)]
    return sorted(results, key=lambda mutant: (mutant.start, mutant.end, mutant.kind))


def chosen(all_mutants: list[Mutant], seed: str, count: int) -> list[Mutant]:
    """Return mutants of as many kinds as possible, by position.

    Each mutant has a random number of its own. So an edit elsewhere in the module changes few of
    the chosen ones, and scores before and after it can be compared.
    """
    equal: Counter[tuple[str, str, str]] = Counter()
    numbers: dict[Mutant, str] = {}
    for mutant in all_mutants:
        name = (mutant.kind, mutant.before, mutant.after)
        text = "\n".join((seed, *name, str(equal[name])))
        numbers[mutant] = hashlib.sha256(text.encode()).hexdigest()
        equal[name] += 1
    ranks: Counter[str] = Counter()
    order = []
    for mutant in sorted(numbers, key=numbers.__getitem__):
        order.append((ranks[mutant.kind], numbers[mutant], mutant))
        ranks[mutant.kind] += 1
    first = [mutant for _, _, mutant in sorted(order, key=lambda item: item[:2])[:count]]
    return sorted(first, key=lambda mutant: (mutant.start, mutant.end, mutant.kind))


def _mutant(change: _Change, starts: list[int]) -> Mutant:
    old = change.old
    start = starts[old.lineno - 1] + old.col_offset
    end = starts[int(old.end_lineno or 0) - 1] + int(old.end_col_offset or 0)
    after = ast.unparse(change.new)
    if not isinstance(change.new, _ATOMS):
        after = f"({after})"  # it may be an operand
    return Mutant(change.kind, old.lineno, ast.unparse(old), after, start, end)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may be changed: no annotations, decorators, log texts or errors."""
    if _is_unchanged(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in _UNCHANGED_FIELDS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _code(child)


def _is_unchanged(node: ast.AST) -> bool:
    match node:
        # Python 3.11 does not know the positions of expressions in an f-string.
        case ast.JoinedStr() | ast.Raise() | ast.Assert():
            return True
        case ast.AnnAssign(annotation=ast.Name("TypeAlias")):
            return True
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(name))) if name in _LOGGERS:
            return True
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)):
            return name.endswith("Error")
    return False


def _changes(node: ast.AST) -> Iterator[_Change]:
    yield from _conditions(node)
    match node:
        case ast.Compare(ops=[first, *others]):
            for other in _COMPARISONS[type(first)]:
                yield _Change("comparison", node, _with(node, ops=[other(), *others]))
        case ast.BoolOp(op=op, values=values):
            swapped = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield _Change("and/or", node, _with(node, op=swapped))
            for index in range(len(values)):
                rest = values[:index] + values[index + 1 :]
                new = rest[0] if len(rest) == 1 else _with(node, values=rest)
                yield _Change("operand", node, new)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _Change("not", node, operand)
        case ast.Constant(value=value) if type(value) in (int, float):
            for step in (1, -1):
                yield _Change("constant", node, ast.Constant(value + step))
        case ast.Call(func=ast.Name(name) as function, keywords=keywords):
            if name in _FUNCTIONS:
                yield _Change("function", function, ast.Name(_FUNCTIONS[name]))
            yield from _dropped(node, keywords)
        case ast.Call(keywords=keywords):
            yield from _dropped(node, keywords)
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            if not _joins_text(node):
                yield _Change("arithmetic", node, _with(node, op=_ARITHMETIC[type(op)]()))


def _conditions(node: ast.AST) -> Iterator[_Change]:
    """Yield conditions that are always true or always false."""
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    for test in tests:
        # A loop without an end is killed by time, which says nothing about the tests.
        for value in (False,) if isinstance(node, ast.While) else (True, False):
            if not isinstance(test, ast.Constant):
                yield _Change("condition", test, ast.Constant(value))


def _dropped(call: ast.Call, keywords: list[ast.keyword]) -> Iterator[_Change]:
    for keyword in keywords:
        # Of zip() and map() it is an assertion: nothing differs where the code is right.
        is_assertion = keyword.arg == "strict" and ast.unparse(call.func) in ("zip", "map")
        if keyword.arg is not None and not is_assertion:
            rest = [other for other in keywords if other is not keyword]
            yield _Change("keyword", call, _with(call, keywords=rest))


def _joins_text(node: ast.BinOp | ast.AugAssign) -> bool:
    sides = [node.value] if isinstance(node, ast.AugAssign) else [node.left, node.right]
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in sides
    )


def _with(node: ast.AST, **changed: object) -> ast.AST:
    result = copy.copy(node)
    for name, value in changed.items():
        setattr(result, name, value)
    return result
