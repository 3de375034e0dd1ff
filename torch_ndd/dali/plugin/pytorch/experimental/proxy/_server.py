# SPDX-License-Identifier: Apache-2.0
"""``DALIServer`` and ``DataLoader``."""

import copy
import os
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import data
from torch.utils.data import get_worker_info

from ....._inputs.sources import InputOperation
from .....pipeline import Pipeline
from ...torch_utils import to_torch_tensor
from ._refs import Call, DALIOutputBatchRef, DALIOutputSampleRef, DALIPipelineRunRef, Packed

# Batches that are issued before the training loop takes the current one: the pipeline works on the next batch while the loop uses this one.
_AHEAD = 1


class Proxy:
    """The transform of a data set. It may be sent to worker processes.

    A pipeline with one input is called with a sample; one with several, with a sample for each input by its name. The result is a reference, or a
    tuple of them, one for each output.
    """

    def __init__(self, names: Sequence[str], outputs: int) -> None:
        self._names, self._outputs = tuple(names), outputs
        self._calls = self._runs = 0
        self._latest: tuple[list[Call], DALIPipelineRunRef] | None = None  # of the latest batch: all outputs share it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return references to the outputs for one sample."""
        if args:
            if kwargs or len(args) != 1 or len(self._names) != 1:
                raise ValueError(f"DALI proxy takes one sample by position if the pipeline has one input; the inputs are {', '.join(self._names)}")
            kwargs = {self._names[0]: args[0]}
        if set(kwargs) != set(self._names):
            raise ValueError(f"DALI proxy takes the inputs {', '.join(self._names)}, got {', '.join(kwargs) or 'none'}")
        call = Call(kwargs)
        self._calls += 1
        references = tuple(DALIOutputSampleRef(self, call, k, self._calls - 1) for k in range(self._outputs))
        return references[0] if len(references) == 1 else references

    def find_run(self, calls: list[Call]) -> DALIPipelineRunRef:
        """Return the run of a batch of calls."""
        latest = self._latest
        if latest is None or len(latest[0]) != len(calls) or any(call is not other for call, other in zip(latest[0], calls, strict=True)):
            worker = get_worker_info()
            inputs = {name: Packed.of(name, [call.inputs[name] for call in calls]) for name in self._names}
            latest = calls, DALIPipelineRunRef((0 if worker is None else worker.id, self._runs), inputs)
            self._runs += 1
        self._latest = latest
        return latest[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None}


class DALIServer:
    """Run a pipeline on the samples that a data set in worker processes passes to :attr:`proxy`.

    The pipeline runs in this process, on the library's threads; there is nothing to start or to stop. Batches run in the order of the loader, so
    results do not depend on the number of workers.

    Args:
        pipeline: A pipeline with named external sources without a source. Its batch size must be at least that of the loader.
        deterministic: Has no effect: the order of the batches is always that of the loader.

    Raises:
        TypeError: not a pipeline.
        RuntimeError: a pipeline without such inputs.

    >>> import numpy as np
    >>> from torch.utils.data import default_collate
    >>> from torch_ndd.dali import fn, pipeline_def
    >>> @pipeline_def(batch_size=4, num_threads=1)
    ... def scaled():
    ...     return fn.external_source(name="value") * 10
    >>> with DALIServer(scaled()) as server:
    ...     batch = default_collate([(server.proxy(np.float32([k])), k) for k in range(3)])
    ...     server.produce_data(batch)
    [tensor([[ 0.],
            [10.],
            [20.]]), tensor([0, 1, 2])]
    """

    def __init__(self, pipeline: Pipeline, deterministic: bool = False) -> None:
        if not isinstance(pipeline, Pipeline):
            raise TypeError(f"DALIServer: pipeline must be a Pipeline, got {type(pipeline).__name__}")
        pipeline.build()
        names = [
            operation.name
            for operation in pipeline._graph.operations
            if isinstance(operation, InputOperation) and operation.group is None and operation.named
        ]
        if not names:
            raise RuntimeError("DALIServer: the pipeline needs an external source with a name and without a source")
        self._pipeline, self._deterministic = pipeline, deterministic
        self._proxy = Proxy(names, pipeline.num_outputs)
        self._issued: deque[DALIPipelineRunRef] = deque()  # runs whose outputs are still in the pipeline
        self._process = os.getpid()

    @property
    def proxy(self) -> Proxy:
        """The transform for the data set."""
        return self._proxy

    def start_thread(self) -> None:
        """Do nothing: the pipeline has its own threads."""

    def stop_thread(self) -> None:
        """Wait for the issued runs, and discard them."""
        while self._issued:
            self._take()

    def __enter__(self) -> "DALIServer":
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, tb: Any) -> None:
        self.stop_thread()

    def produce_data(self, obj: Any) -> Any:
        """Return the same object with the pipeline's outputs, torch tensors, in place of references to batches.

        Args:
            obj: A reference, or lists, tuples, dicts and other objects that hold references.

        Raises:
            RuntimeError: a sample's reference that was not collated, or outputs whose samples have different shapes.
            Exception: the error of the pipeline on this batch.
        """
        return _map_references(self._output, obj, {})

    def _output(self, reference: DALIOutputBatchRef) -> torch.Tensor:
        run = reference.pipe_run_ref
        self._issue(run)
        # Outputs come in the order of issue, so those of earlier runs are taken first.
        while run.outputs is None and run.error is None:
            self._take()
        if run.error is not None:
            raise run.error
        assert run.outputs is not None
        return run.outputs[reference.output_idx]

    def _issue_all(self, obj: Any) -> None:
        """Issue all batches that an object refers to."""

        def issue(reference: DALIOutputBatchRef) -> DALIOutputBatchRef:
            self._issue(reference.pipe_run_ref)
            return reference

        _map_references(issue, obj, {})

    def _issue(self, run: DALIPipelineRunRef) -> None:
        """Feed the pipeline a batch and issue its run, unless a loader has issued it ahead."""
        if run.outputs is not None or run.error is not None or run in self._issued:
            return
        if os.getpid() != self._process:
            raise RuntimeError("DALIServer: the pipeline runs in the process that created the server; worker processes use only its proxy")
        fed: list[Any] = []
        try:
            for name, packed in run.inputs.items():
                operation: Any = self._pipeline._graph.find(name)
                operation.feed(packed.batch())
                fed.append(operation)
        except Exception as error:
            # All inputs of a batch are fed, or none: otherwise the next batch would be mixed with this one.
            for operation in fed:
                operation._fed.pop()
            run.error = error
            return
        # The pipeline holds them now; a reference that stays alive must not keep them.
        run.inputs = {}
        self._issued.append(run)
        try:
            self._pipeline.schedule_run()
        except Exception as error:
            self._issued.pop()
            run.error = error

    def _take(self) -> None:
        """Take the outputs of the oldest run from the pipeline."""
        run = self._issued.popleft()
        try:
            try:
                outputs = self._pipeline.share_outputs()
            except StopIteration:  # not issued, because a batch before it failed
                self._pipeline.schedule_run()
                outputs = self._pipeline.share_outputs()
            run.outputs = tuple(to_torch_tensor(values, copy=False) for values in outputs)
            self._pipeline.release_outputs()
        except StopIteration:
            run.error = RuntimeError("DALIServer: the pipeline returned nothing for a batch; do not run it elsewhere")
        except Exception as error:
            run.error = error


# Values without references inside; they are not searched.
_PLAIN = (torch.Tensor, np.ndarray, np.generic, str, bytes, int, float, complex, type, types.ModuleType, types.FunctionType, type(None))


def _map_references(function: Any, obj: Any, seen: dict[int, Any]) -> Any:
    """Return a structure with ``function`` applied to all references to batches."""
    if isinstance(obj, DALIOutputBatchRef):
        return function(obj)
    if isinstance(obj, DALIOutputSampleRef):
        raise RuntimeError("DALIServer.produce_data: a reference to a sample must be collated to a batch first, with torch's default_collate")
    if isinstance(obj, _PLAIN) or id(obj) in seen:
        return seen.get(id(obj), obj)
    seen[id(obj)] = obj  # references to an object that is being mapped end here
    seen[id(obj)] = mapped = _map_parts(function, obj, seen)
    return mapped


def _map_parts(function: Any, obj: Any, seen: dict[int, Any]) -> Any:
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return type(obj)(*(_map_references(function, item, seen) for item in obj))
    if isinstance(obj, list | tuple):
        return type(obj)(_map_references(function, item, seen) for item in obj)  # type: ignore[call-arg]
    if isinstance(obj, Mapping):
        mapped = {key: _map_references(function, item, seen) for key, item in obj.items()}
        return mapped if type(obj) is dict else type(obj)(mapped)  # type: ignore[call-arg]
    if hasattr(obj, "__dict__"):
        # Copied only if something inside has changed, so other objects keep their identity.
        changed = {key: new for key, old in vars(obj).items() if (new := _map_references(function, old, seen)) is not old}
        if changed:
            obj = copy.copy(obj)
            for key, value in changed.items():
                object.__setattr__(obj, key, value)
    return obj


class DataLoader(data.DataLoader):
    """Iterate like ``torch.utils.data.DataLoader`` over a data set that uses a proxy, with the outputs of the pipeline in place of references.

    While the loop works on a batch, the pipeline runs on the next one.

    Args:
        dali_server: The server of the proxy.
        args, kwargs: Those of ``torch.utils.data.DataLoader``; ``num_workers`` may be 0.

    Raises:
        TypeError: not a DALIServer.
        Exception: the error of the data set or of the pipeline, when its batch is due.
    """

    def __init__(self, dali_server: DALIServer, *args: Any, **kwargs: Any) -> None:
        if not isinstance(dali_server, DALIServer):
            raise TypeError(f"proxy.DataLoader: dali_server must be a DALIServer, got {type(dali_server).__name__}")
        super().__init__(*args, **kwargs)
        self.dali_server = dali_server

    def ensure_server_listening(self) -> None:
        """Do nothing: a server needs no start."""

    def __iter__(self) -> Any:
        return _Loop(self.dali_server, super().__iter__())


class _Loop(Iterator[Any]):
    """One loop over a loader."""

    def __init__(self, server: DALIServer, batches: Iterator[Any]) -> None:
        self._server, self._batches = server, batches
        self._waiting: deque[tuple[Any, Exception | None]] = deque()  # batches in the pipeline, or the error of loading
        self._exhausted = False

    def __next__(self) -> Any:
        # Load and issue one batch ahead, so the pipeline works while the program does.
        while not self._exhausted and len(self._waiting) <= _AHEAD:
            try:
                batch = next(self._batches)
                self._server._issue_all(batch)
                self._waiting.append((batch, None))
            except StopIteration:
                self._exhausted = True
            except Exception as error:
                self._waiting.append((None, error))
                # Batches before the failed one are delivered first.
                break
        if not self._waiting:
            raise StopIteration
        batch, error = self._waiting.popleft()
        if error is not None:
            raise error
        return self._server.produce_data(batch)
