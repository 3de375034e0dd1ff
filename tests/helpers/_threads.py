# SPDX-License-Identifier: Apache-2.0
"""The same work on several threads."""

import threading
from collections.abc import Callable
from typing import Any


def run_in_threads(work: Callable[[int], Any], count: int) -> list[Any]:
    """Return what ``work(k)`` returns on each of ``count`` threads, which begin at the same time. Raise the first error."""
    results: list[Any] = [None] * count
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(k: int) -> None:
        start.wait()
        try:
            results[k] = work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
