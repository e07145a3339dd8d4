"""Field types that several profile models share: what a version, a key, a limit or a package name may look like."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict

from nodectl.profiles.nccl import version_key

_SYSCTL_KEY = re.compile(r"[a-z0-9_]+([./][A-Za-z0-9_:-]+)+\Z")
_LIMIT_VALUE = re.compile(r"(unlimited|[1-9][0-9]*)\Z")
_REQUIREMENT_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
# Debian policy 5.6.7 and 5.6.12
_APT_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+\Z")
_APT_VERSION = re.compile(r"([0-9]+:)?[0-9][A-Za-z0-9.+~-]*\Z")

Document = dict[str, Any]


class Strict(BaseModel):
    """Frozen; an unknown field is an error; a number may stand where text is meant."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class Setting(Strict):
    """A value with its reason; `origin` is where it came from, filled in by `resolve`."""

    why: str
    source: str = ""
    origin: str = ""


def sysctl_key(key: str) -> str:
    """`key`, if it can be one; ValueError if not."""
    if not _SYSCTL_KEY.match(key) or ".." in key:
        raise ValueError(f"{key!r} is no sysctl key such as net.ipv4.tcp_rmem")
    return key


def sysctl_value(value: str) -> str:
    """`value` with single spaces; ValueError where it is empty or more than a line."""
    if not value.strip() or not value.replace("\t", " ").isprintable():
        raise ValueError(f"{value!r}: a sysctl value is one line and not empty")
    return " ".join(value.split())


def limit_value(value: str) -> str:
    """`value`, if limits.conf takes it; ValueError if not."""
    if not _LIMIT_VALUE.match(value):
        raise ValueError(f"{value!r}: a limit is a positive whole number or 'unlimited'")
    return value


def version(value: str) -> str:
    """`value`, if it is a version, with a build such as +cu118 or without; ValueError if not."""
    version_key(value.partition("+")[0])
    return value


def requirement_name(name: str) -> str:
    """`name`, if a Python package can have it; ValueError if not."""
    if not _REQUIREMENT_NAME.match(name):
        raise ValueError(f"{name!r} is no package name")
    return name


def apt_name(name: str) -> str:
    """`name`, if a Debian package can have it; ValueError if not."""
    if not _APT_NAME.match(name):
        raise ValueError(f"{name!r} is no Debian package name")
    return name


def apt_version(value: str) -> str:
    """`value`, if a Debian package can have it; ValueError if not."""
    if not _APT_VERSION.match(value):
        raise ValueError(f"{value!r} is no Debian package version such as 8.6.0.163-1+cuda11.8")
    return value


Version = Annotated[str, AfterValidator(version)]
AptName = Annotated[str, AfterValidator(apt_name)]
AptVersion = Annotated[str, AfterValidator(apt_version)]
