# SPDX-License-Identifier: Apache-2.0
"""Automatic augmentation of images in pipelines: AutoAugment, RandAugment, TrivialAugment, and the tools to build such policies.

They work on uint8 images ``HWC`` and videos ``FHWC`` and are used in definitions with ``enable_conditionals=True``. Policies of the augmentations in
``augmentations.py`` become one operation of the graph; those with custom augmentations become a tree of conditions.

This is DALI's spelling; :mod:`torch_ndd.augment` is the one for programs without pipelines.

>>> from torch_ndd.dali import fn, pipeline_def, types
>>> from torch_ndd.dali.auto_aug import rand_augment
>>> @pipeline_def(batch_size=4, enable_conditionals=True, seed=1)
... def images():
...     image = fn.constant(idata=[100], shape=[6, 8, 3], dtype=types.UINT8, layout="HWC")
...     return rand_augment.rand_augment(image, n=2, m=9)
>>> images().run()[0].shape()[0]
(6, 8, 3)
"""
