# SPDX-License-Identifier: Apache-2.0
"""Rewrites the syntax tree of a function so that its conditions may be DataNodes.

Statements stay in one function and on their lines. An `if` becomes (RT is `_runtime.py`)

    c = RT.test(condition)
    if c.first:
        if c.node: c.begin(variables, names)     # a DataNode
        with c.branch(True):
            ...
            if c.node: c.reach_end(variables)
        if c.node: x = c["x"]                    # as before the statement
    if c.second: ...                             # the same for `else`
    if c.node and c.join(): x = c["x"]           # merged

`a and b` becomes `RT.and_(a, lambda: b)`, a call `f(x)` becomes `RT.convert(f)(x)`, `a.b = x` becomes `RT.attribute_holder(a, "b").b = x`.
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


def rewrite(definition: Definition, class_name: str | None, free: Sequence[str]) -> ast.Module:
    """Return a module with the rewritten function in a function whose parameters are its free variables, in its class if there is one."""
    function = copy.deepcopy(definition)
    rewriter = _Rewriter(function, class_name, free)
    body: list[ast.stmt]
    if isinstance(function, ast.FunctionDef):
        body = [rewriter.function(function)]
    else:
        _remove_defaults(function.args)
        function.body = rewriter.visit(function.body)
        # A lambda is an expression, which the factory returns.
        body = [ast.Return(function)]
    factory = _parse_at(f"def {RUNTIME}factory({', '.join([*free, RUNTIME])}): pass", function)[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.body = body
    module = ast.Module([factory], [])
    if class_name is not None:
        holder = _parse_at(f"class {class_name}: pass", function)[0]
        assert isinstance(holder, ast.ClassDef)
        holder.body = [factory]
        module.body = [holder]
    return module


def depth(class_name: str | None) -> int:
    """Return how many code objects there are around that of the function."""
    return 2 if class_name is None else 3


def _remove_defaults(arguments: ast.arguments) -> None:
    arguments.defaults, arguments.kw_defaults = [], [None] * len(arguments.kwonlyargs)
    for parameter in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if parameter is not None:
            parameter.annotation = None


# --- Reading trees ---------------------------------------------------------------------------------------------------------------------------------


def _walk(nodes: Iterable[ast.AST], stop: tuple[type, ...] = _SCOPES) -> Iterable[ast.AST]:
    """Yield nodes and their descendants, except those in other functions and classes."""
    for node in nodes:
        yield node
        if not isinstance(node, stop):
            yield from _walk(ast.iter_child_nodes(node), stop)


def _find_assigned(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that statements bind or delete, which branches have to merge."""
    found: set[str] = set()
    for node in _walk(nodes, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.comprehension)):
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
        elif isinstance(node, ast.comprehension):  # its variables are local, except those of :=
            found |= {inner.target.id for inner in _walk([node.iter, *node.ifs]) if isinstance(inner, ast.NamedExpr)}
    return found - {"*"}


def _is_python_value(test: ast.expr) -> bool:
    """Return whether a condition is a Python value whatever its operands are."""
    if isinstance(test, ast.Compare):
        return all(isinstance(operator, ast.Is | ast.IsNot | ast.In | ast.NotIn) for operator in test.ops)
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not) and _is_python_value(test.operand)
    if isinstance(test, ast.BoolOp):
        return all(map(_is_python_value, test.values))
    if isinstance(test, ast.Call):
        return isinstance(test.func, ast.Name) and test.func.id in ("isinstance", "issubclass", "hasattr", "callable")
    return isinstance(test, ast.Constant)


def _cannot_move(nodes: Iterable[ast.expr]) -> bool:
    """Return whether expressions cannot move into a lambda: `:=`, `yield` and `await` belong to the function."""
    return any(isinstance(node, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await) for node in _walk(nodes))


def _contains_in_if(nodes: Iterable[ast.AST], kinds: tuple[type, ...], stop: tuple[type, ...], within: bool = False) -> bool:
    """Return whether there are statements of these kinds in an `if` that may depend on a DataNode."""
    for node in nodes:
        if within and isinstance(node, kinds):
            return True
        if isinstance(node, stop):
            continue
        inside = within or (isinstance(node, ast.If) and not _is_python_value(node.test))
        if _contains_in_if(ast.iter_child_nodes(node), kinds, stop, inside):
            return True
    return False


# --- Making trees ----------------------------------------------------------------------------------------------------------------------------------


def _parse_at(text: str, at: ast.AST) -> list[ast.stmt]:
    """Parse statements, and give them the place of a node in the file."""
    statements = ast.parse(text).body
    for statement in statements:
        for node in ast.walk(statement):
            if hasattr(node, "lineno"):
                ast.copy_location(node, at)
                node.end_lineno, node.end_col_offset = node.lineno, node.col_offset  # type: ignore[attr-defined]
    return statements


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


def _fill_template(text: str, at: ast.AST, blocks: dict[str, list[ast.stmt]] | None = None, **expressions: ast.expr) -> list[ast.stmt]:
    """Parse statements at the place of a node, and replace names by blocks of statements and by expressions."""
    filler = _Filler(blocks or {}, expressions)
    return [filler.visit(statement) for statement in _parse_at(text, at)]


class _Rewriter(ast.NodeTransformer):
    """Rewrites the statements and expressions of one function, but not functions and classes in it."""

    def __init__(self, definition: Definition, class_name: str | None, free: Sequence[str]) -> None:
        self._class_name = class_name
        self._count = 0
        self._loops: list[str | None] = []
        self._frame: str | None = None
        body = definition.body if isinstance(definition.body, list) else [definition.body]
        self._shared: set[str] = set()  # variables that nested functions assign
        self._global: set[str] = set()
        for node in ast.walk(definition):
            if isinstance(node, ast.Nonlocal):
                self._shared.update(node.names)
        for node in _walk(body):
            if isinstance(node, ast.Global):
                self._global.update(node.names)
        self._may_fail = set(free)  # variables that may hold a failed merge: every load checks them
        for node in _walk(body):
            if isinstance(node, ast.If | ast.For | ast.While):
                self._may_fail |= _find_assigned([node]) | self._shared

    def function(self, function: ast.FunctionDef) -> ast.FunctionDef:
        """Rewrite the function, and remove the parts that are evaluated at its definition: decorators, defaults, annotations."""
        # A function returns from a branch if a return depends on a node, directly or because a jump that does leaves a loop around it.
        loops = any(isinstance(node, ast.For | ast.While) and self._jumps(node) for node in _walk(function.body))
        returns = any(isinstance(node, ast.Return) for node in _walk(function.body))
        if _contains_in_if(function.body, (ast.Return,), _SCOPES) or (loops and returns):
            self._frame = self._new_name("frame")
        function.name = _OWN.format("function", 0)  # in the factory, its own name is a variable that the function may load
        function.lineno = first_line(function)
        function.decorator_list, function.returns = [], None
        if hasattr(function, "type_params"):
            function.type_params = []  # type: ignore[attr-defined]
        _remove_defaults(function.args)
        # A docstring must stay the first statement.
        documented = function.body[:1] if ast.get_docstring(function, clean=False) is not None else []
        body = self._rewrite_block(function.body[len(documented) :])
        if self._frame is not None:
            text = f"{self._frame} = {RUNTIME}.Frame()\nwith {self._frame}:\n    BODY\n    {self._frame}.reach_end()\nreturn {self._frame}.result()"
            body = _fill_template(text, function.body[-1], {"BODY": body})
        function.body = [*documented, *body] or [ast.copy_location(ast.Pass(), function)]
        return function

    def _new_name(self, what: str) -> str:
        self._count += 1
        return _OWN.format(what, self._count)

    def _rewrite_block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        rewrite: list[ast.stmt] = []
        for statement in statements:
            result = self.visit(statement)
            rewrite.extend(result if isinstance(result, list) else [result])
        return rewrite

    def _mangle(self, name: str) -> str:
        # The rewritten names appear as strings, in which Python does not mangle private names, so mangle them here.
        if self._class_name is None or not name.startswith("__") or name.endswith("__"):
            return name
        return f"_{self._class_name.lstrip('_')}{name}"

    def _variables_code(self, names: Iterable[str]) -> str:
        # Global names are looked up in globals(), which is copied only for functions that assign some.
        return f"{{**{RUNTIME}.globals(), **{RUNTIME}.locals()}}" if self._global.intersection(names) else f"{RUNTIME}.locals()"

    def _restore_code(self, source: str, names: Iterable[str], indent: str) -> str:
        lines = [f"{name} = {source}[{self._mangle(name)!r}]\nif {name} is {RUNTIME}.undefined: del {name}" for name in names]
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
        node.body = self._rewrite_block(node.body)
        return node

    def visit_If(self, node: ast.If) -> Any:
        if _is_python_value(node.test):
            node.test = self.visit(node.test)
            node.body, node.orelse = self._rewrite_block(node.body), self._rewrite_block(node.orelse)
            return node
        return self._rewrite_if(node, False)[1]

    def _rewrite_if(self, node: ast.If, inner: bool) -> tuple[str, list[ast.stmt]]:
        """Return the variable of the condition, and the statements. ``inner``: the statement is the `elif` of another one."""
        # Sorted: the merges, and with them the default names of operators, must not depend on the order of a set.
        names = sorted(_find_assigned([*node.body, *node.orelse]) | self._shared)
        variables, condition = self._variables_code(names), self._new_name("if")
        # An `elif` is an `if` as the only statement of `else`: its condition continues the chain instead of opening a new statement.
        chain = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        kept = tuple(map(self._mangle, names))
        test = self.visit(node.test)
        text = f"""
{condition} = {RUNTIME}.{"elif_" if chain or inner else "test"}(TEST)
if {condition}.first:
    if {condition}.node: {condition}.begin({variables}, {kept})
    with {condition}.branch(True):
        BODY
        if {condition}.node: {condition}.reach_end({variables})
    if {condition}.node:
        {self._restore_code(condition, names, "        ")}
"""
        blocks = {"BODY": self._rewrite_block(node.body)}
        if chain:
            following, blocks["ORELSE"] = self._rewrite_if(node.orelse[0], True)  # type: ignore[arg-type]
            text += f"if {condition}.second:\n    {condition}.enter_else()\n    ORELSE\n    {condition}.leave_else({following}, {variables})\n"
        elif node.orelse:
            blocks["ORELSE"] = self._rewrite_block(node.orelse)
            text += f"if {condition}.second:\n    with {condition}.branch(False):\n        ORELSE\n"
            text += f"        if {condition}.node: {condition}.reach_end({variables})\n"
        else:
            text += f"if {condition}.node:\n    with {condition}.branch(False): {condition}.reach_end({variables})\n"
        text += f"if {condition}.node and {condition}.join():\n    {self._restore_code(condition, names, '    ')}\n"
        if not inner:
            text += f"if {condition}.dead: raise {RUNTIME}.Exit\n"
        return condition, _fill_template(text, node.test, blocks, TEST=test)

    def visit_For(self, node: ast.For) -> Any:
        node.iter, node.target = self.visit(node.iter), self.visit(node.target)
        return self._rewrite_loop(node)

    def visit_While(self, node: ast.While) -> Any:
        node.test = self.visit(node.test)
        return self._rewrite_loop(node)

    def _jumps(self, node: ast.For | ast.While) -> bool:
        return _contains_in_if(node.body, (ast.Break, ast.Continue), (*_SCOPES, ast.For, ast.AsyncFor, ast.While))

    def _rewrite_loop(self, node: ast.For | ast.While) -> Any:
        # Most loops have no break or continue that depends on a node: they stay plain loops.
        if not self._jumps(node):
            self._loops.append(None)
            node.body = self._rewrite_block(node.body)
            self._loops.pop()
            node.orelse = self._rewrite_block(node.orelse)
            return node
        names = sorted(_find_assigned([node]) | self._shared)
        variables, loop = self._variables_code(names), self._new_name("loop")
        self._loops.append(loop)
        body = self._rewrite_block(node.body)
        self._loops.pop()
        text = f"""
with {loop}.iteration():
    BODY
    {loop}.reach_end({variables})
if {loop}.jumped:
    if not {loop}.join(): break
    {self._restore_code(loop, names, "    ")}
"""
        looped = ast.parse("while True:\n" + text.replace("\n", "\n    ")).body[0]
        assert isinstance(looped, ast.While)
        filler = _Filler({"BODY": body}, {})
        # Line numbers of the added statements: debuggers and tracebacks show the loop.
        place = node.iter if isinstance(node, ast.For) else node.test
        for inner in looped.body:
            for part in ast.walk(inner):
                if hasattr(part, "lineno"):
                    ast.copy_location(part, place)
        node.body = [filler.visit(inner) for inner in looped.body]
        node.orelse = self._rewrite_block(node.orelse)
        before = f"{loop} = {RUNTIME}.Loop({tuple(map(self._mangle, names))})"
        # After the loop, and so after its `else`, which is part of the node.
        after = f"if {loop}.close({variables}):\n    {self._restore_code(loop, names, '    ')}\nif {loop}.dead: raise {RUNTIME}.Exit"
        return [*_parse_at(before, place), node, *_parse_at(after, place)]

    def _rewrite_jump(self, node: ast.Break | ast.Continue) -> Any:
        loop = self._loops[-1] if self._loops else None
        # No jump of this loop depends on a node.
        if loop is None:
            return node
        return [*_parse_at(f"{loop}.leave({isinstance(node, ast.Break)}, {self._variables_code([])})", node), node]

    def visit_Break(self, node: ast.Break) -> Any:
        return self._rewrite_jump(node)

    def visit_Continue(self, node: ast.Continue) -> Any:
        return self._rewrite_jump(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        node.value = node.value and self.visit(node.value)
        if self._frame is not None:
            value = node.value or ast.copy_location(ast.Constant(None), node)
            (statement,) = _fill_template(f"return {self._frame}.leave(VALUE)", node, VALUE=value)
            return statement
        return node

    def visit_Try(self, node: ast.Try) -> Any:
        node.body, node.orelse, node.finalbody = self._rewrite_block(node.body), self._rewrite_block(node.orelse), self._rewrite_block(node.finalbody)
        # Without handlers, only `finally` runs, which Exit may pass through.
        if not node.handlers:
            return node
        place = self._new_name("try")
        for handler in node.handlers:
            handler.type = handler.type and self.visit(handler.type)
            handler.body = [*_parse_at(f"{RUNTIME}.back({place})", handler), *self._rewrite_block(handler.body)]
        # A bare `except:` of the program must not catch Exit; after another exception the trace returns to the scope of the statement.
        passed_on = _parse_at(f"try: pass\nexcept {RUNTIME}.Exit: raise", node)[0]
        node.handlers = [*passed_on.handlers, *node.handlers]  # type: ignore[attr-defined]
        return [*_parse_at(f"{place} = {RUNTIME}.here()", node), node]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        node.value, target = self.visit(node.value), node.target
        if isinstance(target, ast.Name):
            # `+=` would change a list in place that other branches see too: work on a copy.
            return [*_parse_at(f"{target.id} = {RUNTIME}.fresh({target.id})", node), node]
        if isinstance(target, ast.Attribute):
            target.value = self._call_runtime("updated_attribute_holder", self.visit(target.value), ast.Constant(self._mangle(target.attr)))
        else:
            target.value, target.slice = self._call_runtime("items", self.visit(target.value)), self.visit(target.slice)
        return node

    # --- Expressions

    def _call_runtime(self, name: str, *arguments: ast.expr) -> ast.Call:
        place = arguments[0]
        for argument in arguments[1:]:
            if not hasattr(argument, "lineno"):
                ast.copy_location(argument, place)
        function = ast.Attribute(ast.copy_location(ast.Name(RUNTIME, ast.Load()), place), name, ast.Load())
        return ast.copy_location(ast.Call(ast.copy_location(function, place), list(arguments), []), place)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._call_runtime("load", node) if isinstance(node.ctx, ast.Load) and node.id in self._may_fail else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.value = self.visit(node.value)
        if not isinstance(node.ctx, ast.Load):
            node.value = self._call_runtime("attribute_holder", node.value, ast.Constant(self._mangle(node.attr)))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value, node.slice = self.visit(node.value), self.visit(node.slice)
        if not isinstance(node.ctx, ast.Load):
            node.value = self._call_runtime("items", node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        # super() needs its cell, locals() and globals() their frame: a call through the runtime would break them.
        plain = isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "globals")
        self.generic_visit(node)
        if not plain:
            node.func = self._call_runtime("convert", node.func)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        # The right operand moves into a lambda, so it is traced only for the samples that need it.
        movable = not _is_python_value(node) and not _cannot_move(node.values[1:])
        self.generic_visit(node)
        if not movable:
            return node
        expression = node.values[-1]
        # From the right, so `a and b and c` groups as (a and (b and c)); the result is the same.
        for left in node.values[-2::-1]:
            expression = self._call_runtime("and_" if isinstance(node.op, ast.And) else "or_", left, self._delay(expression))
        return ast.copy_location(expression, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        plain = _is_python_value(node)
        self.generic_visit(node)
        return ast.copy_location(self._call_runtime("not_", node.operand), node) if isinstance(node.op, ast.Not) and not plain else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        movable = len(node.ops) > 1 and not _cannot_move([node.left, *node.comparators])
        self.generic_visit(node)
        if not movable:
            return node
        # a < b < c, computing b once: (lambda p, q: and_(p < q, lambda: (lambda r: q < r)(c)))(a, b)
        *before, last = [self._new_name("operand") for _ in (node.left, *node.comparators)]
        names = [*before, last]
        expression: ast.expr | None = None
        for k in range(len(node.ops) - 1, -1, -1):
            pair = ast.copy_location(ast.Compare(self._load_operand(names[k], node), [node.ops[k]], [self._load_operand(names[k + 1], node)]), node)
            value = pair if expression is None else self._call_runtime("and_", pair, self._delay(expression))
            if k:
                expression = self._apply_lambda([names[k + 1]], value, [node.comparators[k]])
            else:
                expression = self._apply_lambda(names[:2], value, [node.left, node.comparators[0]])
        assert expression is not None
        return ast.copy_location(expression, node)

    def _load_operand(self, name: str, at: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Name(name, ast.Load()), at)

    def _delay(self, value: ast.expr) -> ast.Lambda:
        return self._lambda([], value)

    def _lambda(self, names: Sequence[str], value: ast.expr) -> ast.Lambda:
        arguments = ast.arguments([], [ast.copy_location(ast.arg(name), value) for name in names], None, [], [], None, [])
        return ast.copy_location(ast.Lambda(arguments, value), value)

    def _apply_lambda(self, names: Sequence[str], value: ast.expr, values: list[ast.expr]) -> ast.expr:
        return ast.copy_location(ast.Call(self._lambda(names, value), values, []), value)
