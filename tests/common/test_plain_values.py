"""Ansible's values as plain ones: a vaulted text as older ansible-core has it, and what JSON has not."""

from collections import UserString
from datetime import date

import pytest

from nodectl.common.bounded_json import plain_value


def test_a_text_of_another_kind_is_text() -> None:
    # as AnsibleVaultEncryptedUnicode: a sequence, no str
    value = plain_value({"NCCL_IB_TIMEOUT": UserString("22"), "list": [UserString("a"), 1, None]})
    assert value == {"NCCL_IB_TIMEOUT": "22", "list": ["a", 1, None]}
    assert type(value["NCCL_IB_TIMEOUT"]) is str


def test_what_json_has_not_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match="date is not a value of JSON"):
        plain_value({"since": date(2026, 1, 1)})
