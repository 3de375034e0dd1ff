# SPDX-License-Identifier: Apache-2.0
"""Errors of the plugins for other frameworks."""


def import_error(framework: str) -> ImportError:
    """Return the error that importing the plugin of a framework raises."""
    return ImportError(
        f"torch_ndd.dali has no plugin for {framework}; use torch_ndd.dali.plugin.pytorch, whose tensors can be exchanged by DLPack, or use DALI"
    )
