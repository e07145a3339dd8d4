"""Access to hosts as an operator gives it to Ansible: extra variables, vault passwords, login and becoming root.

Each option means what it means to Ansible, to what nodectl reads itself and to the playbooks that it runs. A password
is asked for once a command, kept in memory, and handed to Ansible on its own prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SSH_PROMPT = r"^SSH password:\s*?$"
_BECOME_PROMPT = r"^BECOME password.*:\s*?$"
# where a vaulted value stays shut
VAULT_REMEDY = (
    "give the password that it was encrypted with: --vault-password-file, --vault-id, --ask-vault-pass or "
    "ANSIBLE_VAULT_PASSWORD_FILE"
)


def _option(default: Any) -> Any:
    return field(default=default, metadata={"option": True})


@dataclass(slots=True)
class Access:
    """Ansible's own options; `ask` shows a prompt and returns what was typed, unseen."""

    extra_vars: tuple[str, ...] = _option(())
    vault_id: tuple[str, ...] = _option(())
    vault_password_file: tuple[str, ...] = _option(())
    ask_vault_pass: bool = _option(False)
    ask_pass: bool = _option(False)
    ask_become_pass: bool = _option(False)
    private_key: str | None = _option(None)
    ask: Callable[[str], str] | None = None
    # the vault's secrets, once they were read: a second inventory of the same command asks for none again
    vault_secrets: list[Any] | None = None
    # the prompts of Ansible's that are answered with them
    vault_answers: dict[str, str] = field(default_factory=dict)
    _asked: dict[str, str] = field(default_factory=dict)

    @property
    def given_vars(self) -> tuple[str, ...]:
        """`extra_vars` as they are meant; to Ansible, JSON and @FILE after a blank are words that name nothing."""
        return tuple(text.strip() if text.strip()[:1] in ("{", "[", "@") else text for text in self.extra_vars)

    @property
    def private_key_file(self) -> str | None:
        """The key's path as Ansible has it: absolute."""
        return None if self.private_key is None else str(Path(self.private_key).expanduser().absolute())

    def connection_password(self) -> str | None:
        """Return what logs in where the inventory has no password; None if it was not to be asked for."""
        return self._password("SSH password") if self.ask_pass else None

    def become_password(self) -> str | None:
        """Return what sudo wants on the hosts; as Ansible has it, nothing typed means the password of the login."""
        if not self.ask_become_pass:
            return None
        return self._password("sudo password") or self.connection_password()

    def arguments(self) -> list[str]:
        """Return the options as ansible-playbook's."""
        arguments = [word for text in self.given_vars for word in ("--extra-vars", text)]
        arguments += [word for text in self.vault_id for word in ("--vault-id", text)]
        arguments += [word for path in self.vault_password_file for word in ("--vault-password-file", path)]
        arguments += ["--private-key", self.private_key_file] if self.private_key_file else []
        arguments += ["--ask-vault-pass"] * self.ask_vault_pass + ["--ask-pass"] * self.ask_pass
        return arguments + ["--ask-become-pass"] * self.ask_become_pass

    def answers(self) -> Mapping[str, str]:
        """Ansible's prompts, as patterns, and what is typed there."""
        asked = {_SSH_PROMPT: self.connection_password(), _BECOME_PROMPT: self.become_password()}
        return {**self.vault_answers, **{prompt: text for prompt, text in asked.items() if text is not None}}

    def answer_vault(self, prompt: str, password: str) -> None:
        """`password` was typed on Ansible's `prompt` here, and is on the next one."""
        self.vault_answers[rf"^{re.escape(prompt.rstrip(' :'))}:\s*?$"] = password

    def _password(self, prompt: str) -> str:
        if prompt not in self._asked:
            self._asked[prompt] = self.ask(prompt) if self.ask else ""
        return self._asked[prompt]
