# SPDX-License-Identifier: Apache-2.0
"""The benchmarks on a GPU: ``python -m benchmarks ops | main | loads | hazards | compiled | graph | memory --device cuda``.

Times are those of the device, by CUDA events: a long kernel keeps the stream busy while the calls are issued, so what is measured is the work, not
the host. What a call costs the host is measured apart.
"""

from . import compiled as compiled
from . import graph as graph
from . import memory as memory
from . import ops as ops
