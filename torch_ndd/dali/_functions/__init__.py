# SPDX-License-Identifier: Apache-2.0
"""The functions of ``fn`` and the classes of ``ops``: their schemas, and the calls that add operations to a graph."""
