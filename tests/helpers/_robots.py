# SPDX-License-Identifier: Apache-2.0
"""Small data sets in LeRobot's format: frames whose colors encode camera and frame."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _videos import HEIGHT, WIDTH, encode

RATE = 10
CAMERAS = ("observation.images.top", "observation.images.wrist")
LENGTHS = (7, 5, 8)
TASKS = ["pick the cube", "öffne die Tür"]


def frame_color(camera: int, index: int) -> list[int]:
    return [60 * camera + 30, 10 * index, 128]


def frames_of(camera: int, first: int, count: int) -> np.ndarray:
    frames = np.zeros((count, HEIGHT, WIDTH, 3), np.uint8)
    for k in range(count):
        frames[k] = frame_color(camera, first + k)
    return frames


def action_of(index: int) -> list[float]:
    return [index, index / 2, -index]


def describe(version: str, **changes: Any) -> dict[str, Any]:
    features: dict[str, Any] = {
        camera: {"dtype": "video", "shape": [HEIGHT, WIDTH, 3], "names": ["height", "width", "channels"]} for camera in CAMERAS
    }
    features["action"] = {"dtype": "float32", "shape": [3], "names": None}
    features["next.done"] = {"dtype": "bool", "shape": [1], "names": None}
    features["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
    features |= {name: {"dtype": "int64", "shape": [1], "names": None} for name in ("frame_index", "episode_index", "index", "task_index")}
    info = {"codebase_version": version, "fps": RATE, "chunks_size": 1000, "total_episodes": 3, "total_frames": sum(LENGTHS), "features": features}
    if version.startswith("v3"):
        info["data_path"] = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
        info["video_path"] = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    else:
        info["data_path"] = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
        info["video_path"] = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    return {**info, **changes}


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_table(path: Path, columns: dict[str, Any], **options: Any) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.table(columns), path, **options)


def frame_columns(episodes: tuple[int, ...]) -> dict[str, Any]:
    arrow = pytest.importorskip("pyarrow")
    begins = np.cumsum([0, *LENGTHS])
    rows = [(episode, frame, int(begins[episode]) + frame) for episode in episodes for frame in range(LENGTHS[episode])]
    return {
        "action": arrow.array([action_of(index) for _, _, index in rows], arrow.list_(arrow.float32(), 3)),
        "next.done": [frame == LENGTHS[episode] - 1 for episode, frame, _ in rows],
        "timestamp": arrow.array([frame / RATE for _, frame, _ in rows], arrow.float32()),
        "frame_index": [frame for _, frame, _ in rows],
        "episode_index": [episode for episode, _, _ in rows],
        "index": [index for _, _, index in rows],
        "task_index": [episode % 2 for episode, _, _ in rows],
    }


def episode_columns() -> dict[str, Any]:
    """Episodes 0 and 1 in the first files, episode 2 in the second ones."""
    begins = np.cumsum([0, *LENGTHS]).tolist()
    columns: dict[str, Any] = {
        "episode_index": [0, 1, 2],
        "tasks": [[TASKS[k % 2]] for k in range(3)],
        "length": list(LENGTHS),
        "dataset_from_index": begins[:-1],
        "dataset_to_index": begins[1:],
        "data/chunk_index": [0, 0, 0],
        "data/file_index": [0, 0, 1],
    }
    for camera in CAMERAS:
        columns[f"videos/{camera}/chunk_index"] = [0, 0, 0]
        columns[f"videos/{camera}/file_index"] = [0, 0, 1]
        columns[f"videos/{camera}/from_timestamp"] = [0.0, LENGTHS[0] / RATE, 0.0]
        columns[f"videos/{camera}/to_timestamp"] = [LENGTHS[0] / RATE, sum(LENGTHS[:2]) / RATE, LENGTHS[2] / RATE]
    return columns


def write_v3_meta(root: Path, info: dict[str, Any]) -> None:
    write_json(root / "meta/info.json", info)
    numbers = {"mean": [1.0, 2.0, 3.0], "std": [1.0, 1.0, 2.0], "q01": [0.0, 0.0, 0.0], "q99": [9.0, 9.0, 9.0], "count": [20]}
    camera = {"mean": [[[0.5]], [[0.25]], [[1.0]]], "std": [[[0.1]], [[0.1]], [[0.1]]]}
    write_json(root / "meta/stats.json", {"action": numbers, CAMERAS[0]: camera})
    write_table(root / "meta/tasks.parquet", {"task_index": [0, 1], "__index_level_0__": TASKS})


def write_v3(root: Path) -> Path:
    write_v3_meta(root, describe("v3.0"))
    write_table(root / "meta/episodes/chunk-000/file-000.parquet", episode_columns())
    for file, (episodes, first) in enumerate((((0, 1), 0), ((2,), sum(LENGTHS[:2])))):
        write_table(root / f"data/chunk-000/file-{file:03d}.parquet", frame_columns(episodes))
        for number, name in enumerate(CAMERAS):
            path = root / f"videos/{name}/chunk-000/file-{file:03d}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            count = sum(LENGTHS[episode] for episode in episodes)
            path.write_bytes(encode(frames_of(number, first, count), rate=RATE, extra_options={"g": "2"}).tobytes())
    return root


def image_of(camera: int, index: int) -> np.ndarray:
    """Return an image that no other frame has, of exact colors: PNG files lose nothing."""
    rows = np.random.default_rng(1000 * camera + index)
    return rows.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


def encode_png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def image_column(files: Sequence[bytes | None], paths: Sequence[str | None] | None = None) -> Any:
    """Return a column of images as Hugging Face datasets writes it."""
    arrow = pytest.importorskip("pyarrow")
    rows = [{"bytes": file, "path": path} for file, path in zip(files, paths or [None] * len(files), strict=True)]
    return arrow.array(rows, arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())]))


def describe_images(**changes: Any) -> dict[str, Any]:
    info = describe("v3.0")
    for camera in CAMERAS:
        info["features"][camera] = {**info["features"][camera], "dtype": "image", **changes}
    del info["video_path"]
    return info


def image_frame_columns(episodes: tuple[int, ...]) -> dict[str, Any]:
    columns = frame_columns(episodes)
    images = {name: image_column([encode_png(image_of(camera, k)) for k in columns["index"]]) for camera, name in enumerate(CAMERAS)}
    return columns | images


def write_v3_images(root: Path) -> Path:
    """Write a data set whose cameras are columns of images, in row groups of four frames."""
    write_v3_meta(root, describe_images())
    write_table(root / "meta/episodes/chunk-000/file-000.parquet", {name: v for name, v in episode_columns().items() if "videos/" not in name})
    for file, episodes in enumerate(((0, 1), (2,))):
        write_table(root / f"data/chunk-000/file-{file:03d}.parquet", image_frame_columns(episodes), row_group_size=4)
    return root


def write_v2(root: Path) -> Path:
    write_json(root / "meta/info.json", describe("v2.1"))
    (root / "meta/tasks.jsonl").write_text("".join(json.dumps({"task_index": k, "task": task}) + "\n" for k, task in enumerate(TASKS)))
    lines = [json.dumps({"episode_index": k, "tasks": [TASKS[k % 2]], "length": length}) for k, length in enumerate(LENGTHS)]
    (root / "meta/episodes.jsonl").write_text("\n".join(lines))
    stats = []
    for episode, length in enumerate(LENGTHS):
        write_table(root / f"data/chunk-000/episode_{episode:06d}.parquet", frame_columns((episode,)))
        first = sum(LENGTHS[:episode])
        actions = np.array([action_of(first + k) for k in range(length)])
        summary = {key: getattr(actions, key)(0).tolist() for key in ("mean", "std", "min", "max")}
        stats.append(json.dumps({"episode_index": episode, "stats": {"action": {**summary, "count": [length]}}}))
        for number, name in enumerate(CAMERAS):
            path = root / f"videos/chunk-000/{name}/episode_{episode:06d}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(frames_of(number, first, length), rate=RATE).tobytes())
    (root / "meta/episodes_stats.jsonl").write_text("\n".join(stats))
    return root
