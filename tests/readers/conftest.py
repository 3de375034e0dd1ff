# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from readers._web import serving

from torch_ndd.io import _urls


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of the files in ``tmp_path``."""
    with serving(tmp_path) as url:
        yield url


@pytest.fixture(params=["memory", "http"])
def put(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Stores files by name and returns the URL of their folder."""
    monkeypatch.setattr(_urls, "_PAUSE", 0.01)
    url = "memory://data" if request.param == "memory" else request.getfixturevalue("server")
    memory = fsspec.filesystem("memory")

    def store(files: dict[str, bytes]) -> str:
        for name, content in files.items():
            if request.param == "memory":
                memory.pipe_file(f"/data/{name}", content)
            else:
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_bytes(content)
        return url

    yield store
    if memory.exists("/data"):
        memory.rm("/data", recursive=True)
