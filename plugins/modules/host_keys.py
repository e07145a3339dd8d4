#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module without a program: host_keys.yml documents the action of this name, which needs no host."""
