# SPDX-License-Identifier: Apache-2.0
"""The example of Triton's Python backend, on objects with that backend's documented interface."""

import importlib.util
import io
import json
import re
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT
from PIL import Image

FOLDER = ROOT / "examples" / "triton_server" / "preprocess"
PIXELS = np.random.default_rng(2).integers(0, 256, (5, 300, 280, 3), dtype=np.uint8)


class Tensor:
    def __init__(self, name: str, values: np.ndarray) -> None:
        assert isinstance(values, np.ndarray)
        self._name, self._values = name, values

    @staticmethod
    def from_dlpack(name: str, value: Any) -> "Tensor":
        # The backend takes a capsule, or an object with both methods, whose memory is contiguous.
        assert hasattr(value, "__dlpack__")
        assert hasattr(value, "__dlpack_device__")
        assert value.is_contiguous()
        return Tensor(name, torch.from_dlpack(value).numpy())

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._values


class TritonError:
    def __init__(self, message: str) -> None:
        self._message = message

    def message(self) -> str:
        return self._message


@dataclass
class Request:
    inputs: list[Tensor]


@dataclass
class Response:
    output_tensors: list[Tensor] = field(default_factory=list)
    error: TritonError | None = None


def get_input_tensor_by_name(request: Request, name: str) -> Tensor | None:
    return next((tensor for tensor in request.inputs if tensor.name() == name), None)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the loaded model of an instance on the CPU."""
    backend = SimpleNamespace(Tensor=Tensor, TritonError=TritonError, InferenceResponse=Response, get_input_tensor_by_name=get_input_tensor_by_name)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)  # type: ignore[arg-type]
    spec = importlib.util.spec_from_file_location("triton_model", FOLDER / "1" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    names = ("model_repository", "model_version", "model_name")
    kind = re.search(r"kind: KIND_(\w+)", (FOLDER / "config.pbtxt").read_text())
    assert kind is not None
    model.initialize(
        {"model_config": json.dumps({}), "model_instance_kind": kind[1], "model_instance_device_id": "0", **dict.fromkeys(names, "preprocess")}
    )
    return model


def encode(pixels: np.ndarray) -> bytes:
    Image.fromarray(pixels).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def request(*files: bytes) -> Request:
    # TYPE_STRING of shape [n, 1]: an array of objects.
    return Request([Tensor("IMAGE", np.array(files, dtype=np.object_).reshape(-1, 1))])


def test_each_request_gets_its_images(model: Any) -> None:
    files = [encode(pixels) for pixels in PIXELS]
    responses = model.execute([request(files[0]), request(*files[1:4]), request(files[4])])
    (dims,) = re.findall(r'"PIXELS".*dims: \[ (\d+), (\d+), (\d+) \]', (FOLDER / "config.pbtxt").read_text())
    shape = tuple(map(int, dims))
    values = []
    for response, count in zip(responses, (1, 3, 1), strict=True):
        assert response.error is None
        (tensor,) = response.output_tensors
        assert tensor.name() == "PIXELS"
        assert tensor.as_numpy().shape == (count, *shape)
        assert tensor.as_numpy().dtype == np.float32
        values.append(tensor.as_numpy())
    alone = [model.execute([request(file)])[0].output_tensors[0].as_numpy() for file in files]
    assert np.array_equal(np.concatenate(values), np.concatenate(alone))
    # The middle of the image, normalized.
    mean, std = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
    average = PIXELS[0].reshape(-1, 3).mean(0)
    assert np.allclose(alone[0][0].mean((1, 2)), (average - mean) / std, atol=0.05)


def test_damaged_image_fails_its_request_only(model: Any) -> None:
    good = encode(PIXELS[0])
    responses = model.execute([request(good), request(good, good[:200]), request(b"text"), request(good)])
    assert [response.error is None for response in responses] == [True, False, False, True]
    assert responses[1].output_tensors == []
    assert responses[1].error.message().startswith("image 1: ")
    assert "it is a text file" in responses[2].error.message()


def test_the_configuration_names_what_the_model_uses() -> None:
    config, code = (FOLDER / "config.pbtxt").read_text(), (FOLDER / "1" / "model.py").read_text()
    for name in re.findall(r'(?:input|output) \[ { name: "(\w+)"', config):
        assert f'"{name}"' in code
