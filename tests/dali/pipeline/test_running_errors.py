# SPDX-License-Identifier: Apache-2.0
"""Errors of running pipelines: when they come, and what they name."""

import numpy as np
import pytest
from _pipelines import both, define, numbers, ours_raises

import torch_ndd.dali as ours


def test_an_error_comes_with_its_iteration():
    """Good results issued before are delivered, and the iterations after it."""

    def program(dali):
        def define_graph():
            node = dali.fn.external_source(lambda i: np.full((2, 1), 2 - i, np.int32))
            return 10 // node

        pipe, found = define(dali, define_graph, 2, prefetch_queue_depth=3), []
        for _ in range(5):
            try:
                found.append(numbers(pipe.run()[0])[0])
            except ValueError:
                found.append("division")
        return found

    assert both(program) == [5, 10, "division", -10, -5]


def test_an_error_names_the_operator_and_its_lines(tmp_path):
    """The function, the line of the definition and the sample."""
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "bad.jpg").write_bytes(b"not an image")

    def helper(files):
        return ours.fn.decoders.image(files)  # the line of the error

    def define_graph():
        files, _ = ours.fn.readers.file(file_root=str(tmp_path))
        return helper(files)

    error = ours_raises(lambda dali: define(dali, define_graph).run(), RuntimeError, r"torch_ndd\.dali\.fn\.decoders\.image")
    text = str(error)
    assert "in helper" in text
    assert "return ours.fn.decoders.image(files)  # the line of the error" in text
    assert "in define_graph" in text
    assert "bad.jpg" in text
    assert "in test_an_error_names" not in text  # not part of the definition
    class_error = ours_raises(
        lambda dali: define(dali, lambda: dali.ops.decoders.Image()(dali.fn.readers.file(file_root=str(tmp_path))[0])).run(),
        RuntimeError,
        r"torch_ndd\.dali\.ops\.decoders\.Image",
    )
    assert "sample 0" in str(class_error)


def test_errors_of_pending_work_name_their_operator():
    """A failure of queued work, met by an operator after it."""

    def define_graph():
        node = ours.fn.external_source(lambda i: np.zeros((2, 3), np.int32))
        divided = 1 // node  # fails when computed
        return ours.fn.reductions.sum(divided + 1)

    text = str(ours_raises(lambda dali: define(dali, define_graph, 2).run(), ValueError, "zero"))
    assert "torch_ndd.dali.arithmetic //" in text
    assert "divided = 1 // node  # fails when computed" in text


def test_errors_of_sources_come_unchanged():
    """Good iterations first, then the source's own exception, then the next iteration."""

    class Own(Exception):
        pass

    def source(iteration):
        if iteration == 2:
            raise Own("mine")
        return np.full((2, 1), iteration, np.int32)

    pipe = define(ours, lambda: ours.fn.external_source(source), 2, prefetch_queue_depth=4)
    assert [numbers(pipe.run()[0])[0] for _ in range(2)] == [0, 1]
    with pytest.raises(Own, match=r"^mine$"):
        pipe.run()
    assert [numbers(pipe.run()[0])[0] for _ in range(2)] == [3, 4]
