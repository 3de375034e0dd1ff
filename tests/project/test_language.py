# SPDX-License-Identifier: Apache-2.0
"""Names and wordings that CONTRIBUTING.md rules out do not return.

``LIMITS`` holds how many of each are left, most of them names that another library prescribes or correct English. A count may fall, never rise:
lower the number when you remove some. The message lists every place.
"""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT

FOLDERS = ("torch_ndd", "csrc", "tests", "docs", "examples", "benchmarks", ".ci")
SUFFIXES = {".py", ".cpp", ".h", ".cu", ".cuh", ".md"}
LIMITS: dict[str, int] = {
    "bindings named one, made, given, ...": 74,
    "functions named by a participle": 181,
    "tests with a name of one word": 112,
    "MOST_ and kMost in place of MAX_ and kMax": 2,
    '"is no X"': 21,
    '"anew"': 5,
    '"at once"': 9,
    '"by itself"': 8,
    '"in vain"': 0,
    '"nobody"': 14,
    '"who waits"': 1,
    "code that tells, asks, thinks or forgets": 12,
}

# Words that say nothing about a value.
EMPTY_NAMES = {"one", "made", "given", "asked", "said", "told"}
IRREGULAR_PARTICIPLES = {
    "given",
    "made",
    "shown",
    "kept",
    "held",
    "known",
    "taken",
    "seen",
    "found",
    "written",
    "drawn",
    "done",
    "said",
    "told",
    "chosen",
    "gone",
}
NOT_PARTICIPLES = {"seed", "embed", "feed", "need", "speed", "exceed", "proceed", "succeed", "red", "shared"}
PHRASES = {
    '"is no X"': r"(?<!there )\b(?:is|are|was) no (?!(?:longer|more than|fewer|less|such|better|slower|faster|larger|smaller|need|GPU|op)\b)",
    '"anew"': r"\banew\b",
    '"at once"': r"\bat once\b",
    '"by itself"': r"\bby (?:itself|themselves)\b",
    '"in vain"': r"\bin vain\b",
    '"nobody"': r"\b[Nn]obody\b",
    '"who waits"': r"\b[Ww]ho (?:waits|reads|asks|calls|holds|needs|has|is|uses|wants)\b",
    "code that tells, asks, thinks or forgets": r"\b(?:tells|asks|thinks|forgets)\b",
}
COMMENTS_AND_STRINGS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
FUNCTION_STYLE = re.compile(r"\b_?MOST_\w+|\bkMost\w+")


def files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and "_build" not in path.parts and path.name != Path(__file__).name:
                yield path
    yield from ROOT.glob("*.md")


def text_of(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments and strings of a program, or the lines of a page, with their line numbers."""
    if path.suffix == ".md":
        yield from enumerate(source.splitlines(), 1)
    elif path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
                yield token.start[0], token.string
    else:
        for match in COMMENTS_AND_STRINGS.finditer(source):
            yield source.count("\n", 0, match.start()) + 1, match[0]


def is_participle(name: str) -> bool:
    """Return whether a name of one word is a past participle; ``find_damaged`` and ``test_files_are_renamed`` have a verb."""
    return ("_" not in name and (name.endswith("ed") and name not in NOT_PARTICIPLES)) or name in IRREGULAR_PARTICIPLES


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) or ".setter" in ast.unparse(decorator) for decorator in function.decorator_list)


def names_of(source: str) -> Iterator[tuple[str, int, str]]:
    """Yield the pattern, the line and the name of each binding and function that CONTRIBUTING.md rules out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if is_participle(node.name.strip("_")) and not is_property(node):
                yield "functions named by a participle", node.lineno, node.name
            if node.name.startswith("test_") and "_" not in node.name[5:]:
                yield "tests with a name of one word", node.lineno, node.name
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else node.arg if isinstance(node, ast.arg) else ""
        if name in EMPTY_NAMES:
            yield "bindings named one, made, given, ...", node.lineno, name


@cache
def places() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in files():
        source = path.read_text(encoding="utf-8", errors="replace")
        where = path.relative_to(ROOT)
        if path.suffix == ".py":
            for pattern, line, name in names_of(source):
                found[pattern].append(f"{where}:{line}: {name}")
        for match in FUNCTION_STYLE.finditer(source):
            found["MOST_ and kMost in place of MAX_ and kMax"].append(f"{where}: {match[0]}")
        if path.name == "CONTRIBUTING.md":
            continue
        for line, text in text_of(path, source):
            for pattern, expression in PHRASES.items():
                found[pattern] += [f"{where}:{line}: {text.strip()[:100]}"] * len(re.findall(expression, text))
    return found


PATTERNS = [
    "bindings named one, made, given, ...",
    "functions named by a participle",
    "tests with a name of one word",
    "MOST_ and kMost in place of MAX_ and kMax",
    *PHRASES,
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_do_not_grow(pattern: str) -> None:
    found = places()[pattern]
    assert len(found) <= LIMITS[pattern], f"{len(found)} {pattern}, of which {LIMITS[pattern]} are allowed:\n" + "\n".join(found)
