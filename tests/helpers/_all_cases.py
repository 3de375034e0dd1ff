# SPDX-License-Identifier: Apache-2.0
"""The cases of all operators, from ``tests/ops`` and ``tests/decoders``. Found once in a process, also if several modules of tests use them."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _cases import Case


def _find_cases() -> Iterator[Case]:
    tests = Path(__file__).parents[1]
    for path in sorted([*tests.glob("ops/**/test_*.py"), *tests.glob("decoders/test_*.py")]):
        spec = importlib.util.spec_from_file_location(f"cases_{path.parent.name}_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except pytest.skip.Exception:  # a module that needs a package which is missing; under CI conftest.py refuses to begin
            continue
        yield from getattr(module, "CASES", [])


CASES = list(_find_cases())
