# SPDX-License-Identifier: Apache-2.0
"""The public modules and their names, functions and methods. Run as a program, this file writes ``tests/project/public_api.txt``."""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch_ndd as ndd
from torch_ndd._core.operators.operator import OPERATORS

GOLDEN = Path(__file__).parents[1] / "project" / "public_api.txt"
UPDATE = ".venv/bin/python tests/helpers/_public_api.py"
# Modules that only raise ImportError, and the folders of operators, which are public under other names.
EXCLUDED = ("torch_ndd.ops", "torch_ndd.dali", "torch_ndd.decoders.", "torch_ndd.readers.", "torch_ndd.__main__", "torch_ndd.pack.__main__")

OPTIONAL = ("torchdata", "torchvision")


def public_modules() -> Iterator[ModuleType]:
    for name in sorted(["torch_ndd", *(module.name for module in pkgutil.walk_packages(ndd.__path__, "torch_ndd."))]):
        if not name.startswith(EXCLUDED) and not re.search(r"\._", name):
            try:
                yield importlib.import_module(name)
            except ImportError as error:
                if (error.name or "").partition(".")[0] not in OPTIONAL:
                    raise


MODULES = list(public_modules())


def dali_modules() -> Iterator[ModuleType]:
    """Yield the modules for DALI programs, whose names are DALI's; only those in C++ and other frameworks cannot be imported."""
    for name in sorted(["torch_ndd.dali", *(module.name for module in pkgutil.walk_packages(ndd.dali.__path__, "torch_ndd.dali."))]):
        if not re.search(r"\._", name):
            try:
                yield importlib.import_module(name)
            except ImportError as error:
                if "no plugin for" not in str(error) and (error.name or "").partition(".")[0] not in OPTIONAL:
                    raise


# Signatures are taken from the sources, so they are the same with every version of Python.


@functools.cache
def definitions(module: str) -> dict[str, ast.AST]:
    """Return the functions and classes of a module, and their methods, by qualified name."""
    found: dict[str, ast.AST] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[prefix + node.name] = node  # the last one: the implementation behind overloads
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.If | ast.Try):
                visit(node.body, prefix)

    source = sys.modules[module].__file__
    assert source is not None
    visit(ast.parse(Path(source).read_text()).body, "")
    return found


def definition(value: Any) -> tuple[str, ast.AST | None]:
    """Return the qualified name of a function or class and its source; None if it was not written in this package."""
    module, name = value.__module__, value.__qualname__
    operator = OPERATORS.get(".".join([*module.split(".")[1:], name]))
    if operator is not None and operator.body.__name__ == name:
        module, name = operator.body.__module__, operator.body.__qualname__
    inside = module.split(".")[0] == "torch_ndd" and module in sys.modules
    return f"{module}.{name}", definitions(module).get(name) if inside else None


def signature(node: ast.FunctionDef) -> str:
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}){returned}"


def overrides(value: type, method: str) -> bool:
    """Return whether a method has the parameters of a base class, whose line says them."""

    def parameters(owner: type) -> list[str]:
        return list(inspect.signature(vars(owner)[method]).parameters)

    base = next((base for base in value.__mro__[1:] if base is not object and inspect.isfunction(vars(base).get(method))), None)
    return base is not None and inspect.isfunction(vars(value)[method]) and parameters(value) == parameters(base)


def methods(value: type, node: ast.ClassDef, name: str) -> Iterator[str]:
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name) and member.target.id[0] != "_":
            yield f"{name}.{member.target.id}: {ast.unparse(member.annotation)}"
        if not isinstance(member, ast.FunctionDef) or (member.name[0] == "_" and member.name not in ("__init__", "__call__")):
            continue
        # An override without a docstring has that of the base class, as in the reference.
        if overrides(value, member.name) or ":meta private:" in (inspect.getdoc(getattr(value, member.name)) or ""):
            continue
        decorators = [ast.unparse(decorator) for decorator in member.decorator_list]
        if any("overload" in decorator for decorator in decorators):
            continue
        kind = next((f" [{decorator}]" for decorator in decorators if decorator in ("property", "staticmethod", "classmethod")), "")
        yield f"{name}.{member.name}{signature(member)}{kind}"


# Arguments with a fixed set of strings.

# The result of decoders.cache, and the decorator's own table of kernels.
INTERNAL = ("decoders.Cache", "extension.operator")


def choices(annotation: Any) -> tuple[str, ...]:
    """Return the strings of the Literals in an annotation."""
    if typing.get_origin(annotation) is Literal:
        return tuple(value for value in typing.get_args(annotation) if isinstance(value, str) and value)
    return tuple(value for part in typing.get_args(annotation) for value in choices(part))


def choice_arguments(function: Callable[..., Any]) -> dict[str, tuple[str, ...]]:
    """Return the arguments of a function that take one of a few strings, and these."""
    hints = inspect.get_annotations(function)
    hints.update({name: hint for unpacked in hints.values() for part in typing.get_args(unpacked) for name, hint in _options(part).items()})
    return {name: found for name, hint in hints.items() if name != "return" and (found := choices(hint))}


def _options(hint: Any) -> dict[str, Any]:
    return typing.get_type_hints(hint) if typing.is_typeddict(hint) else {}


def functions_with_choices() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the functions and classes with arguments that take one of a few strings, the arguments and the strings."""
    seen = set()
    for name, operator in OPERATORS.items():
        if not operator.body.__module__.startswith("torch_ndd."):  # defined by another test
            continue
        seen.add(definition(operator.body)[0])
        for argument, strings in choice_arguments(operator.body).items():
            yield name, argument, strings
    for module in MODULES:
        for name in module.__all__:
            value, path = getattr(module, name), f"{module.__name__}.{name}".removeprefix("torch_ndd.")
            if not callable(value) or not hasattr(value, "__qualname__") or path in INTERNAL:
                continue
            origin, node = definition(value)
            if origin not in seen and node is not None:
                seen.add(origin)
                function = value.__init__ if isinstance(value, type) else value
                if getattr(function, "__module__", "").startswith("torch_ndd"):  # not a constructor of torchvision's
                    for argument, strings in choice_arguments(function).items():
                        yield path, argument, strings


def dali_choices() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the same for the functions and classes that only DALI programs use."""
    seen = set()
    for module in dali_modules():
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            function = value.__init__ if isinstance(value, type) else value
            if getattr(function, "__module__", "").startswith("torch_ndd.dali") and function not in seen:
                seen.add(function)
                for argument, strings in choice_arguments(function).items():
                    yield f"{module.__name__}.{name}".removeprefix("torch_ndd."), argument, strings


def api_lines() -> Iterator[str]:
    """Yield one line per public module, function, class, method and constant (names of one object after its first are aliases), then the strings."""
    seen: dict[str, str] = {}
    for module in MODULES:
        yield module.__name__
        for name in sorted(module.__all__):
            value, path = getattr(module, name), f"{module.__name__}.{name}"
            if not isinstance(value, type) and not callable(value):
                yield f"{path}: {'module' if isinstance(value, ModuleType) else type(value).__name__}"
                continue
            if not hasattr(value, "__qualname__"):  # a special form of typing
                yield f"{path}: type"
                continue
            origin, node = definition(value)
            if origin in seen or node is None:
                yield f"{path} = {seen.get(origin, origin)}"
                continue
            seen[origin] = path
            if isinstance(node, ast.FunctionDef):
                yield path + signature(node)
            elif isinstance(node, ast.ClassDef):
                yield f"class {path}({', '.join(map(ast.unparse, node.bases))})"
                yield from methods(value, node, path)
    yield "strings"
    for name, argument, strings in sorted(functions_with_choices()):
        yield f"{name}({argument}): {' | '.join(strings)}"


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{line}\n" for line in api_lines()))
