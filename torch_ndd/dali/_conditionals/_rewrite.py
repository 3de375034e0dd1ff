# SPDX-License-Identifier: Apache-2.0
"""Rewriting the syntax tree of a function, such that DataNodes may be its conditions.

Statements stay where they are, in one function and on their lines. An `if` becomes (RT is `_runtime.py`)

    one = RT.test(condition)
    if one.first:
        if one.node: one.begin(variables, names)     # a DataNode
        with one.branch(True):
            ...
            if one.node: one.fell(variables)
        if one.node: x = one["x"]                    # what it was before
    if one.second: ...                               # the same for `else`
    if one.node and one.join(): x = one["x"]         # merged

`a and b` becomes `RT.and_(a, lambda: b)`, a call `f(x)` becomes `RT.convert(f)(x)`, `a.b = x` becomes `RT.attribute(a, "b").b = x`.
"""

import ast
import copy
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from ._source import Definition, first_line

RUNTIME = "_torch_ndd_"
_OWN = "_torch_ndd_{}_{}"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

N = TypeVar("N", bound=ast.AST)


def rewritten(definition: Definition, class_name: str | None, free: Sequence[str]) -> ast.Module:
    """Return a module with the rewritten function in a function whose parameters are its free variables, in its class if there is one."""
    made = copy.deepcopy(definition)
    rewriter = _Rewriter(made, class_name, free)
    body: list[ast.stmt]
    if isinstance(made, ast.FunctionDef):
        body = [rewriter.function(made)]
    else:
        _without_defaults(made.args)
        made.body = rewriter.visit(made.body)
        body = [ast.Return(made)]
    factory = _parsed(f"def {RUNTIME}factory({', '.join([*free, RUNTIME])}): pass", made)[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.body = body
    module = ast.Module([factory], [])
    if class_name is not None:
        holder = _parsed(f"class {class_name}: pass", made)[0]
        assert isinstance(holder, ast.ClassDef)
        holder.body = [factory]
        module.body = [holder]
    return module


def depth(class_name: str | None) -> int:
    """Return how many code objects there are around that of the function."""
    return 2 if class_name is None else 3


def _without_defaults(arguments: ast.arguments) -> None:
    arguments.defaults, arguments.kw_defaults = [], [None] * len(arguments.kwonlyargs)
    for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if one is not None:
            one.annotation = None


# --- Reading trees ---------------------------------------------------------------------------------------------------------------------------------


def _inside(nodes: Iterable[ast.AST], stop: tuple[type, ...] = _SCOPES) -> Iterable[ast.AST]:
    """Return nodes and what is in them, without what is in other functions and classes."""
    for node in nodes:
        yield node
        if not isinstance(node, stop):
            yield from _inside(ast.iter_child_nodes(node), stop)


def _assigned(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that statements bind or delete."""
    found: set[str] = set()
    for node in _inside(nodes, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.comprehension)):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        elif isinstance(node, ast.comprehension):  # its variables are its own, but not those of :=
            found |= {one.target.id for one in _inside([node.iter, *node.ifs]) if isinstance(one, ast.NamedExpr)}
    return found - {"*"}


def _is_plain(test: ast.expr) -> bool:
    """Return whether a condition is certainly a Python value."""
    if isinstance(test, ast.Compare):
        return all(isinstance(one, ast.Is | ast.IsNot | ast.In | ast.NotIn) for one in test.ops)
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not) and _is_plain(test.operand)
    if isinstance(test, ast.BoolOp):
        return all(map(_is_plain, test.values))
    if isinstance(test, ast.Call):
        return isinstance(test.func, ast.Name) and test.func.id in ("isinstance", "issubclass", "hasattr", "callable")
    return isinstance(test, ast.Constant)


def _binds_here(nodes: Iterable[ast.expr]) -> bool:
    """Return whether expressions cannot move to a function of their own."""
    return any(isinstance(one, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await) for one in _inside(nodes))


def _has_in_if(nodes: Iterable[ast.AST], kinds: tuple[type, ...], stop: tuple[type, ...], within: bool = False) -> bool:
    """Return whether there are statements of these kinds in an `if` that may depend on a DataNode."""
    for node in nodes:
        if within and isinstance(node, kinds):
            return True
        if isinstance(node, stop):
            continue
        inside = within or (isinstance(node, ast.If) and not _is_plain(node.test))
        if _has_in_if(ast.iter_child_nodes(node), kinds, stop, inside):
            return True
    return False


# --- Making trees ----------------------------------------------------------------------------------------------------------------------------------


def _parsed(text: str, at: ast.AST) -> list[ast.stmt]:
    """Return statements at the place of a node."""
    made = ast.parse(text).body
    for statement in made:
        for node in ast.walk(statement):
            if hasattr(node, "lineno"):
                ast.copy_location(node, at)
                node.end_lineno, node.end_col_offset = node.lineno, node.col_offset  # type: ignore[attr-defined]
    return made


class _Filler(ast.NodeTransformer):
    def __init__(self, blocks: dict[str, list[ast.stmt]], expressions: dict[str, ast.expr]) -> None:
        self._blocks = blocks
        self._expressions = expressions

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in self._blocks:
            return self._blocks[node.value.id]
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._expressions.get(node.id, node)


def _filled(text: str, at: ast.AST, blocks: dict[str, list[ast.stmt]] | None = None, **expressions: ast.expr) -> list[ast.stmt]:
    """Return statements at the place of a node, in which names stand for blocks of statements and for expressions."""
    filler = _Filler(blocks or {}, expressions)
    return [filler.visit(statement) for statement in _parsed(text, at)]


class _Rewriter(ast.NodeTransformer):
    """Rewrites the statements and expressions of one function, but not functions and classes in it."""

    def __init__(self, definition: Definition, class_name: str | None, free: Sequence[str]) -> None:
        self._class_name = class_name
        self._count = 0
        self._loops: list[str | None] = []
        self._frame: str | None = None
        body = definition.body if isinstance(definition.body, list) else [definition.body]
        self._shared: set[str] = set()  # variables that functions in this one assign
        self._global: set[str] = set()
        for node in ast.walk(definition):
            if isinstance(node, ast.Nonlocal):
                self._shared.update(node.names)
        for node in _inside(body):
            if isinstance(node, ast.Global):
                self._global.update(node.names)
        self._may_fail = set(free)  # variables whose values may not have been mergeable
        for node in _inside(body):
            if isinstance(node, ast.If | ast.For | ast.While):
                self._may_fail |= _assigned([node]) | self._shared

    def function(self, made: ast.FunctionDef) -> ast.FunctionDef:
        """Return the rewritten function, without what is evaluated at its definition."""
        loops = any(isinstance(node, ast.For | ast.While) and self._jumps(node) for node in _inside(made.body))
        returns = any(isinstance(node, ast.Return) for node in _inside(made.body))
        if _has_in_if(made.body, (ast.Return,), _SCOPES) or (loops and returns):
            self._frame = self._name("frame")
        made.name = _OWN.format("function", 0)  # in the factory, its own name is the variable that the function sees
        made.lineno = first_line(made)
        made.decorator_list, made.returns = [], None
        if hasattr(made, "type_params"):
            made.type_params = []  # type: ignore[attr-defined]
        _without_defaults(made.args)
        documented = made.body[:1] if ast.get_docstring(made, clean=False) is not None else []
        body = self._block(made.body[len(documented) :])
        if self._frame is not None:
            text = f"{self._frame} = {RUNTIME}.Frame()\nwith {self._frame}:\n    BODY\n    {self._frame}.fell()\nreturn {self._frame}.result()"
            body = _filled(text, made.body[-1], {"BODY": body})
        made.body = [*documented, *body] or [ast.copy_location(ast.Pass(), made)]
        return made

    def _name(self, what: str) -> str:
        self._count += 1
        return _OWN.format(what, self._count)

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in statements:
            one = self.visit(statement)
            made.extend(one if isinstance(one, list) else [one])
        return made

    def _mangled(self, name: str) -> str:
        if self._class_name is None or not name.startswith("__") or name.endswith("__"):
            return name
        return f"_{self._class_name.lstrip('_')}{name}"

    def _variables(self, names: Iterable[str]) -> str:
        return f"{{**{RUNTIME}.globals(), **{RUNTIME}.locals()}}" if self._global.intersection(names) else f"{RUNTIME}.locals()"

    def _restored(self, source: str, names: Iterable[str], indent: str) -> str:
        lines = [f"{name} = {source}[{self._mangled(name)!r}]\nif {name} is {RUNTIME}.undefined: del {name}" for name in names]
        return "\n".join(lines or ["pass"]).replace("\n", "\n" + indent)

    # --- Statements

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        node.guard = node.guard and self.visit(node.guard)
        node.body = self._block(node.body)
        return node

    def visit_If(self, node: ast.If) -> Any:
        if _is_plain(node.test):
            node.test = self.visit(node.test)
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
            return node
        return self._if(node, False)[1]

    def _if(self, node: ast.If, inner: bool) -> tuple[str, list[ast.stmt]]:
        """Return the name of the condition, and statements. ``inner``: it is the `elif` of another one."""
        names = sorted(_assigned([*node.body, *node.orelse]) | self._shared)
        variables, one = self._variables(names), self._name("if")
        chain = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        kept = tuple(map(self._mangled, names))
        test = self.visit(node.test)
        text = f"""
{one} = {RUNTIME}.{"elif_" if chain or inner else "test"}(TEST)
if {one}.first:
    if {one}.node: {one}.begin({variables}, {kept})
    with {one}.branch(True):
        BODY
        if {one}.node: {one}.fell({variables})
    if {one}.node:
        {self._restored(one, names, "        ")}
"""
        blocks = {"BODY": self._block(node.body)}
        if chain:
            following, blocks["ORELSE"] = self._if(node.orelse[0], True)  # type: ignore[arg-type]
            text += f"if {one}.second:\n    {one}.enter_else()\n    ORELSE\n    {one}.leave_else({following}, {variables})\n"
        elif node.orelse:
            blocks["ORELSE"] = self._block(node.orelse)
            text += f"if {one}.second:\n    with {one}.branch(False):\n        ORELSE\n        if {one}.node: {one}.fell({variables})\n"
        else:
            text += f"if {one}.node:\n    with {one}.branch(False): {one}.fell({variables})\n"
        text += f"if {one}.node and {one}.join():\n    {self._restored(one, names, '    ')}\n"
        if not inner:
            text += f"if {one}.dead: raise {RUNTIME}.Exit\n"
        return one, _filled(text, node.test, blocks, TEST=test)

    def visit_For(self, node: ast.For) -> Any:
        node.iter, node.target = self.visit(node.iter), self.visit(node.target)
        return self._loop(node)

    def visit_While(self, node: ast.While) -> Any:
        node.test = self.visit(node.test)
        return self._loop(node)

    def _jumps(self, node: ast.For | ast.While) -> bool:
        return _has_in_if(node.body, (ast.Break, ast.Continue), (*_SCOPES, ast.For, ast.AsyncFor, ast.While))

    def _loop(self, node: ast.For | ast.While) -> Any:
        if not self._jumps(node):
            self._loops.append(None)
            node.body = self._block(node.body)
            self._loops.pop()
            node.orelse = self._block(node.orelse)
            return node
        names = sorted(_assigned([node]) | self._shared)
        variables, one = self._variables(names), self._name("loop")
        self._loops.append(one)
        body = self._block(node.body)
        self._loops.pop()
        text = f"""
with {one}.iteration():
    BODY
    {one}.fell({variables})
if {one}.jumped:
    if not {one}.join(): break
    {self._restored(one, names, "    ")}
"""
        looped = ast.parse("while True:\n" + text.replace("\n", "\n    ")).body[0]
        assert isinstance(looped, ast.While)
        filler = _Filler({"BODY": body}, {})
        place = node.iter if isinstance(node, ast.For) else node.test
        for inner in looped.body:
            for part in ast.walk(inner):
                if hasattr(part, "lineno"):
                    ast.copy_location(part, place)
        node.body = [filler.visit(inner) for inner in looped.body]
        node.orelse = self._block(node.orelse)
        before = f"{one} = {RUNTIME}.Loop({tuple(map(self._mangled, names))})"
        after = f"if {one}.close({variables}):\n    {self._restored(one, names, '    ')}\nif {one}.dead: raise {RUNTIME}.Exit"
        return [*_parsed(before, place), node, *_parsed(after, place)]

    def _jump(self, node: ast.Break | ast.Continue) -> Any:
        one = self._loops[-1] if self._loops else None
        if one is None:
            return node
        return [*_parsed(f"{one}.leave({isinstance(node, ast.Break)}, {self._variables([])})", node), node]

    def visit_Break(self, node: ast.Break) -> Any:
        return self._jump(node)

    def visit_Continue(self, node: ast.Continue) -> Any:
        return self._jump(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        node.value = node.value and self.visit(node.value)
        if self._frame is not None:
            value = node.value or ast.copy_location(ast.Constant(None), node)
            (made,) = _filled(f"return {self._frame}.leave(VALUE)", node, VALUE=value)
            return made
        return node

    def visit_Try(self, node: ast.Try) -> Any:
        node.body, node.orelse, node.finalbody = self._block(node.body), self._block(node.orelse), self._block(node.finalbody)
        if not node.handlers:
            return node
        place = self._name("try")
        for handler in node.handlers:
            handler.type = handler.type and self.visit(handler.type)
            handler.body = [*_parsed(f"{RUNTIME}.back({place})", handler), *self._block(handler.body)]
        passed_on = _parsed(f"try: pass\nexcept {RUNTIME}.Exit: raise", node)[0]
        node.handlers = [*passed_on.handlers, *node.handlers]  # type: ignore[attr-defined]
        return [*_parsed(f"{place} = {RUNTIME}.here()", node), node]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        node.value, target = self.visit(node.value), node.target
        if isinstance(target, ast.Name):
            return [*_parsed(f"{target.id} = {RUNTIME}.fresh({target.id})", node), node]
        if isinstance(target, ast.Attribute):
            target.value = self._call("attribute_updated", self.visit(target.value), ast.Constant(self._mangled(target.attr)))
        else:
            target.value, target.slice = self._call("items", self.visit(target.value)), self.visit(target.slice)
        return node

    # --- Expressions

    def _call(self, name: str, *arguments: ast.expr) -> ast.Call:
        place = arguments[0]
        for one in arguments[1:]:
            if not hasattr(one, "lineno"):
                ast.copy_location(one, place)
        function = ast.Attribute(ast.copy_location(ast.Name(RUNTIME, ast.Load()), place), name, ast.Load())
        return ast.copy_location(ast.Call(ast.copy_location(function, place), list(arguments), []), place)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._call("ld", node) if isinstance(node.ctx, ast.Load) and node.id in self._may_fail else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.value = self.visit(node.value)
        if not isinstance(node.ctx, ast.Load):
            node.value = self._call("attribute", node.value, ast.Constant(self._mangled(node.attr)))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value, node.slice = self.visit(node.value), self.visit(node.slice)
        if not isinstance(node.ctx, ast.Load):
            node.value = self._call("items", node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        plain = isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "globals")
        self.generic_visit(node)
        if not plain:
            node.func = self._call("convert", node.func)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        movable = not _is_plain(node) and not _binds_here(node.values[1:])
        self.generic_visit(node)
        if not movable:
            return node
        made = node.values[-1]
        for left in node.values[-2::-1]:
            made = self._call("and_" if isinstance(node.op, ast.And) else "or_", left, self._later(made))
        return ast.copy_location(made, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        plain = _is_plain(node)
        self.generic_visit(node)
        return ast.copy_location(self._call("not_", node.operand), node) if isinstance(node.op, ast.Not) and not plain else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        movable = len(node.ops) > 1 and not _binds_here([node.left, *node.comparators])
        self.generic_visit(node)
        if not movable:
            return node
        # a < b < c, computing b once: (lambda p, q: and_(p < q, lambda: (lambda r: q < r)(c)))(a, b)
        *before, last = [self._name("operand") for _ in (node.left, *node.comparators)]
        names = [*before, last]
        made: ast.expr | None = None
        for k in range(len(node.ops) - 1, -1, -1):
            pair = ast.copy_location(ast.Compare(self._operand(names[k], node), [node.ops[k]], [self._operand(names[k + 1], node)]), node)
            value = pair if made is None else self._call("and_", pair, self._later(made))
            if k:
                made = self._applied([names[k + 1]], value, [node.comparators[k]])
            else:
                made = self._applied(names[:2], value, [node.left, node.comparators[0]])
        assert made is not None
        return ast.copy_location(made, node)

    def _operand(self, name: str, at: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Name(name, ast.Load()), at)

    def _later(self, value: ast.expr) -> ast.Lambda:
        return self._lambda([], value)

    def _lambda(self, names: Sequence[str], value: ast.expr) -> ast.Lambda:
        arguments = ast.arguments([], [ast.copy_location(ast.arg(name), value) for name in names], None, [], [], None, [])
        return ast.copy_location(ast.Lambda(arguments, value), value)

    def _applied(self, names: Sequence[str], value: ast.expr, given: list[ast.expr]) -> ast.expr:
        return ast.copy_location(ast.Call(self._lambda(names, value), given, []), value)
