# SPDX-License-Identifier: Apache-2.0
"""A model of Triton's Python backend that decodes and prepares images: the requests that wait together are one batch."""

from typing import Any

import torch
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]  # Triton has it

import torch_ndd as ndd

MAX_PIXELS = 64_000_000  # a small file may promise gigabytes
BLACK = b"P6 1 1 255\n\0\0\0"  # the smallest image, as PPM


class TritonPythonModel:
    """Prepare images for a classifier, on the CPU or the GPU of the instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Take the device of this instance; Triton calls this once."""
        self.device = f"gpu:{args['model_instance_device_id']}" if args["model_instance_kind"] == "GPU" else "cpu"
        self._prepare([BLACK])  # loads the codecs, before the first request

    def _prepare(self, files: list[bytes]) -> tuple[torch.Tensor, dict[int, str]]:
        """Return images (N, 3, 224, 224), and why some of them are blank, by number."""
        images = ndd.decoders.image(files, device=self.device, max_pixels=MAX_PIXELS, on_error="replace")
        resized = ndd.resize(images, resize_shorter=256)
        mean, std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
        pixels = ndd.crop_mirror_normalize(resized, crop=[224, 224], mean=mean, std=std).torch()
        return pixels, {error.sample: error.reason for error in images.errors}

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return a response for each request, which has one image or, if its client sends batches, several."""
        parts = [pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().ravel().tolist() for request in requests]
        pixels, reasons = self._prepare([file for part in parts for file in part])
        responses, begin = [], 0
        for part in parts:
            numbers = range(begin, begin + len(part))
            bad = [f"image {k - begin}: {reasons[k]}" for k in numbers if k in reasons]
            if bad:  # a damaged image fails its own request only
                responses.append(pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError("; ".join(bad))))
            else:
                output = pb_utils.Tensor.from_dlpack("PIXELS", pixels[begin : numbers.stop])
                responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
            begin = numbers.stop
        return responses
