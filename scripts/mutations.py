"""The mutants of a file: copies of it in which one operator, comparison, number or decision is another."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "amin": "amax", "amax": "amin",
    "mean": "sum", "sum": "mean", "all": "any", "any": "all", "ones": "zeros", "zeros": "ones",
    "argmax": "argmin", "exp": "square", "log": "square",
    "zeros_like": "ones_like", "ones_like": "zeros_like",
}  # fmt: skip

WAYS = (
    (ast.BinOp, ast.AugAssign),
    (ast.Compare,),
    (ast.Attribute, ast.Name),
    (ast.UnaryOp,),
    (ast.Constant,),
)
"""What may be changed of arithmetic, that first which changes most of a line's sense."""

LOGIC = len(WAYS)
"""The strength of what is no arithmetic: ``and``, ``not``, ``is``, true and false."""

CLOCKS = ("perf_counter", "monotonic", "process_time")

NO_ARITHMETIC = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.arguments)
NOTHING_COMPUTED = ("strict", "stacklevel", "copy", "fused", "repr")
"""Arguments that change nothing of what is computed, only what is refused, told, shared or how fast it is."""


@dataclass(frozen=True)
class Mutant:
    """One file with one thing changed. Every line stays at its number."""

    file: str
    line: int
    before: str
    after: str
    statement: str
    """First line of the statement in which it stands."""
    lines: tuple[int, int]
    """First and last line of that statement, or of its head."""
    in_function: bool
    """Whether it stands in the body of a function, and not in what runs when the file is imported."""
    source: str
    around: tuple[int, int]
    """First and last line of the outermost function in which it stands, or else of the statement."""
    strength: int
    """How much of a line's sense it changes, 0 the most: see `WAYS` and `LOGIC`."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.before}` became `{self.after}`"

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is called wherever its line stands."""
        return self.file, self.statement, self.before, self.after

    def surroundings(self) -> str:
        """Return the outermost function, or else the statement, in which it stands, as it makes it."""
        first, last = self.around
        return "\n".join(self.source.splitlines()[first - 1 : last])

    def as_dict(self) -> dict[str, Any]:
        """Return its fields for a file."""
        return asdict(self)


def mutants_of(root: Path, file: str) -> Iterator[Mutant]:
    """Return the mutants of a file, in the order of its lines."""
    text = (root / file).read_text(encoding="utf-8")
    lines = text.splitlines()
    tree = ast.parse(text)
    functions = [
        (node.lineno, node.end_lineno or 0)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for node, statement, in_function in sorted(_nodes(tree, None, False), key=_place):
        own = statement.lineno, statement.end_lineno or 0
        around = min((each for each in functions if each[0] <= node.lineno <= each[1]), default=own)
        for changed in changes(node):
            source = _replaced(text, node, changed)
            compile(source, file, "exec")
            yield Mutant(
                file,
                node.lineno,
                ast.unparse(node),
                ast.unparse(changed),
                lines[statement.lineno - 1].strip(),
                (statement.lineno, _last_line_of_head(statement)),
                in_function,
                source,
                around,
                LOGIC
                if _is_logic(node)
                else next(i for i, kinds in enumerate(WAYS) if isinstance(node, kinds)),
            )


def one_a_line(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Return of each line's arithmetic the first of the mutants that change most of the line's sense."""
    chosen: dict[tuple[str, int], Mutant] = {}
    for mutant in mutants:
        if mutant.strength == LOGIC:
            continue
        other = chosen.setdefault((mutant.file, mutant.line), mutant)
        if mutant.strength < other.strength:
            chosen[mutant.file, mutant.line] = mutant
    return list(chosen.values())


Found = tuple[ast.expr | ast.stmt, ast.stmt, bool]


def _place(found: Found) -> tuple[int, int]:
    return found[0].lineno, found[0].col_offset


def _nodes(node: ast.AST, statement: ast.stmt | None, in_function: bool) -> Iterator[Found]:
    """Return all nodes with arithmetic, the statement of each, and whether it is in a function's body."""
    if isinstance(node, ast.stmt):
        statement = node
    if isinstance(node, ast.expr | ast.stmt) and statement is not None:
        yield node, statement, in_function
    any_negative = _lengths_to_be_found(node)
    for field, value in ast.iter_fields(node):
        is_body = field == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in value if isinstance(value, list) else [value]:
            if statement is not None and child in any_negative:
                yield child, statement, in_function  # but nothing within
            elif isinstance(child, ast.AST) and not _is_skipped(child, field):
                yield from _nodes(child, statement, in_function or is_body)


def _lengths_to_be_found(node: ast.AST) -> list[ast.expr]:
    """Return the arguments -1 of a call of ``reshape``: NumPy takes every negative number alike."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reshape":
        return [argument for argument in node.args if ast.unparse(argument) == "-1"]
    return []


def _is_skipped(node: ast.AST, field: str) -> bool:
    """Return whether nothing within a node is arithmetic, as in annotations, messages and times."""
    if isinstance(node, NO_ARITHMETIC) or field in ("annotation", "returns", "decorator_list"):
        return True
    if isinstance(node, ast.AugAssign | ast.Assign) and any(clock in ast.unparse(node) for clock in CLOCKS):
        return True
    if isinstance(node, ast.keyword):
        return node.arg in NOTHING_COMPUTED
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hyperparameter"


def _last_line_of_head(statement: ast.stmt) -> int:
    body = getattr(statement, "body", None)
    if not body:
        return statement.end_lineno or statement.lineno
    return max(statement.lineno, body[0].lineno - 1)


def _replaced(text: str, node: ast.expr | ast.stmt, changed: ast.AST) -> str:
    """Return the text with a node replaced, and as many lines as before."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = text.encode().splitlines(keepends=True)
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    missing = "\n" * (node.end_lineno - node.lineno)
    new = ast.unparse(changed)
    new = f"({new}{missing})" if isinstance(node, ast.expr) else f"{new}{missing}"
    return (before + new.encode() + after).decode()


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Return what may stand in the place of a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield ast.Compare(node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        yield ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and _is_changed(node):
        yield (
            ast.UnaryOp(ast.UAdd(), node.operand)
            if isinstance(node.op, ast.USub)
            else ast.Call(ast.Name("bool" if isinstance(node.op, ast.Not) else "abs"), [node.operand], [])
        )
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield ast.Attribute(node.value, NAMES[node.attr], node.ctx)
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield ast.Name(NAMES[node.id], node.ctx)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(not node.value if isinstance(node.value, bool) else other_number(node.value))


def _is_logic(node: ast.AST) -> bool:
    """Return whether a node that may be changed decides, instead of computing."""
    if isinstance(node, ast.Compare):
        return isinstance(node.ops[0], ast.Is | ast.IsNot)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, ast.BoolOp) or (isinstance(node, ast.Constant) and isinstance(node.value, bool))


def _is_changed(node: ast.UnaryOp) -> bool:
    """Return whether something else may stand for a sign; a number, as -1 of an axis, becomes another one."""
    if isinstance(node.op, ast.USub):
        return not isinstance(node.operand, ast.Constant)
    return isinstance(node.op, ast.Not | ast.Invert)


def other_number(value: float) -> float:
    """Return a number that is not this one."""
    return value + 1 if isinstance(value, int) or value == 0 else 2 * value
