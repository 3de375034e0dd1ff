# SPDX-License-Identifier: Apache-2.0
"""Spectra, mel scales, decibels, resampling and masks of sound."""
