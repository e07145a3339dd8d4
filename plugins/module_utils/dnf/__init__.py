# SPDX-License-Identifier: Apache-2.0
"""Packages of a node as rpm and dnf know them, and how dnf is called; behind the same words as `apt`."""
