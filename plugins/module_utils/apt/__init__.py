# SPDX-License-Identifier: Apache-2.0
"""apt and dpkg on a node: what they hold, what they would do, and how they are called."""
