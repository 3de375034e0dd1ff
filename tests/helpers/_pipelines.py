# SPDX-License-Identifier: Apache-2.0
"""The same pipeline program under DALI and under torch_ndd.dali. A test module that calls :func:`both` is skipped where DALI is missing.

A program is a function of the module ``dali``, through which it reaches everything: ``dali.fn``, ``dali.types``, ``dali.pipeline_def``; a submodule
that the package does not import itself through :func:`sub`. It returns what is compared: outputs of ``run()``, arrays, numbers, text, in tuples
and lists.
"""

import importlib
import re
import signal
import threading
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from _raises import Raises, catch_error, type_of

import torch_ndd.dali as ours

Program = Callable[[Any], Any]


def real() -> ModuleType:
    """Return NVIDIA's package, or skip the test."""
    result = pytest.importorskip("nvidia.dali")
    for name in ("fn", "ops", "types", "math", "pipeline", "data_node", "tensors", "backend", "tfrecord"):
        importlib.import_module(f"nvidia.dali.{name}")
    return result


def sub(dali: ModuleType, name: str) -> ModuleType:
    """Return a submodule, ``sub(dali, "plugin.pytorch")``."""
    return importlib.import_module(f"{dali.__name__}.{name}")


def plain(value: Any) -> Any:
    """Return a result with arrays in place of tensors and tensor lists: ``[array, ...]`` for a list of samples, with its layout."""
    if hasattr(value, "as_cpu") and hasattr(value, "is_dense_tensor"):
        value = value.as_cpu()
        return {"samples": [np.array(value.at(k)) for k in range(len(value))], "layout": value.layout()}
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, tuple | list):
        return [plain(element) for element in value]
    if isinstance(value, dict):
        return {key: plain(value) for key, value in value.items()}
    if isinstance(value, type) and issubclass(value, Exception):
        return value
    if hasattr(value, "__array_interface__"):
        return np.array(value)
    return value


def run_quietly(program: Program, dali: ModuleType) -> Any:
    """Return the result of a program, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return plain(program(dali))


class _Hang(BaseException):
    """DALI does not return. Not an Exception, which the program might catch."""


def run_under_dali(program: Program, seconds: float = 60, attempts: int = 3) -> Any:
    """Return the result under DALI. A program that hangs is repeated: now and then DALI forks its workers while a lock is held."""
    dali = real()

    def interrupt(*_: object) -> None:
        raise _Hang

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        for _ in range(attempts):
            timer = threading.Timer(seconds, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
            timer.start()
            try:
                return run_quietly(program, dali)
            except _Hang:
                continue
            finally:
                timer.cancel()
    finally:
        signal.signal(signal.SIGUSR1, before)
    pytest.fail(f"DALI hangs: {attempts} times {seconds} s")


def both(program: Program, tolerance: float = 0, raises: Raises | None = None) -> Any:
    """Run a program under both packages and compare the results; return ours. ``tolerance`` is absolute, for floats and integers alike.

    With ``raises`` both must raise: DALI exactly this type, torch_ndd this type or a subclass, with a message of the pattern. Our error is returned.
    """
    if raises is not None:
        catch_error(lambda: run_under_dali(program), type_of(raises))
        return catch_error(lambda: run_quietly(program, ours), raises, exact=False)
    expected, result = run_under_dali(program), run_quietly(program, ours)
    equal(result, expected, tolerance)
    return result


def equal(got: Any, wanted: Any, tolerance: float = 0, where: str = "result") -> None:
    """Compare two results of :func:`plain`, with dtypes, shapes and layouts."""
    if isinstance(wanted, dict):
        assert isinstance(got, dict), f"{where}: {got!r:.200} is not a dict"
        assert list(got) == list(wanted), f"{where}: {list(got)} != {list(wanted)}"
        for key in wanted:
            equal(got[key], wanted[key], tolerance, f"{where}[{key!r}]")
    elif isinstance(wanted, list):
        assert isinstance(got, list), f"{where}: {got!r:.200} is not a list"
        assert len(got) == len(wanted), f"{where}: {len(got)} elements instead of {len(wanted)}: {got!r:.300} and {wanted!r:.300}"
        for k, (value, other) in enumerate(zip(got, wanted, strict=True)):
            equal(value, other, tolerance, f"{where}[{k}]")
    elif isinstance(wanted, np.ndarray):
        assert isinstance(got, np.ndarray), f"{where}: {got!r:.200} is not an array"
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), f"{where}: {got.dtype} {got.shape} instead of {wanted.dtype} {wanted.shape}"
        if wanted.dtype.kind in "fiu" and tolerance:
            np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=tolerance, err_msg=where)
        else:
            np.testing.assert_array_equal(got, wanted, err_msg=where)
    elif type(wanted).__module__.startswith("nvidia.dali"):  # enumerations, by their names
        assert str(got).rpartition(".")[2] == str(wanted).rpartition(".")[2] or got.name == wanted.name, f"{where}: {got!r} != {wanted!r}"
    else:
        assert got == wanted, f"{where}: {got!r} != {wanted!r}"


def ours_raises(program: Program, kind: type[Exception], match: str = "") -> Exception:
    """Run a program under torch_ndd.dali only, and return the error it must raise."""
    with pytest.raises(kind, match=match) as caught:
        program(ours)
    return caught.value


def show(value: object) -> str:
    """Return a name for a parameter of a test: without addresses, which differ between the processes of a run."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def full(value: float, n: int = 3, shape: tuple[int, ...] = (2,)) -> np.ndarray:
    """Return a batch of one value."""
    return np.full((n, *shape), value, np.float32)


def iterations(pipe: Any, count: int, raises: type[Exception] | tuple[()] = ()) -> list[Any]:
    """Return the outputs of each run; "stop" for an end of the epoch, after which the pipeline is reset; the class of an error of ``raises``."""
    log: list[Any] = []
    for _ in range(count):
        try:
            log.append(plain(pipe.run()))
        except StopIteration:
            log.append("stop")
            pipe.reset()
        except raises as error:
            log.append(type(error))
    return log


def define(dali: Any, function: Callable[[], Any], batch_size: int = 4, **more: Any) -> Any:
    """Return a pipeline of a definition."""
    return dali.pipeline_def(function)(batch_size=batch_size, **{"num_threads": 1, "device_id": None, **more})


def numbers(batch: Any) -> list[int]:
    """Return the first number of each sample of an output."""
    return [int(batch.at(k).ravel()[0]) for k in range(len(batch))]
