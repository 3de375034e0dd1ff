# SPDX-License-Identifier: Apache-2.0
"""Layouts that several operators take; the first one with the right number of dimensions is assumed where there is none."""

IMAGE_LAYOUTS = ("HWC", "FHWC", "DHWC")
