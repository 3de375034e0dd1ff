# SPDX-License-Identifier: Apache-2.0
"""Layouts accepted by several operators; an input without one gets the first that has its number of dimensions."""

IMAGE_LAYOUTS = ("HWC", "FHWC", "DHWC")
