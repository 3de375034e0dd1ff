# SPDX-License-Identifier: Apache-2.0
"""A data set for workers that are spawned, which must be able to import it."""

import torch

import torch_ndd as ndd


class ThreadsOfAWorker(torch.utils.data.Dataset):
    """Reports the worker's number of threads, before and after its first work."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, k: int) -> list[int]:
        return [ndd.EvalContext.default().num_threads, int((ndd.batch([k]) + 1).torch()[0]), ndd.get_num_threads()]
