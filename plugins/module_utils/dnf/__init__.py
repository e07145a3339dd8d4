# SPDX-License-Identifier: Apache-2.0
"""What rpm and dnf know of a node, and how dnf is called; behind the same words as `apt`."""
