# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of torch_ndd against the libraries that do the same work and are installed.

``python -m benchmarks main`` measures JPEG files -> training batches, ``ops`` every operator, ``unusual`` the same with unusual arguments,
``readers`` the readers and the image decoder alone, ``compiled`` chains of operators under torch.compile, ``training`` the loader beside a model.
``pip install .[bench]`` brings what the benchmarks need; DALI, OpenCV and torchvision take part when they are installed.

How it measures: every competitor has a process of its own; within one run they take turns, a short round each, so
a busy machine slows all of them alike; a figure is the median over the rounds, a ratio is the median of the ratios of
the same round.
"""
