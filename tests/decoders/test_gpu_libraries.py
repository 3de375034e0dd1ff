# SPDX-License-Identifier: Apache-2.0
"""Which libraries of a GPU's codecs are loaded: none, wrong files, other versions, other interfaces."""

import warnings
from pathlib import Path
from typing import Any

import pytest
from _fake_libraries import VERSION, compile_library

from torch_ndd.decoders import _gpu_engines, _library
from torch_ndd.decoders._gpu_engines import Engine, MissingLibraryError, WrongLibraryError, check_version, open_engine
from torch_ndd.decoders._load_once import load_once

JPEG2000 = next(engine for engine in _gpu_engines.OPTIONAL if engine.name == "jpeg2000")
TIFF = next(engine for engine in _gpu_engines.OPTIONAL if engine.name == "tiff")


def rename_library(engine: Engine) -> Engine:
    """Return an engine whose library is not on this machine, whatever is installed."""
    return engine._replace(file=engine.file.replace(".so", "_of_a_test.so"))


def install(packages: Path, engine: Engine, source: str) -> Engine:
    fake = rename_library(engine)
    compile_library(packages / fake.folders[0] / fake.file, source)
    return fake


def write_version(engine: Engine, major: int, minor: int, status: int = 0) -> str:
    return VERSION.format(function=engine.version_function, major=major, minor=minor, status=status)


@pytest.mark.parametrize("engine", [JPEG2000, TIFF], ids=lambda engine: engine.name)
def test_a_missing_library_names_its_package(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(MissingLibraryError, match=f"is not installed: pip install {engine.package}"):
        open_engine(rename_library(engine), tmp_path)


@pytest.mark.parametrize(("engine", "version"), [(JPEG2000, (0, 9)), (JPEG2000, (0, 11)), (TIFF, (0, 8)), (TIFF, (0, 12))])
def test_known_versions_are_used(engine: Engine, version: tuple[int, int], tmp_path: Path) -> None:
    assert open_engine(install(tmp_path, engine, write_version(engine, *version)), tmp_path) == f"{version[0]}.{version[1]}"


@pytest.mark.parametrize(("engine", "version"), [(JPEG2000, (0, 8)), (JPEG2000, (1, 0)), (TIFF, (0, 7)), (TIFF, (2, 3))])
def test_other_versions_are_not_used(engine: Engine, version: tuple[int, int], tmp_path: Path) -> None:
    fake = install(tmp_path, engine, write_version(engine, *version))
    with pytest.raises(WrongLibraryError, match=rf"has version {version[0]}\.{version[1]}; needed is .*: pip install '{engine.package}>="):
        open_engine(fake, tmp_path)


def test_libraries_that_are_none(tmp_path: Path) -> None:
    other = install(tmp_path / "other", TIFF, 'extern "C" int something_else() { return 0; }')
    with pytest.raises(WrongLibraryError, match="has no function nvtiffGetProperty"):
        open_engine(other, tmp_path / "other")
    silent = install(tmp_path / "silent", TIFF, write_version(TIFF, 0, 8, status=3))
    with pytest.raises(WrongLibraryError, match="does not tell its version"):
        open_engine(silent, tmp_path / "silent")
    negative = install(tmp_path / "negative", TIFF, write_version(TIFF, -5, 8))
    with pytest.raises(WrongLibraryError, match="does not tell its version"):
        open_engine(negative, tmp_path / "negative")
    text = rename_library(TIFF)
    path = tmp_path / "text" / text.folders[0] / text.file
    path.parent.mkdir(parents=True)
    path.write_text("not a library")
    with pytest.raises(WrongLibraryError, match="cannot be loaded"):
        open_engine(text, tmp_path / "text")


def test_versions_are_compared_as_numbers() -> None:
    check_version("x", (0, 11), ((0, 9), (1, 0)), "p")
    with pytest.raises(WrongLibraryError, match=r"x has version 0\.11; needed is 0\.2 or later, below 0\.9"):
        check_version("x", (0, 11), ((0, 2), (0, 9)), "p")


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Let the engines be loaded from a folder of the test; return the extensions that are passed on."""
    passed: list[str] = []
    (tmp_path / "nvimgcodec").mkdir()
    nvjpeg = rename_library(_gpu_engines.JPEG)._replace(file="libnvjpeg_of_a_test.so")
    compile_library(tmp_path / "nvjpeg" / "lib" / nvjpeg.file, "")
    monkeypatch.setattr(_gpu_engines, "JPEG", nvjpeg)
    monkeypatch.setattr(_gpu_engines, "OPTIONAL", (rename_library(JPEG2000), rename_library(TIFF)))
    monkeypatch.setattr(_library, "folder", lambda: tmp_path / "nvimgcodec")
    monkeypatch.setattr(_library, "extension_paths", lambda folder, extensions: list(extensions))
    monkeypatch.setattr(_library, "load_extensions", lambda library, extensions: passed.extend(extensions))
    monkeypatch.setattr(_gpu_engines, "load", load_once(_gpu_engines.load.__wrapped__))
    return passed


def test_missing_libraries_cost_their_engine_only(loading: list[str], tmp_path: Path) -> None:
    install(tmp_path, TIFF, write_version(TIFF, 0, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _gpu_engines.load()
    assert loading == ["nvjpeg", "nvtiff"]


def test_a_wrong_version_is_reported_once(loading: list[str], tmp_path: Path) -> None:
    install(tmp_path, JPEG2000, write_version(JPEG2000, 0, 2))
    with pytest.warns(RuntimeWarning, match=r"the CPU decodes JPEG 2000 images: libnvjpeg2k_of_a_test.so.0 has version 0\.2"):
        _gpu_engines.load()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _gpu_engines.load()
    assert loading == ["nvjpeg"]


def test_nvjpeg_is_required(loading: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu_engines, "JPEG", _gpu_engines.JPEG._replace(file="libnvjpeg_of_no_package.so"))
    with pytest.raises(RuntimeError, match=r'device="gpu" needs nvJPEG: .* is not installed: pip install nvidia-nvjpeg'):
        _gpu_engines.load()
    assert loading == []


def test_installed_libraries_are_found() -> None:
    """The real ones, where they are installed: their versions need no GPU."""
    packages: Any = _library.folder().parent
    for engine in _gpu_engines.OPTIONAL:
        if list(packages.glob(f"{engine.folders[0]}/{engine.file}")):
            assert open_engine(engine, packages).startswith("0.")
