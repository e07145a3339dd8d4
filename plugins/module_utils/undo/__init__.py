# SPDX-License-Identifier: Apache-2.0
"""The way back: what stood on a node before nodectl changed it, recorded in one store and put back by one code."""
