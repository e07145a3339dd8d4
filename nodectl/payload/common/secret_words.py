"""Secrets by the words before them, `password=`, `//login:token@`, and by the shapes of well-known tokens."""

from __future__ import annotations

import re

# what a secret is called, and its value: quoted, or a word
_PRIVATE = (
    r"(?:pass(?:w(?:or)?d|phrase|code)?|pwd|pw|secret|token|credentials?|cookie|signature|t?otp"
    r"|(?:api|access|private|secret|auth|licen[cs]e|encryption|signing|master|account|shared|storage|session|pre-?shared"
    r"|munge|jwt|ssh|rsa|deploy|wandb|hf|ngc|aws)[ _-]?key"
    r"|auth(?:orization|entication)?|psk|pin)"
)
_VALUE = r"""("(?:[^"\\\n]|\\.){0,4000}"|'[^'\n]{0,4000}'|[^\s,;&"'<>]+)"""

_SECRETS = (
    re.compile(rf"(?i){_PRIVATE}[\"']?\s{{0,40}}[:=]\s{{0,4}}(?:(?:Basic|Bearer)\s)?{_VALUE}"),
    re.compile(rf"(?i)(?<!\S)--?[\w-]{{0,40}}{_PRIVATE}[ =]{_VALUE}"),
    re.compile(r"(?i)\bbearer\s+([\w.~+/=-]{8,})"),
    re.compile(r"(?<=//)([^/\s\"'<>@]{1,400})@"),
    re.compile(r"\b((?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abp]-|AKIA|eyJ)[\w.-]{12,})"),
)
# of a line of code: the value is computed; or there is none
_NO_SECRET = re.compile(r"[\"']?(?:none|null|true|false|\*+)?[\"']?\)?|[A-Za-z_][\w.]*[(\[].*", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Return a text with `***` in place of passwords and tokens."""
    for pattern in _SECRETS:
        text = pattern.sub(_starred, text)
    return text


def _starred(match: re.Match[str]) -> str:
    if _NO_SECRET.fullmatch(match[1]):
        return match[0]
    begin, end = (place - match.start() for place in match.span(1))
    quote = match[1][0] if match[1][0] in "\"'" else ""
    return f"{match[0][:begin]}{quote}***{quote}{match[0][end:]}"
