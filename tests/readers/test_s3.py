# SPDX-License-Identifier: Apache-2.0
"""``s3://`` through s3fs, on moto's server."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from _videos import write
from readers.test_remote_sources import NAMES, ONE_FILE_EACH, SEVERAL, epoch, image, store_files, values
from torch.utils.data import DataLoader

import torch_ndd as ndd

moto = pytest.importorskip("moto.server")
pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    """Stores files in a folder of a bucket, and returns its URL."""
    patch = pytest.MonkeyPatch()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "name", "secret": "word"}
    patch.setitem(fsspec.config.conf, "s3", options)
    files = fsspec.filesystem("s3")
    files.mkdirs("bucket", exist_ok=True)  # of the module's turn before: the server's data are those of the process

    def put(folder: str, content: dict[str, bytes]) -> str:
        for name, value in content.items():
            files.pipe_file(f"bucket/{folder}/{name}", value)
        return f"s3://bucket/{folder}"

    yield put
    server.stop()
    patch.undo()


@pytest.mark.slow
@pytest.mark.parametrize("kind", list({**ONE_FILE_EACH, **SEVERAL}))
def test_readers_read_a_bucket(bucket: Any, kind: str) -> None:
    url, make = store_files(lambda content: bucket(kind, content), kind, NAMES)
    reader = make(url, NAMES, 2)
    found = values(reader)
    assert len(found) == 7
    reader.set_epoch(0)
    loader = DataLoader(reader, batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60)
    assert values(loader) == found
    assert values(make(url, NAMES, 2)) == found


@pytest.mark.parametrize("kind", list(ONE_FILE_EACH))
def test_a_missing_object(bucket: Any, kind: str) -> None:
    url, make = store_files(lambda content: bucket(f"{kind}-missing", content), kind, NAMES, missing=NAMES[2])
    with pytest.raises(RuntimeError, match=rf"readers\.{kind}: sample 2 \({url}/2\.dat\): .*no such file"):
        list(make(url, NAMES, 7).next_epoch())
    reader = make(url, NAMES, 2, on_error="skip")
    assert len(values(reader)) == 6
    assert [error.source for error in reader.errors] == [f"{url}/2.dat"]


def test_imread_reads_a_bucket(bucket: Any) -> None:
    url = bucket("images", {f"{k}.png": image(k) for k in range(3)})
    assert ndd.imread([f"{url}/{k}.png" for k in range(3)]).shape == [(3, 4 + k, 3) for k in range(3)]
    for missing in (f"{url}/none.png", "s3://no-bucket/none.png"):
        with pytest.raises(RuntimeError, match=rf'io\.file\.read: sample 0: "{missing}" cannot be read'):
            ndd.imread(missing)


def test_folders_of_a_bucket(bucket: Any, tmp_path: Path) -> None:
    write(tmp_path, counts=(9, 4, 6))
    url = bucket("videos", {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*.mp4")})
    assert epoch(ndd.readers.Video(file_root=url, sequence_length=3)) == epoch(ndd.readers.Video(file_root=tmp_path, sequence_length=3))
    ((files, labels),) = ndd.readers.File(file_root=url, file_filters=["*.mp4"]).next_epoch(3)
    assert (list(files.sources), labels.torch().flatten().tolist()) == ([f"{url}/{name}.mp4" for name in ("x/a", "x/b", "y/c")], [0, 0, 1])
