# SPDX-License-Identifier: Apache-2.0
"""torch_ndd: data loading and augmentation, imperative, on PyTorch tensors."""

from torch import bfloat16 as bfloat16
from torch import bool as bool
from torch import float16 as float16
from torch import float32 as float32
from torch import float64 as float64
from torch import int8 as int8
from torch import int16 as int16
from torch import int32 as int32
from torch import int64 as int64
from torch import uint8 as uint8
from torch import uint16 as uint16
from torch import uint32 as uint32
from torch import uint64 as uint64

from . import decoders as decoders
from . import experimental as experimental
from . import random as random
from . import readers as readers
from . import reductions as reductions
from . import types as types
from ._batch import Batch as Batch
from ._batch import as_batch as as_batch
from ._batch import batch as batch
from ._device import Device as Device
from ._stream import EvalContext as EvalContext
from ._stream import EvalMode as EvalMode
from ._stream import get_num_threads as get_num_threads
from ._stream import set_num_threads as set_num_threads
from ._tensor import Tensor as Tensor
from ._tensor import as_tensor as as_tensor
from ._tensor import tensor as tensor
from .ops import arithmetic as _arithmetic  # noqa: F401  (the operators + - * /)
from .ops.color import brightness as brightness
from .ops.color import color_twist as color_twist
from .ops.crop import crop as crop
from .ops.crop import crop_mirror_normalize as crop_mirror_normalize
from .ops.filters import gaussian_blur as gaussian_blur
from .ops.flip import flip as flip
from .ops.frames import per_frame as per_frame
from .ops.generic import cast as cast
from .ops.resize import random_resized_crop as random_resized_crop
from .ops.resize import resize as resize
from .ops.warp import rotate as rotate
from .show import show as show
