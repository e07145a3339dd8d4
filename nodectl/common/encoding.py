"""In which encoding the locale of this process speaks, as the programs that it starts will see it."""

from __future__ import annotations

import locale

# it is there wherever a C library is of these years, and needs no package of languages
UTF_8 = "C.UTF-8"


def encoding() -> str:
    """Return the encoding of the environment's locale; empty where this machine has none of that name."""
    former = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "")
        return locale.nl_langinfo(locale.CODESET)
    except locale.Error:
        return ""
    finally:
        locale.setlocale(locale.LC_ALL, former)


def is_utf_8() -> bool:
    """Ansible starts in no other."""
    return encoding().upper().replace("-", "") == "UTF8"
