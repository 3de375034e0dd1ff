# SPDX-License-Identifier: Apache-2.0
"""A pipeline as a transform of a PyTorch data set: worker processes collect its inputs, and it runs in the process of the training loop.

In a worker, ``server.proxy(sample)`` returns a reference. Collating the references of a batch packs the inputs of its samples, which the loader
carries to the main process with the rest of the batch. There the pipeline runs on them, in the order of the loader, and its outputs replace the
references.
"""

from ._refs import DALIOutputBatchRef, DALIOutputSampleRef, DALIPipelineRunRef
from ._server import DALIServer, DataLoader

__all__ = ["DALIOutputBatchRef", "DALIOutputSampleRef", "DALIPipelineRunRef", "DALIServer", "DataLoader"]
