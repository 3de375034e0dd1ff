# SPDX-License-Identifier: Apache-2.0
"""fn.readers.tfrecord against DALI: dicts of nodes, features of fixed and variable length, and defaults."""

import numpy as np
import pytest
from _pipelines import both, ours_raises, plain, sub
from readers._files import floats, ints, strings, write_tfrecord

import torch_ndd.dali as ours


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A file and its index; the features of every third record are missing."""
    examples: list[dict[str, bytes]] = []
    for k in range(8):
        example = {"text": strings(b"ab" * (k % 3 + 1)), "label": ints([k]), "box": floats([j / 2 for j in range(4 * (k % 2 + 1))])}
        examples.append({**example, "rare": ints([k + 100])} if k % 3 else example)
    path = write_tfrecord(tmp_path_factory.mktemp("records") / "a.tfrecord", examples)
    return str(path), str(path).replace(".tfrecord", ".idx")


def features(dali):
    result = sub(dali, "tfrecord")
    return {
        "text": result.FixedLenFeature([], result.string, ""),
        "label": result.FixedLenFeature([1], result.int64, -1),
        "box": result.VarLenFeature([4], result.float32, 0.0),
    }


@pytest.mark.parametrize("form", ["function", "class", "deprecated function", "deprecated class"])
def test_tfrecord_features_equal_dali(records, form):
    path, index = records

    def program(dali):
        pipe = dali.Pipeline(3, 1, None)
        with pipe:
            options = {"path": path, "index_path": index, "features": features(dali), "name": "Reader"}
            if form == "function":
                result = dali.fn.readers.tfrecord(**options)
            elif form == "class":
                result = dali.ops.readers.TFRecord(**options)()
            elif form == "deprecated function":
                result = dali.fn.tfrecord_reader(**options)
            else:
                result = dali.ops.TFRecordReader(**options)()
            pipe.set_outputs(result["label"], result["box"], result["text"])
        return [sorted(result), [plain(pipe.run()) for _ in range(4)], pipe.epoch_size("Reader")]

    both(program)


def test_absent_features_have_their_default(records):
    """DALI leaves the memory of fixed features as it is."""
    path, index = records
    from_file = ours.tfrecord

    @ours.pipeline_def(batch_size=8, num_threads=1)
    def define():
        wanted = {"rare": from_file.FixedLenFeature([1], from_file.int64, 7), "nothing": from_file.FixedLenFeature([], from_file.string, "none")}
        result = ours.fn.readers.tfrecord(path=path, index_path=index, features=wanted)
        return result["rare"], result["nothing"]

    rare, nothing = define().run()
    assert rare.as_array()[:, 0].tolist() == [100 + k if k % 3 else 7 for k in range(8)]
    assert [bytes(value) for value in map(np.asarray, (nothing.at(k) for k in range(8)))] == [b"none"] * 8


def test_names_of_the_module():
    both(lambda dali: [hasattr(sub(dali, "tfrecord"), name) for name in ("FixedLenFeature", "VarLenFeature", "float32", "int64", "string")])


def test_wrong_features(records):
    path, index = records

    def program(dali):
        pipe = dali.Pipeline(3, 1, None)
        with pipe:
            result = dali.fn.readers.tfrecord(path=path, index_path=index, features={"x": 3})
            pipe.set_outputs(*result.values())
        return pipe.run()

    ours_raises(program, TypeError, "must come from tfrecord.FixedLenFeature or VarLenFeature")
