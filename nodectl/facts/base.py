"""What a fact is: the commands it needs, the pure function that reads their outputs, and its words in the table."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_type_hints

from nodectl.common.counting import counted
from nodectl.common.few import clipped
from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import parser_of
from nodectl.facts.parsers.nvidia.words import reason_in
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.recording import Command, Entry, Recording

NOT_INSTALLED = 127
DEADLINE = 124
# exit status of our scripts where the kernel or the system has no such thing at all
NOT_THERE = 3
# what the collector says of a command for which a host's other commands left no time
NO_TIME = "no time left"
# and of a tool that printed more than is read
FLOOD = "printed too much"
# what the operator can do where only root may look
SUDOERS = "see `nodectl sudoers`"
_LONGEST_REASON = 400
# of each command's texts so many are kept with what was read of them
_KNOWN_TEXTS = 4
# no counter of a kernel has more digits
_WHOLE = re.compile(r"-?[0-9]{1,20}")

# `live`: what is compared with settings that only Ansible makes, asked of live hosts by `health` and verify;
# `verify`: what takes seconds, or runs a program of the stack, asked by verify alone
Occasion = Literal["always", "live", "verify"]

T = TypeVar("T")


class AbsentError(Exception):
    """The tool or device is not there: the subject has no values."""


class UnknownError(Exception):
    """It could not be read: whether it is there cannot be told."""


# before the reason of a denial that is no matter of the login's rights
AS_ROOT = "even as root"
_DENIED = re.compile("Permission denied|Operation not permitted|Insufficient Permissions|No Permission", re.IGNORECASE)


def is_denied(reason: str) -> bool:
    """Return whether the reason is one of rights: this login may not look, and another may."""
    return not reason.startswith(AS_ROOT) and (SUDOERS in reason or _DENIED.search(reason) is not None)


class UnrecordedError(UnknownError):
    """A recording has no answer of it: nobody asked the host."""


class HungError(UnknownError):
    """Its tool did not end in time, printed without end, or was not asked: the check `hung` says so once for all."""


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """One subject, registered by standing in a module of this folder under any name.

    `commands` is a tuple, or a function of the host where they depend on its variables. `words` is the line of
    `nodectl facts`, equal for hosts that an operator would call equal. `row` orders the lines, hundreds being groups
    of subjects. Where `quiet`, an absent subject has no line. `occasion` says who collects it. `about` describes it
    in the documents: where empty, the value's class does by its docstring (`reader` is annotated with it).
    """

    subject: str
    commands: tuple[Command, ...] | Callable[[Host], tuple[Command, ...]]
    read: Callable[[Recording], T]
    words: Callable[[T], str]
    row: int = 900
    quiet: bool = False
    occasion: Occasion = "always"
    about: str = ""
    reader: Callable[..., T] | None = None

    @property
    def description(self) -> str:
        """Return the sentence that the documents have for it."""
        if self.about:
            return self.about
        kind = get_type_hints(self.reader or self.read).get("return")
        return " ".join((kind.__doc__ or "").partition("\n\n")[0].split())

    def commands_on(self, host: Host) -> tuple[Command, ...]:
        """Return what the collector runs on `host`."""
        return self.commands if isinstance(self.commands, tuple) else self.commands(host)

    def line(self, value: T | Unread) -> str:
        """Return the value's words, or why there is none."""
        if isinstance(value, Unread):
            return "" if self.quiet and value.kind == "absent" else f"{value.kind}: {value.reason}"
        try:
            return self.words(value)
        except Exception as error:  # a mistake in one line of the table ends no other
            return f"unknown: not shown: {type(error).__name__}: {clipped(str(error), _LONGEST_REASON)}"


def read_fact(fact: Fact[T], recording: Recording) -> T | Unread:
    """Return the subject's value, or Unread with the reason; never an exception for what a host printed."""
    try:
        return fact.read(recording)
    except AbsentError as error:
        return Unread("absent", clipped(str(error), _LONGEST_REASON))
    except UnknownError as error:
        hung, unasked = isinstance(error, HungError), isinstance(error, UnrecordedError)
        return Unread("unknown", clipped(str(error), _LONGEST_REASON), hung=hung, garbled=unasked)
    except ParseError as error:
        return Unread("unknown", clipped(str(error), _LONGEST_REASON), garbled=True)
    except Exception as error:  # a number of no computer, a cell that is not there, braces nested without end
        return Unread("unknown", f"not understood: {clipped(str(error), _LONGEST_REASON)}", garbled=True)


@cache
def shell(name: str, **values: str) -> str:
    """Return a program of facts/shell/ for sh, without the comment at its head, and with `values` for `@NAME@`."""
    file = Path(__file__).with_name("shell") / f"{name}.sh"
    text = re.sub(r"\A(?:#.*\n)+\n*", "", file.read_text(encoding="utf-8"))
    return re.sub("@([a-z]+)@", lambda match: values[match[1]], text)


def script(key: str, text: str = "", *, hardware: bool = False, waits: bool = False) -> Command:
    """Return a program for sh, by default the key's, which exits with NOT_THERE where the host has no such thing."""
    return Command(key, ("sh", "-c", text or shell(key)), hardware=hardware, waits=waits)


def text_fact(
    subject: str,
    command: Command,
    parse: Callable[[str], T],
    describe: Callable[[T], str],
    *,
    absent: str = "",
    row: int = 900,
    occasion: Occasion = "always",
) -> Fact[T]:
    """Return the fact that `parse` makes of one command's output; absent where its script exits with NOT_THERE."""
    # hosts of one kind print most of them alike
    cached_parse = lru_cache(maxsize=_KNOWN_TEXTS)(parse)
    return Fact(
        subject,
        (command,),
        lambda recording: cached_parse(output(recording, command.key, absent)),
        describe,
        row,
        occasion=occasion,
        reader=parse,
    )


def entry(recording: Recording, key: str, *, in_part: bool = False) -> Entry:
    """Return the entry of a command that ran to its end; Absent if its tool is not installed, Unknown if it was cut.

    ParseError if it succeeded and its output ends within a line; not where it counts `in_part`.
    """
    output = recording.entries.get(key)
    if output is None:
        raise UnrecordedError(f"{key} is not in the recording")
    if output.exit_status == NOT_INSTALLED:
        # a program that is named by its path is another one than that of the same name in PATH
        path = output.argv[0] if output.argv and output.argv[0].startswith("/") else ""
        raise AbsentError(f"{path} is not there" if path else f"{tool(output)} is not installed")
    if output.exit_status == DEADLINE:
        raise HungError(NO_TIME if NO_TIME in output.stderr else hung(tool(output), flood=is_flood(output)))
    if is_flood(output):
        raise HungError(hung(tool(output), flood=True))
    if output.cut or output.exit_status is None:
        raise UnknownError(f"the output of {tool(output)} was cut")
    if output.exit_status == 0 and not in_part and ends_within_line(output.stdout):
        raise ParseError(f"the output of {tool(output)} is cut: it ends within a line")
    return output


def output(recording: Recording, key: str, absent: str = "") -> str:
    """Return the standard output of a command that succeeded; Absent for the reason `absent` if it exited NOT_THERE."""
    done = entry(recording, key)
    if absent and done.exit_status == NOT_THERE:
        raise AbsentError(absent)
    if done.exit_status != 0:
        complaint = reason_in(done.stderr.strip() or done.stdout)
        raise UnknownError(f"{tool(done)}: exit status {done.exit_status}: {complaint}")
    return done.stdout


def file_text(recording: Recording, key: str) -> str | None:
    """Return what `cat` shows of one file; None if there is no such file. Unknown if it cannot be read."""
    done = entry(recording, key, in_part=True)  # not each editor ends the last line
    if done.exit_status == 0:
        return done.stdout
    if "No such file" in done.stderr:
        return None
    raise UnknownError(f"{key}: {done.stderr.strip()}")


def output_of_root(recording: Recording, command: Command) -> str:
    """Return the output of a command that only root may run; Unknown where sudo refused."""
    program, recorded = command.argv[0], recording.entries.get(command.key)
    if recorded is not None and recorded.exit_status == NOT_INSTALLED:
        raise AbsentError(f"{program} is not installed")
    done = entry(recording, command.key)
    if done.exit_status != 0 and done.stderr.startswith("sudo:"):
        raise UnknownError(f"`{' '.join(command.argv)}` {refused(done)}")
    if done.exit_status != 0:
        raise UnknownError(f"{program}, run as root: {done.stderr.strip() or done.exit_status}")
    return done.stdout


def refused(done: Entry) -> str:
    """Return why sudo has not run it."""
    why = "is not installed" if "sudo: not installed" in done.stderr else "wants a password"
    return f"needs root, and sudo {why}: {SUDOERS}"


def parsed(recording: Recording, key: str, parser: Callable[[str], T], *, in_part: bool = False) -> T:
    """Return what `parser` reads of a command's output, and of what it printed before it failed."""
    done = entry(recording, key, in_part=in_part)
    if done.exit_status == 0 and not done.stdout.strip() and done.stderr.strip():
        raise ParseError(f"{tool(done)} printed only a complaint: {reason_in(done.stderr)}")
    # a tool that failed may have printed something before: a lost GPU ends nvidia-smi after the rows of the others
    text = whole_lines(done.stdout if done.stdout.strip() else output(recording, key))
    try:
        return parse(parser, text)
    except ParseError as error:
        if done.exit_status:  # the tool failed, and what it printed is why
            raise UnknownError(str(error)) from error
        raise


def whole_lines(text: str) -> str:
    """Return the text without a last line that no newline ends: of a tool that was stopped it is half a line."""
    return text[: text.rfind("\n") + 1] or text


def ends_within_line(text: str) -> bool:
    """No newline ends what there is."""
    return text != "" and not text.endswith("\n")


def parse(parser: Callable[[str], T], text: str) -> T:
    """Return `parser(text)`, read once for all facts that need it."""
    value: T = _remembered(parser, text)  # type: ignore[assignment]
    return value


@lru_cache(maxsize=32)
def _remembered(parser: Callable[[str], object], text: str) -> object:
    return parser(text)


def parsed_as(recording: Recording, tool_name: str, key: str | None = None) -> Any:
    """Return `parsed` by the parser of `nodectl parse`, which is imported only if there is text for it."""
    entry(recording, key or tool_name)
    return parsed(recording, key or tool_name, parser_of(tool_name))


def hung(name: str, *, flood: bool = False) -> str:
    """Return what is said of a tool that did not end in time, or printed without end."""
    return f"{name} {FLOOD}" if flood else f"{name} did not end in time"


def is_flood(done: Entry) -> bool:
    """Return whether the collector stopped reading its tool, or did not ask it for that."""
    return (done.cut or done.exit_status == DEADLINE) and f"{tool(done)} {FLOOD}" in done.stderr


def tool(done: Entry) -> str:
    """Return what the operator calls it: the program's name, not its path; of a script, its key."""
    name = done.argv[0].rpartition("/")[2] if done.argv else done.key
    return done.key if name in ("sh", "cat") else name


def variable(host: Host, name: str, default: str) -> str:
    """Return a text among the host's variables; `default` without one, or for a template, which Ansible renders."""
    value = host.variables.get(name)
    return value if isinstance(value, str) and value and "{{" not in value else default


def matches(pattern: re.Pattern[str], text: str, tool_name: str) -> Iterator[re.Match[str]]:
    """Each whole line as `pattern` reads it; ParseError with the first line that it does not fit."""
    for number, line in enumerate(text.splitlines(), start=1):
        match = pattern.fullmatch(line)
        if match is None:
            raise ParseError(f"{tool_name}: line {number}: {line[:200]!r}")
        yield match


def rows(text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Lines of our own scripts: cells between tabs, first those without a name, then `name=value`."""
    for line in text.splitlines():
        if line.strip():
            cells = line.split("\t")
            named = dict(cell.split("=", 1) for cell in cells if "=" in cell)
            yield [cell for cell in cells if "=" not in cell], {name: value for name, value in named.items() if value}


def whole(text: str | None) -> int | None:
    """Return a count; None if the script had none to show, or what is none."""
    if text == "0":  # as most counters are
        return 0
    return int(text) if text and _WHOLE.fullmatch(text) else None


def counts(**numbers: int | None) -> str:
    """Return `2 sockets, 1 zombie`; a question mark for None."""
    return ", ".join(f"? {name}s" if n is None else counted(n, name) for name, n in numbers.items())


def tally(counts: Counter[str]) -> str:
    """Return `8 x H100, 1 x A10`, the most frequent first; "" for none."""
    return ", ".join(f"{number} x {word}" for word, number in counts.most_common())


def gib(mib: int | None) -> str:
    """MiB as GiB; a question mark for None."""
    return "?" if mib is None else f"{mib / 1024:.1f} GiB"


def or_unknown(value: object) -> str:
    """Return a question mark for None."""
    return "?" if value is None else str(value)


def listed(names: Iterable[str], nothing: str = "none") -> str:
    """Return the names in their order, or `nothing`."""
    return ", ".join(sorted(names)) or nothing
