# SPDX-License-Identifier: Apache-2.0
"""Registration of our functions with ``torch.compile``, once torch's compiler is imported.

The decorators of ``torch.compiler`` import ``torch._dynamo``, which takes as long as torch itself, 1.5 s, also in programs that never compile.
Those of this module do the same when the program imports it.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])

_COMPILER = "torch._dynamo"
_deferred: list[Callable[[], Any]] = []


def allow_in_graph(function: F) -> F:
    """Let compiled graphs call a function without tracing it, like ``torch.compiler.allow_in_graph``.

    >>> allow_in_graph(twice := lambda x: 2 * x) is twice
    True
    """
    _run_when_imported(lambda: torch.compiler.allow_in_graph(function))
    return function


def assume_constant_result(function: F) -> F:
    """Call a function while a graph is traced, like ``torch.compiler.assume_constant_result``.

    >>> assume_constant_result(test := lambda: 1) is test
    True
    """
    _run_when_imported(lambda: torch.compiler.assume_constant_result(function))
    return function


def disable(function: F, reason: str) -> F:
    """Exclude a function, and what it calls, from compilation, like ``torch.compiler.disable``.

    >>> disable(lambda x: x + 1, "it is short")(2)
    3
    """
    # The function in a list, because the compiler may be imported after others have taken the wrapper.
    chosen: list[Callable[..., Any]] = [function]
    _run_when_imported(lambda: chosen.__setitem__(0, torch.compiler.disable(function, reason=reason)))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return chosen[0](*args, **kwargs)

    return call  # type: ignore[return-value]


def _run_when_imported(action: Callable[[], Any]) -> None:
    # The finder is there as long as the compiler is not imported.
    if _finder in sys.meta_path:
        _deferred.append(action)
    else:
        action()


class _Loader(Loader):
    """Runs the compiler's own loader, and then the deferred actions."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        # From here on functions are registered immediately.
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        while _deferred:
            _deferred.pop()()


class _Finder(MetaPathFinder):
    """Finds the compiler where the other finders do, and wraps its loader."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _COMPILER:
            return None
        # Only the loader is replaced, so the module's file, its cache and its package stay those of the ordinary import.
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


_finder = _Finder()
if _COMPILER not in sys.modules:
    sys.meta_path.insert(0, _finder)
