"""Recordings without what identifies machines and people, and copies that are other machines of the same kind."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nodectl.model.recording import Recording
from nodectl.recordings.pseudonyms import Pseudonyms
from nodectl.recordings.scan import Part, Words, host_names, serials, shapes, user_names

_ADDRESSES = {"ipv4", "ipv6"}


class Masker:
    """Pseudonyms for all hosts of a recording together."""

    def __init__(self, hosts: Sequence[str], users: Iterable[str] = ()) -> None:
        width = max(2, len(str(len(hosts))))
        self._hosts = {host: f"host{number:0{width}d}" for number, host in enumerate(hosts, 1)}
        self._words: dict[str, str] = {}
        for host in hosts:
            self._add_host(host, self._hosts[host])
        self._users = 0
        self._pseudonyms = Pseudonyms(secrets.token_bytes(32), {})
        self._add_users(set(users) - {"root"})
        self._finder = Words(self._words)

    def name_of(self, host: str) -> str:
        """What a host is called in the masked recording."""
        return self._hosts[host]

    def masked(self, recording: Recording) -> Recording:
        """The recording with pseudonyms everywhere: outputs, complaints and arguments alike."""
        texts = [text for each in recording.entries.values() for text in (each.stdout, each.stderr)]
        self._discover(recording.host, texts)
        self._finder = Words(self._words)
        entries = {
            key: replace(
                each,
                argv=tuple(self._text(word) for word in each.argv),
                stdout=self._text(each.stdout),
                stderr=self._text(each.stderr),
            )
            for key, each in recording.entries.items()
        }
        name = None if recording.recorded is None else self._text(recording.recorded)
        return replace(recording, host=self.name_of(recording.host), entries=entries, recorded=name)

    def _discover(self, host: str, texts: Iterable[str]) -> None:
        for text in texts:
            for serial in serials(text) - self._words.keys():
                self._words[serial] = self._pseudonyms.of("serial", serial)
            for name in sorted(host_names(text)):
                self._add_host(name, self._hosts[host])
            self._add_users(user_names(text))

    def _add_host(self, name: str, pseudonym: str) -> None:
        short, _, domain = name.partition(".")
        if len(short) < 2 or short.isdigit():  # a digit or a letter stands for too much else; addresses have a shape
            return
        self._words.setdefault(name, pseudonym)
        if domain:
            self._words.setdefault(short, pseudonym)
            self._words.setdefault(domain, "example")

    def _add_users(self, names: Iterable[str]) -> None:
        for name in sorted(set(names) - self._words.keys()):
            self._users += 1
            self._words[name] = f"user{self._users}"

    def _text(self, text: str) -> str:
        made = []
        for kind, value in shapes(text):
            if kind:
                made.append(self._pseudonyms.of(kind, value))
            else:
                made += [self._words[word] if of else word for of, word in self._finder.find(value)]
        return "".join(made)


@dataclass(frozen=True, slots=True)
class Template:
    """A host's texts with gaps where its identity stands; each filling is another machine of the same kind."""

    texts: Mapping[str, tuple[Part, ...]]
    names: frozenset[str]

    @classmethod
    def of(cls, texts: Mapping[str, str], host: str = "") -> Template:
        """Serial numbers, UUIDs, GUIDs, MAC addresses and the host's names are the gaps; all else stays."""
        known = {serial for text in texts.values() for serial in serials(text) if not _is_board(serial)}
        names = {name for text in texts.values() for name in host_names(text)} | {host}
        names = {name for name in names if len(name) > 1 and not name.isdigit()}
        finder = Words(known | names)
        return cls({key: tuple(_gaps(text, finder, names)) for key, text in texts.items()}, frozenset(names))

    def filled(self, name: str) -> dict[str, str]:
        """The texts of the machine `name`: always the same ones; those of `node7` and `node8` share no address."""
        counted = re.search(r"[0-9]{1,9}$", name)
        number = int(counted[0]) % 2**12 if counted else None
        made = Pseudonyms(hashlib.sha256(name.encode()).digest(), dict.fromkeys(self.names, name), number)
        return {
            key: "".join(made.of(kind, value) if kind else value for kind, value in parts)
            for key, parts in self.texts.items()
        }


def distinct(texts: Mapping[str, str], name: str, host: str = "") -> dict[str, str]:
    """The texts of `host` as the machine `name` of the same kind would have printed them."""
    return Template.of(texts, host).filled(name)


def _is_board(serial: str) -> bool:
    # a vendor's number of the kind of board: all hosts of a kind have the same
    return serial.startswith("MT_")


def _gaps(text: str, finder: Words, names: set[str]) -> Iterable[Part]:
    for kind, value in shapes(text):
        if kind in _ADDRESSES:
            yield "", value
        elif kind:
            yield kind, value
        else:
            for of, word in finder.find(value):
                yield ("" if not of else "word" if word in names else "serial"), word
