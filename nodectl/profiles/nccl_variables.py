"""The judge of NCCL's variables, which the role nccl_env has too, where no nodectl is beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nodectl.common.resources import node_module

_SHARED = node_module("nccl_variables")
MAX_CHARS: int = _SHARED.MAX_CHARS
variables: Callable[[], dict[str, Any]] = _SHARED.variables
variable: Callable[[str], Any] = _SHARED.variable
is_debug_variable: Callable[[str], bool] = _SHARED.is_debug_variable
why_no_name: Callable[[str], str] = _SHARED.why_no_name
why_no_text: Callable[[str], str] = _SHARED.why_no_text
why_no_value: Callable[[str, str], str] = _SHARED.why_no_value
asks_for_ib: Callable[[Mapping[str, str]], bool] = _SHARED.asks_for_ib
is_set: Callable[[Mapping[str, str], str], bool] = _SHARED.is_set
why_not_together: Callable[[Mapping[str, str]], str] = _SHARED.why_not_together
