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

from conftest import ROOT

FOLDERS = ("torch_ndd", "csrc", "tests", "docs", "examples", "benchmarks", ".ci")
SUFFIXES = {".py", ".cpp", ".h", ".cu", ".cuh", ".md"}
LIMITS: dict[str, int] = {
    "bindings named one, made, given, ...": 0,
    "examples in docstrings that bind one, made, given, ...": 0,
    "functions named by a participle": 10,
    "tests with a name of one word": 0,
    "MOST_ and kMost in place of MAX_ and kMax": 0,
    '"is no X"': 0,
    '"anew"': 0,
    '"at once"': 0,
    '"by itself"': 0,
    '"in vain"': 0,
    '"nobody"': 0,
    '"who waits"': 0,
    "code that tells, asks, thinks or forgets": 9,
    '"behind" for "after"': 20,
    '"takes part"': 8,
    '"of ours"': 4,
    '"what of it"': 0,
    "small files that promise": 5,
    '", so that" for a result': 75,
    '"whole number" for "integer"': 23,
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
NOT_PARTICIPLES = {"seed", "reseed", "embed", "feed", "need", "speed", "exceed", "proceed", "succeed", "red", "shared"}
PHRASES = {
    '"is no X"': r"(?<![Tt]here )\b(?:is|are|was) no (?!(?:longer|more than|fewer|less|such|better|slower|faster|larger|smaller|need|GPU|op)\b)",
    '"anew"': r"\banew\b",
    '"at once"': r"\bat once\b",
    '"by itself"': r"\bby (?:itself|themselves)\b",
    '"in vain"': r"\bin vain\b",
    '"nobody"': r"\b[Nn]obody\b",
    '"who waits"': r"\b[Ww]ho (?:waits|reads|asks|calls|holds|needs|has|is|uses|wants)\b",
    "code that tells, asks, thinks or forgets": r"\b(?:tells|asks|thinks|forgets)\b",
    '"behind" for "after"': r"(?<!left )(?<!leave )(?<!leaves )(?<!hide )\b[Bb]ehind (?:it|them|these|which|the end)\b",
    '"takes part"': r"\btakes? part\b",
    '"of ours"': r"\bof (?:ours|theirs)\b",
    '"what of it"': r"\bwhat of (?:it|them)\b",
    "small files that promise": r"\bpromises? (?:a lot|much|more)\b",
    '", so that" for a result': r", so that\b",
    '"whole number" for "integer"': r"\b[Ww]hole numbers?\b(?! of)",
}
COMMENTS_AND_STRINGS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
# The names that an example of a docstring assigns or loops over.
EXAMPLE = re.compile(r"^\s*(?:>>>|\.\.\.) (.*)$", re.MULTILINE)
BINDING = re.compile(r"\bfor (\w+) in\b|^(\w+(?:, *\w+)*) = ")
FUNCTION_STYLE = re.compile(r"\b_?MOST_\w+|\bkMost\w+")
# What a file must have somewhere for it to be worth parsing: parsing all of them takes 26 CPU seconds.
ANY_PHRASE = re.compile("|".join(PHRASES.values()))
ANY_EMPTY_NAME = re.compile(rf"\b(?:{'|'.join(sorted(EMPTY_NAMES))})\b[ \t]*(?:[^\w\s.]|in\b|$)", re.MULTILINE)
ANY_FUNCTION = re.compile(rf"\bdef +(?:_*[^\W_]*ed_*|_*(?:{'|'.join(sorted(IRREGULAR_PARTICIPLES))})_*|test_[^\W_]*) *\(")


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


def names_in_examples(text: str) -> Iterator[str]:
    for example in EXAMPLE.findall(text):
        for match in BINDING.finditer(example):
            yield from (name for name in re.findall(r"\w+", match[1] or match[2]) if name in EMPTY_NAMES)


@cache
def places() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in files():
        source = path.read_text(encoding="utf-8", errors="replace")
        where = path.relative_to(ROOT)
        if path.suffix == ".py" and (ANY_EMPTY_NAME.search(source) or ANY_FUNCTION.search(source)):
            for pattern, line, name in names_of(source):
                found[pattern].append(f"{where}:{line}: {name}")
        for match in FUNCTION_STYLE.finditer(source):
            found["MOST_ and kMost in place of MAX_ and kMax"].append(f"{where}: {match[0]}")
        has_phrases = ANY_PHRASE.search(source) is not None
        if path.name == "CONTRIBUTING.md" or not (has_phrases or (">>>" in source and ANY_EMPTY_NAME.search(source))):
            continue
        for line, text in text_of(path, source):
            found["examples in docstrings that bind one, made, given, ..."] += [f"{where}:{line}: {name}" for name in names_in_examples(text)]
            for pattern, expression in PHRASES.items() if has_phrases else ():
                found[pattern] += [f"{where}:{line}: {text.strip()[:100]}"] * len(re.findall(expression, text))
    return found


PATTERNS = [
    "bindings named one, made, given, ...",
    "examples in docstrings that bind one, made, given, ...",
    "functions named by a participle",
    "tests with a name of one word",
    "MOST_ and kMost in place of MAX_ and kMax",
    *PHRASES,
]


# One test: in several, each process that runs one would read all files.
def test_patterns_do_not_grow() -> None:
    found = places()
    texts = [
        f"{len(found[pattern])} {pattern}, of which {LIMITS[pattern]} are allowed:\n" + "\n".join(found[pattern])
        for pattern in PATTERNS
        if len(found[pattern]) > LIMITS[pattern]
    ]
    assert not texts, "\n".join(texts)
