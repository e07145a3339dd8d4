#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module without a program: python_lock.yml documents the action of this name, which needs no host."""
