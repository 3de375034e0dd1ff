# SPDX-License-Identifier: Apache-2.0
"""The public API: what modules export, and its signatures in ``public_api.txt``."""

import difflib
import functools
from types import ModuleType

import pytest
from _public_api import GOLDEN, MODULES, OPTIONAL, UPDATE, api_lines, dali_modules

import torch_ndd as ndd
from torch_ndd._core.operators.operator import OPERATORS


@pytest.mark.parametrize("module", [*MODULES, *dali_modules()], ids=lambda module: module.__name__)
def test_modules_list_their_public_names(module: ModuleType) -> None:
    if not hasattr(module, "__all__"):  # a folder of modules
        assert not [name for name, value in vars(module).items() if name[0] != "_" and not isinstance(value, ModuleType)]
        return
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
    with pytest.warns(DeprecationWarning, match=r"ReadError is deprecated; use readers\.BadSample"):
        assert ndd.readers.ReadError is ndd.readers.BadSample  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"Batch\.densified is deprecated; use Batch\.densify"):
        assert ndd.batch([[1], [2]]).densified().shape == [(1,), (1,)]
    with pytest.warns(DeprecationWarning, match=r"RNG\.moved_on is deprecated; compare RNG\.state_dict\(\) and call RNG\.advance\(\)"):
        assert ndd.random.RNG(seed=1).moved_on(0, 0, 1) is False


def test_the_api_is_the_recorded_one() -> None:
    for package in OPTIONAL:
        pytest.importorskip(package)
    changes = difflib.unified_diff(GOLDEN.read_text().splitlines(), list(api_lines()), "recorded", "current", lineterm="", n=0)
    report = "\n".join(changes)
    assert not report, f"the public API has changed; if that is intended, run `{UPDATE}` and add a line to CHANGELOG.md:\n{report}"
