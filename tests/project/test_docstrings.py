# SPDX-License-Identifier: Apache-2.0
"""The examples in docstrings, except those of operators, which test_operators.py runs."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import torch_ndd as ndd
from torch_ndd._core.operators.operator import OPERATORS

# Modules that only raise ImportError.
REFUSED = tuple(f"torch_ndd.dali.plugin.{name}" for name in ("jax", "mxnet", "paddle", "tf"))
MODULES = sorted(m.name for m in pkgutil.walk_packages(ndd.__path__, "torch_ndd.") if not m.name.endswith(("__main__", "._C", *REFUSED)))
OF_OPERATORS = {(operator.body.__module__, operator.body.__name__) for operator in OPERATORS.values()}


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    report: list[str] = []
    threads = ndd.get_num_threads()
    names = {"torch": torch, "ndd": ndd, "batch": ndd.batch, "tensor": ndd.tensor}
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=names):
        if (name, example.name.rpartition(".")[2]) not in OF_OPERATORS:
            doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(example, out=report.append)
    ndd.set_num_threads(threads)
    assert not report, "".join(report)


def test_something_is_found() -> None:
    found = [e for name in MODULES for e in doctest.DocTestFinder().find(importlib.import_module(name)) if e.examples]
    assert len(found) > 20
