# SPDX-License-Identifier: Apache-2.0
"""How the modules of the package use each other: without cycles, downward only, and nothing private of another package.

Imports are read from the sources, those inside functions and under ``if TYPE_CHECKING`` as well: an import that is moved into a function because of a
cycle is still found here. Put what two modules need into one below both, or give it as an argument.
"""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch_ndd as ndd

ROOT = Path(ndd.__file__).parent

# From the bottom to the top. A module imports from its own layer and those below.
LAYERS = (
    ("_core.optional", "_core.process.files", "_core.suggestions", "_core.version", "_show"),
    ("types",),
    ("_core", "_core.native"),
    ("_core.process",),
    ("_core.context",),
    ("_core.work",),
    ("_core.values",),
    ("_core.operators",),
    ("capture", "checkpoint", "io", "tfrecord"),
    ("ops",),
    ("augment", "decoders", "extension", "math", "noise", "random", "reductions", "segmentation", "testing", "transforms"),
    ("_doctor", "pack", "readers", "_show._timeline"),
    ("_hand_over", "_structures", "batches", "distributed", "experimental", "index", "pytorch", "sizes", "transformers"),
    ("loader",),
    ("albumentations", "lightning", "ray", "torchvision"),
    ("dali._graph", "dali._policies", "dali.pickling"),
    ("dali.data_node",),
    ("dali.types",),
    ("dali._run", "dali.tensors"),
    ("dali._conditionals", "dali._inputs"),
    ("dali.external_source",),
    ("dali._functions",),
    ("dali.fn", "dali.math", "dali.ops"),
    ("dali.auto_aug",),
    ("dali._serialization",),
    ("dali.pipeline",),
    ("dali",),
    ("", "__main__"),
)


@dataclass(frozen=True)
class Import:
    """One import. Modules are named without the package: ``_core.values.batch``; the package itself is an empty name."""

    importer: str
    imported: str
    name: str | None  # of what is taken from the module, if it is not a module
    line: int
    late: bool  # inside a function

    def __str__(self) -> str:
        where = " inside a function" if self.late else ""
        return f"{self.importer or '__init__'} imports {self.imported or 'the package'}{where} (line {self.line})"


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def sources(root: Path) -> dict[str, Path]:
    """Return the files of all modules by name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(modules: dict[str, Path], importer: str, package: str = "torch_ndd") -> Iterator[Import]:
    """Yield the imports of one module that stay in the package."""
    here = importer.split(".") if importer else []
    if modules[importer].name != "__init__.py":
        here = here[:-1]

    def targets(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str | None]]:
        if isinstance(node, ast.Import):
            for name in node.names:
                head, _, rest = name.name.partition(".")
                if head == package:
                    yield rest, None
            return
        if node.level:
            base = [*here[: len(here) - node.level + 1], *(node.module.split(".") if node.module else [])]
        else:
            head, *base = (node.module or "").split(".")
            if head != package:
                return
        for name in node.names:
            module = ".".join([*base, name.name])
            yield (module, None) if module in modules else (".".join(base), name.name)

    def visit(node: ast.AST, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                for imported, name in targets(child):
                    yield Import(importer, imported, name, child.lineno, late)
            elif late and isinstance(child, ast.Call) and "import_module" in (getattr(child.func, "id", ""), getattr(child.func, "attr", "")):
                value = child.args[0]
                if isinstance(value, ast.Constant) and str(value.value).startswith(package + "."):
                    yield Import(importer, str(value.value).removeprefix(package + "."), None, child.lineno, late)
            if isinstance(child, ast.FunctionDef) and child.name == "__getattr__" and isinstance(node, ast.Module):
                continue  # a package loads its own modules when they are first used
            yield from visit(child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    yield from visit(parse(modules[importer]), False)


def list_executed(value: Import) -> set[str]:
    """Return the modules that an import executes: also the packages around the module, except those that the importer is in."""
    parts = value.imported.split(".")
    around = {".".join(parts[:k]) for k in range(1, len(parts))}
    return {value.imported} | {package for package in around if not f"{value.importer}.".startswith(f"{package}.")}


def cycles(found: list[Import]) -> list[str]:
    """Return a description of one cycle for each import that is part of any."""
    edges: dict[str, dict[str, Import]] = {}
    for value in found:
        for module in list_executed(value) - {value.importer}:
            edges.setdefault(value.importer, {}).setdefault(module, value)
    texts, reported = [], set()
    for value in found:
        for start in sorted(list_executed(value) - {value.importer}):
            way = _way(edges, start, value.importer)
            if way is not None and frozenset({value, *way}) not in reported:
                reported.add(frozenset({value, *way}))
                texts.append(", ".join(map(str, (value, *way))))
    return texts


def _way(edges: dict[str, dict[str, Import]], start: str, end: str) -> list[Import] | None:
    """Return the imports on the shortest way from one module to another."""
    ways: dict[str, list[Import]] = {start: []}
    queue = [start]
    for module in queue:
        if module == end:
            return ways[module]
        for following, value in edges.get(module, {}).items():
            if following not in ways:
                ways[following] = [*ways[module], value]
                queue.append(following)
    return None


def layer(module: str) -> int:
    """Return the number of a module's layer: that of the longest name that it begins with."""
    parts = module.split(".")
    return next(k for end in range(len(parts), 0, -1) for k, names in enumerate(LAYERS) if ".".join(parts[:end]) in names)


MODULES = sources(ROOT)


@functools.cache  # not at the import: every process that runs tests imports every module of tests
def all_imports() -> list[Import]:
    return [item for module in MODULES for item in imports(MODULES, module)]


def report(what: str, lines: list[str]) -> str:
    return "\n  ".join([what, *lines])


def test_there_are_no_cycles() -> None:
    found = cycles(all_imports())
    assert not found, report("modules import each other; move what both need into a module below, or pass it as an argument:", found)


def test_imports_go_down() -> None:
    found = [str(item) for item in all_imports() if item.imported and layer(item.imported) > layer(item.importer)]
    assert not found, report("imports from a layer above (see LAYERS):", found)


def test_nothing_private_of_another_package() -> None:
    def package(module: str) -> str:
        return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]

    private = [item for item in all_imports() if item.name is not None and item.name.startswith("_") and not item.name.startswith("__")]
    found = [f"{value}: {value.name}" for value in private if package(value.importer) != package(value.imported)]
    assert not found, report("names with an underscore from another package:", found)


# Methods of named tuples, torch's count of writes to a tensor, and the exit of a process.
PUBLIC = {"_replace", "_fields", "_version", "_exit"}


def private_attributes(package: dict[str, Path]) -> Iterator[str]:
    """Yield accesses to attributes with an underscore of objects whose classes are in another package."""

    def folder(module: str) -> str:
        return module.partition(".")[0] if "." in module or package[module].name == "__init__.py" else ""

    names: dict[str, set[str]] = {}
    accesses: list[tuple[str, ast.Attribute]] = []
    for module, path in package.items():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.setdefault(node.name, set()).add(folder(module))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.setdefault(node.attr, set()).add(folder(module))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.setdefault(node.id, set()).add(folder(module))
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                accesses.append((module, node))
    for module, node in accesses:
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        places = names.get(node.attr, set())
        if not own and places and folder(module) not in places and node.attr not in PUBLIC:
            yield f"{module} uses {ast.unparse(node)}, of {' or '.join(sorted(places))} (line {node.lineno})"


def test_no_private_attribute_of_another_package() -> None:
    found = list(private_attributes(MODULES))
    assert not found, report("attributes with an underscore of another package:", found)


def test_a_private_attribute_is_found(tmp_path: Path) -> None:
    package = tmp_path / "torch_ndd"
    for name, text in (
        ("a/__init__", ""),
        ("a/x", "class A:\n    def __init__(self):\n        self._secret = 1\n"),
        ("b", "def f(a):\n    return a._secret\n"),
    ):
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(private_attributes(sources(package))) == ["b uses a._secret, of a (line 2)"]


def test_a_cycle_is_found(tmp_path: Path) -> None:
    """Also through a package, and if one of its imports is inside a function or only for annotations."""
    package = tmp_path / "torch_ndd"
    for name, text in {
        "__init__.py": "from .above import thing\n\ndef __getattr__(name):\n    from . import lazy\n",
        "lazy.py": "from torch_ndd import above\n",
        "above/__init__.py": "from ._inner import thing\n",
        "above/_inner.py": "from ..below import base\nthing = base\n",
        "below.py": "def base():\n    from . import above\n",
        "left.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .right import Right\n",
        "right.py": "from .left import Left\n",
        "alone.py": "import importlib\n\ndef f():\n    import json\n    importlib.import_module('torch_ndd.lazy')\n",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    modules = sources(package)
    found = [item for module in modules for item in imports(modules, module)]
    text = "\n".join(cycles(found))
    assert "below imports above inside a function (line 2)" in text
    assert "left imports right (line 3), right imports left (line 1)" in text
    assert "alone" not in text
    assert "lazy" not in text
    assert ("alone", "lazy") in {(value.importer, value.imported) for value in found}
