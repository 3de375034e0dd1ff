# SPDX-License-Identifier: Apache-2.0
"""The public API: what modules export, its signatures in ``public_api.txt``, and the arguments that take one of a few strings."""

import ast
import dataclasses
import difflib
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

import numpy as np
import pytest
from test_operators import CASES

import torch_ndd as ndd
from torch_ndd._core.operators.operator import OPERATORS

GOLDEN = Path(__file__).with_name("public_api.txt")
UPDATE = "python tests/test_public_api.py > tests/public_api.txt"
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


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_modules_list_their_public_names(module: ModuleType) -> None:
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        getattr(module, name)


def test_dir_shows_the_public_names() -> None:
    assert dir(ndd) == sorted(ndd.__all__)
    assert "dali" in dir(ndd)
    assert callable(ndd.doctor)
    assert callable(ndd.show)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_exported(name: str) -> None:
    path, _, function = name.rpartition(".")
    home = functools.reduce(getattr, path.split("."), ndd) if path else ndd
    if hasattr(home, function):  # not those without a public function, such as arithmetic
        assert function in home.__all__


def test_former_names_warn() -> None:
    with pytest.warns(DeprecationWarning, match="ReadError is deprecated; use readers.BadSample"):
        assert ndd.readers.ReadError is ndd.readers.BadSample  # type: ignore[attr-defined]


# Signatures are taken from the sources, so that they are the same with every version of Python.


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


def methods(node: ast.ClassDef, name: str) -> Iterator[str]:
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name) and member.target.id[0] != "_":
            yield f"{name}.{member.target.id}: {ast.unparse(member.annotation)}"
        if not isinstance(member, ast.FunctionDef) or (member.name[0] == "_" and member.name not in ("__init__", "__call__")):
            continue
        decorators = [ast.unparse(decorator) for decorator in member.decorator_list]
        if any("overload" in decorator for decorator in decorators):
            continue
        kind = next((f" [{decorator}]" for decorator in decorators if decorator in ("property", "staticmethod", "classmethod")), "")
        yield f"{name}.{member.name}{signature(member)}{kind}"


def api_lines() -> Iterator[str]:
    """Yield one line per public module, function, class, method and constant; names of one object after its first are aliases."""
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
                yield from methods(node, path)


def test_the_api_is_the_recorded_one() -> None:
    for package in OPTIONAL:
        pytest.importorskip(package)
    changes = difflib.unified_diff(GOLDEN.read_text().splitlines(), list(api_lines()), "recorded", "current", lineterm="", n=0)
    report = "\n".join(changes)
    assert not report, f"the public API has changed; if that is intended, run `{UPDATE}` and add a line to CHANGELOG.md:\n{report}"


# Arguments with a fixed set of strings: the annotation lists what the code accepts, and nothing else.


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


def drain(reader: Any) -> None:
    list(reader.next_epoch(batch_size=1))


def file_of(tmp_path: Path, name: str = "0.npy") -> str:
    np.save(tmp_path / name, np.zeros(3))
    return str(tmp_path / name)


Call = Callable[..., Any]
_video = {"sequence_length": 1}
# How to call what is not an operator, up to the check of the argument.
CALLS: dict[str, Call] = {
    "ExternalSource": lambda folder, **choice: ndd.ExternalSource([[1]], **choice),
    "imread": lambda folder, **choice: ndd.imread(file_of(folder), cache_size=1, **choice).cpu(),
    "decoders.cache": lambda folder, **choice: ndd.decoders.cache("1MB", **choice),
    "pack.pack": lambda folder, **choice: sys.modules["torch_ndd.pack"].pack(folder, folder / "packed", **choice),
    "python_function": lambda folder, **choice: ndd.python_function(np.negative, [1], **choice),
    "python_operator": lambda folder, **choice: ndd.python_operator(**choice)(np.negative),
    "readers.COCO": lambda folder, **choice: ndd.readers.COCO(annotations_file=file_of(folder), file_root=folder, **choice),
    "readers.Caffe": lambda folder, **choice: ndd.readers.Caffe(path=folder, **choice),
    "readers.Caffe2": lambda folder, **choice: ndd.readers.Caffe2(path=folder, **choice),
    "readers.Dataset": lambda folder, **choice: ndd.readers.Dataset([1], **choice),
    "readers.File": lambda folder, **choice: ndd.readers.File(files=[file_of(folder)], **choice),
    "readers.MXNet": lambda folder, **choice: ndd.readers.MXNet(path=file_of(folder), **choice),
    "readers.NemoAsr": lambda folder, **choice: ndd.readers.NemoAsr(manifest_filepaths=[file_of(folder)], **choice),
    "readers.Numpy": lambda folder, **choice: drain(ndd.readers.Numpy(files=[file_of(folder)], rel_roi_shape=[0.5], **choice)),
    "readers.Parquet": lambda folder, **choice: ndd.readers.Parquet(path=file_of(folder), **choice),
    "readers.TFRecord": lambda folder, **choice: ndd.readers.TFRecord(path=file_of(folder), features={}, **choice),
    "readers.Video": lambda folder, **choice: ndd.readers.Video(filenames=[file_of(folder)], **_video, **choice),
    "readers.VideoResize": lambda folder, **choice: ndd.readers.VideoResize(filenames=[file_of(folder)], **_video, **choice),
    "readers.Webdataset": lambda folder, **choice: drain(ndd.readers.Webdataset(paths=[file_of(folder)], ext=["jpg"], **choice)),
    "experimental.readers.Fits": lambda folder, **choice: ndd.experimental.readers.Fits(files=[file_of(folder)], **choice),
    "experimental.readers.Video": lambda folder, **choice: ndd.experimental.readers.Video(filenames=[file_of(folder)], **_video, **choice),
    "torchvision.tv_tensors.BoundingBoxes": lambda folder, **choice: ndd.torchvision.tv_tensors.BoundingBoxes(
        ndd.batch(np.zeros((1, 1, 4))), format="XYXY", canvas_size=(1, 1), **choice
    ),
}
# The result of decoders.cache, and the decorator's own table of kernels.
INTERNAL = ("decoders.Cache", "extension.operator")
# An argument on which the other one depends.
NEEDED = {"cache_type": {"cache_size": 1}}


def functions_with_choices() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    seen = set()
    for name, operator in OPERATORS.items():
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
                for argument, strings in choice_arguments(value.__init__ if isinstance(value, type) else value).items():
                    yield path, argument, strings


CHOICES = list(functions_with_choices())


def call_with(name: str, folder: Path, **argument: str) -> str:
    """Return the message of a call's error with a case's other arguments; empty if it succeeds."""
    try:
        if name in CALLS:
            CALLS[name](folder, **argument)
        else:
            case = next(case for case in CASES if case.operator == name)
            (key,) = argument
            for batch in dataclasses.replace(case, args={**case.args, **NEEDED.get(key, {}), **argument}).run():
                batch.cpu()
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("name", "argument", "strings"), CHOICES, ids=lambda value: value if isinstance(value, str) else "")
def test_literals_are_what_the_code_accepts(name: str, argument: str, strings: tuple[str, ...], tmp_path: Path) -> None:
    message = call_with(name, tmp_path, **{argument: "no such choice"})
    found = re.search(rf"{argument} must be one of (.*?), got 'no such choice'", message)
    assert found, message
    assert found[1].split(", ") == list(strings)
    for string in strings:
        assert f"{argument} must be one of" not in call_with(name, tmp_path, **{argument: string})


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in api_lines()))
