# SPDX-License-Identifier: Apache-2.0
"""Values, operators, contexts and pending work: the foundation of the public modules and the operators."""
