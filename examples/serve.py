# SPDX-License-Identifier: Apache-2.0
"""Serve an image classifier: an ASGI application that puts the requests of some milliseconds into one batch.

    uvicorn serve:application                                  # POST an image file to /classify
    python examples/serve.py --requests 200 --clients 32       # a load test without a server: rate, latency, sizes of batches

A request is encoded image bytes of any format and size. A batch is decoded, resized, cropped and normalized by native threads, and the model runs on
it once. A damaged image is an error of its own request only.
"""

import argparse
import asyncio
import io
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import torch
from photos import write_photos
from PIL import Image

import torch_ndd as ndd

MAX_BODY_BYTES = 16 << 20
MAX_PIXELS = 64_000_000  # a small file may promise gigabytes
MAX_WAITING = 1024  # requests; further ones are told to come back


class BadImage(ValueError):
    """An image that cannot be decoded."""


class Busy(RuntimeError):
    """Too many requests are waiting."""


def preprocess(files: list[bytes]) -> torch.Tensor:
    """Return images (N, 3, 224, 224), float32, from encoded files."""
    images = ndd.decoders.image(files, max_pixels=MAX_PIXELS)
    images = ndd.resize(images, resize_shorter=256)
    mean, std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
    return ndd.crop_mirror_normalize(images, crop=[224, 224], mean=mean, std=std).torch()


class Batcher:
    """Classify images in batches: of those that wait, at most ``max_batch``, when the first has waited ``max_delay`` seconds or the batch is full."""

    def __init__(self, model: Callable[[torch.Tensor], torch.Tensor], max_batch: int = 32, max_delay: float = 0.002) -> None:
        self.model, self.max_batch, self.max_delay = model, max_batch, max_delay
        self.sizes: list[int] = []  # of the latest batches
        self._waiting: asyncio.Queue[tuple[bytes, asyncio.Future[torch.Tensor]]] = asyncio.Queue(MAX_WAITING)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    async def classify(self, file: bytes) -> torch.Tensor:
        """Return the scores of one image. Raise BadImage, or Busy."""
        try:
            ndd.peek_image_shape([file]).evaluate()  # what is not an image at all does not enter a batch
        except RuntimeError as error:
            raise BadImage(str(error)) from None
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # test clients start one for each request, and a queue belongs to the loop that waited for it
            self._loop, self._task, self._waiting = loop, None, asyncio.Queue(MAX_WAITING)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        result = loop.create_future()
        try:
            self._waiting.put_nowait((file, result))
        except asyncio.QueueFull:
            raise Busy("too many requests are waiting") from None
        return await result

    async def _run(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            deadline = time.monotonic() + self.max_delay
            while len(batch) < self.max_batch and (left := deadline - time.monotonic()) > 0:
                try:
                    batch.append(await asyncio.wait_for(self._waiting.get(), left))
                except TimeoutError:
                    break
            self.sizes = [*self.sizes[-999:], len(batch)]
            # On a thread, so the event loop keeps receiving requests; native threads and torch release the GIL.
            for (_, result), scores in zip(batch, await asyncio.to_thread(self._classify, [file for file, _ in batch]), strict=True):
                if result.cancelled():  # the client has gone
                    continue
                if isinstance(scores, Exception):
                    result.set_exception(scores)
                else:
                    result.set_result(scores)

    @torch.inference_mode()
    def _classify(self, files: list[bytes]) -> list[torch.Tensor | Exception]:
        try:
            return list(self.model(preprocess(files)).softmax(1))
        except Exception as error:
            if len(files) == 1:
                return [BadImage(str(error)) if isinstance(error, RuntimeError) else error]
            return [scores for file in files for scores in self._classify([file])]  # find the bad image


Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Application:
    """The ASGI application."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            # The first calls load codecs and choose algorithms; a server does it before the first request.
            await self._answer_lifespan(receive, send)
        elif scope["type"] == "http":
            status, content = await self._respond(scope, receive)
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
            await send({"type": "http.response.body", "body": json.dumps(content).encode()})

    async def _answer_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                Image.new("RGB", (640, 480)).save(file := io.BytesIO(), "JPEG")
                await self.batcher.classify(file.getvalue())
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _respond(self, scope: dict[str, Any], receive: Receive) -> tuple[int, dict[str, Any]]:
        if (scope["method"], scope["path"]) != ("POST", "/classify"):
            return 404, {"error": "POST an image to /classify"}
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return 400, {"error": "the client has disconnected"}
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > MAX_BODY_BYTES:
                return 413, {"error": f"the limit is {MAX_BODY_BYTES} bytes"}
        try:
            scores = await self.batcher.classify(bytes(body))
        except BadImage as error:
            return 400, {"error": str(error)}
        except Busy as error:
            return 503, {"error": str(error)}
        return 200, {"class": int(scores.argmax()), "probability": round(float(scores.max()), 6)}


def build_model() -> torch.nn.Module:
    """Return a small classifier of 10 classes with random weights, in place of yours."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 16, 7, 8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10)]
    return torch.nn.Sequential(*layers).eval()


application = Application(Batcher(build_model()))


async def request(app: Application, body: bytes) -> tuple[int, dict[str, Any]]:
    """Send an image to the application, as a server does."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": "/classify"}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def load_test(app: Application, files: list[bytes], requests: int, clients: int) -> list[float]:
    """Send requests from several clients at a time and return the seconds of each."""
    seconds: list[float] = []
    numbers = iter(range(requests))

    async def run_client() -> None:
        for number in numbers:
            begin = time.perf_counter()
            status, content = await request(app, files[number % len(files)])
            assert status == 200, content
            seconds.append(time.perf_counter() - begin)

    await asyncio.gather(*(run_client() for _ in range(clients)))
    return seconds


async def run_load_test(options: argparse.Namespace) -> None:
    app = Application(Batcher(build_model()))
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder), 16)
        files = [path.read_bytes() for path in sorted(Path(folder).rglob("*.jpg"))]
    await load_test(app, files, 2 * options.clients, options.clients)  # warm up
    begin = time.perf_counter()
    seconds = await load_test(app, files, options.requests, options.clients)
    rate = options.requests / (time.perf_counter() - begin)
    p50, p99 = statistics.median(seconds) * 1e3, sorted(seconds)[int(0.99 * len(seconds))] * 1e3
    print(f"{rate:.0f} requests per second, p50 {p50:.1f} ms, p99 {p99:.1f} ms, {statistics.mean(app.batcher.sizes):.1f} images per batch")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--clients", type=int, default=16, help="requests at a time")
    asyncio.run(run_load_test(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
