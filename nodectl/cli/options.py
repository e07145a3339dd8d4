"""Options that commands share: types and helps that click lacks, and the global ones, which all commands take."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, dataclass_transform, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from nodectl.cli.app import App
from nodectl.common.resources import payload_dir
from nodectl.common.spelling import meant
from nodectl.errors import UsageError
from nodectl.transport.fanout import FORKS

_Command = TypeVar("_Command", bound=Callable[..., object])
_Group = TypeVar("_Group")
_MARK = "_takes_global_options"
_DECLARED = "declared"
# the programs that nodectl ships
WORKLOADS = tuple(
    name for name in ("resnet50", "llm", "transformer") if (payload_dir().parent / "workloads" / f"{name}.py").is_file()
)


_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME = re.compile(r"([-+]?[0-9.]{1,20}(?:e[-+]?[0-9]{1,3})?) ?(ms|s|m|h|)", re.IGNORECASE)


class Seconds(click.FloatRange):
    """A time in a range of seconds: `0.5`, `500ms`, `30s`, `5m`; NaN, which lies in every range of click's, is none."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the time in seconds."""
        time = _TIME.fullmatch(str(value).strip())
        try:
            number = float(time[1]) * _UNITS_S[time[2].lower()] if time else math.nan
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is not a time; write 0.5, 500ms, 30s or 5m", param, ctx)
        return float(super().convert(number, param, ctx))


class OneOf(click.Choice[str]):
    """One of a list of words; what is none is told the nearest one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return click's message, and the nearest choice."""
        return f"{super().get_invalid_choice_message(value, ctx)} {meant(str(value), self.choices)}".rstrip()


class Read(click.ParamType[Any]):
    """The value that `read` makes of a text; its ValueError says what is wrong with the text."""

    def __init__(self, read: Callable[[str], object], name: str = "text") -> None:
        self.read = read
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what `read` makes of the text."""
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def options(*decorators: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Several options as one decorator, shown in this order."""

    def decorate(command: _Command) -> _Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


# kinds of paths that options take
FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
EXISTING_PATH = click.Path(exists=True, path_type=Path)


def option(flags: str, about: str | None, *, default: Any = None, **settings: Any) -> Any:
    """Declare a field of an options class: the option, the name and the type of its value at one place.

    `flags` are separated by blanks, `about` is the help. The annotation says what click is told otherwise: `bool` is a
    flag, a tuple may be repeated, int and float are numbers. A default is shown in the help.
    """
    return field(default=default, metadata={_DECLARED: (click.option, flags.split(), {"help": about, **settings})})


def argument(default: Any = None, **settings: Any) -> Any:
    """Declare a field of an options class that is an argument of the command."""
    return field(default=default, metadata={_DECLARED: (click.argument, (), settings)})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option, argument))
def option_group(kind: type[_Group]) -> type[_Group]:
    """Make a class a frozen dataclass whose fields are options; a field whose type is such a class is a group in it."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


def takes(kind: type[Any]) -> Callable[[_Command], _Command]:
    """Give a command the options of a group as one value; it stands right above `click.pass_obj`."""

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def call(*args: object, **given: Any) -> object:
            return command(_filled(kind, given), *args, **given)

        return cast("_Command", options(*_declared_options(kind))(call))

    return decorate


def _filled(kind: type[Any], given: dict[str, Any]) -> Any:
    """Return the options' value; what it takes out of `given` is its fields and those of the groups in it."""
    hints = get_type_hints(kind)
    values = {
        one.name: given.pop(one.name) if _DECLARED in one.metadata else _filled(hints[one.name], given)
        for one in fields(kind)
    }
    return kind(**values)


def _declared_options(kind: type[Any]) -> Iterator[Callable[[Any], Any]]:
    hints = get_type_hints(kind)
    for one in fields(kind):
        if _DECLARED not in one.metadata:
            yield from _declared_options(hints[one.name])
            continue
        declare, flags, settings = one.metadata[_DECLARED]
        if one.default is not None:
            settings = {"default": one.default, **settings}
        if declare is click.option:
            shown = one.default not in (None, "") and not isinstance(one.default, bool)
            settings = {**_by_annotation(hints[one.name], settings), "show_default": shown, **settings}
        yield declare(*flags, one.name, **settings)


def _by_annotation(hint: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return click's settings that follow from a field's annotation, where they name no type themselves."""
    if "type" in settings:
        return {}
    plain = next((kind for kind in get_args(hint) if kind is not NoneType), None) if type(hint) is UnionType else hint
    if plain is bool:
        return {"is_flag": True}
    if get_origin(plain) is tuple:
        return {"multiple": True}
    return {"type": plain} if plain in (int, float) else {}


check_and_diff = options(
    click.option("--check", is_flag=True, help="Change nothing, and say what would change."),
    click.option("--diff", is_flag=True, help="Show what changes, line by line."),
)
over_others_option = click.option(
    "--force", is_flag=True, help="Continue on hosts that another nodectl uses, but never next to a job of nodectl."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask before hosts are changed.")
FORCE_HELP = "Continue on hosts that another nodectl or a process on a GPU uses, but never next to a job of nodectl."
force_option = click.option("--force", is_flag=True, help=FORCE_HELP)
WRITE_HELP = "Write the result into this file, in one step."
# the forms of a result that every command has, and those that some have
_COMMON_FORMS = ("table", "json")
_FORMS = (*_COMMON_FORMS, "junit", "prometheus")
# names → click's settings and the help line
_GLOBAL: dict[tuple[str, ...], dict[str, Any]] = {
    ("-i", "--inventory"): {
        "multiple": True,
        "type": click.Path(),
        "metavar": "INVENTORY",
        "help": "Any Ansible inventory; may be repeated.",
    },
    ("-l", "--limit"): {"metavar": "PATTERN", "help": "Ansible host pattern."},
    ("--replay",): {
        "metavar": "DIR",
        "type": click.Path(file_okay=False),
        "help": "Read a recording instead of hosts.",
    },
    ("--output",): {"type": OneOf(_FORMS), "metavar": "FORM", "help": "table (default), json, junit or prometheus."},
    ("--forks",): {"type": click.IntRange(1, 1024), "help": f"Hosts at a time.  Default: {FORKS}."},
    # Ansible's own, under the names of Access's fields
    ("-e", "--extra-vars"): {
        "multiple": True,
        "metavar": "VARS",
        "help": "KEY=VALUE, JSON or @FILE; may be repeated.",
    },
    ("--vault-id",): {"multiple": True, "metavar": "ID", "help": "LABEL@FILE or LABEL@prompt; may be repeated."},
    ("--vault-password-file", "--vault-pass-file"): {
        "multiple": True,
        "metavar": "FILE",
        "help": "Vault password file or program.",
    },
    ("-J", "--ask-vault-pass", "--ask-vault-password"): {"is_flag": True, "help": "Ask for the vault password."},
    ("-k", "--ask-pass"): {"is_flag": True, "help": "Ask for the SSH password."},
    ("-K", "--ask-become-pass"): {
        "is_flag": True,
        "help": "Ask for the sudo password.",
    },
    ("--private-key", "--key-file"): {
        "metavar": "FILE",
        "help": "SSH key, unless the inventory names one.",
    },
}
_ALSO = "Options of all commands stand here, too: nodectl --help."
# characters of a help line, far above any
_LONGEST = 400


def take_global_options(command: click.Command) -> click.Command:
    """Let `command`, and every command below it, take the global options that it does not declare; idempotent."""
    is_group = isinstance(command, click.Group)
    if isinstance(command, click.Group):
        for child in command.commands.values():
            # click would cut it at the width of a narrow terminal, where a help text wraps
            child.short_help = child.get_short_help_str(_LONGEST)
            take_global_options(child)
    if not getattr(command, _MARK, False):
        taken = {name for param in command.params for name in [*param.opts, *param.secondary_opts]}
        hidden = [names for names in _GLOBAL if not taken & set(names)]
        command.params.extend(_hidden(names, is_group=is_group) for names in hidden)
        command.epilog = "\n\n".join(filter(None, [_ALSO, command.epilog]))
        setattr(command, _MARK, True)
    return command


def _hidden(names: tuple[str, ...], *, is_group: bool) -> click.Option:
    """Return the option as a command takes it: the value goes to the App, and the command's help does not show it."""
    # its command has the form, or refuses it
    forms = {"type": OneOf(_COMMON_FORMS)} if "--output" in names and not is_group else {}
    return click.Option(
        names,
        **_GLOBAL[names] | forms,
        callback=_set_on_app,
        # another inventory brings other settings, which are the defaults of the options read after it
        is_eager="--inventory" in names,
        expose_value=False,
        hidden=True,
        # NODECTL_OUTPUT is the root's to read, not NODECTL_EXEC_OUTPUT a command's
        allow_from_autoenv=False,
    )


def output_option(*forms: str) -> Callable[[_Command], _Command]:
    """`--output` of a command whose result has other forms than a table and JSON alone; `App.output` has the value."""
    return click.option(
        "--output",
        type=OneOf(forms),
        callback=_set_on_app,
        expose_value=False,
        allow_from_autoenv=False,
        help=f"Default: {forms[0]}.",
        hidden=len(forms) == 1,
    )


def _set_on_app(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if ctx.resilient_parsing:
        return
    app, name = ctx.ensure_object(App), str(param.name)
    typed = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    # a command's settings do not overrule what was typed in front of it
    if typed or name not in app.given:
        app.take(name, value, typed=typed)
    path = ctx.command_path.split()[1:]
    if name == "inventory" and (typed or not path):
        app.read_settings()
        _take_settings(ctx, app)
    if name == "inventory" and path:
        ctx.default_map = app.named_settings(ctx.command, app.defaults_for(path), ".".join(path))
    elif name == "output" and path and isinstance(param.type, click.Choice):
        _settle_form(app, ctx, param.type.choices)


def _take_settings(ctx: click.Context, app: App) -> None:
    for param in (click.Option(names, **settings) for names, settings in _GLOBAL.items()):
        name = str(param.name)
        value = app.settings.get(name)
        if value is not None and name not in app.given:
            try:
                app.set(
                    name, param.type_cast_value(ctx, [value] if param.multiple and isinstance(value, str) else value)
                )
            except click.BadParameter as error:
                raise UsageError(f"{app.settings_path}: {name} = {value!r}: {error.message}") from None


def _settle_form(app: App, ctx: click.Context, forms: Sequence[str]) -> None:
    """Refuse a form that was typed and that the command does not have; one of settings holds if there is such."""
    if app.output in forms:
        return
    if "output" in app.typed or app.output not in _FORMS:
        there = f"its forms are {', '.join(forms)}" if len(forms) > 1 else "it prints text"
        raise click.UsageError(f"{ctx.command_path} has no --output {app.output}; {there}", ctx)
    app.output = forms[0]


# of a command that prints a text for people, or for one other program
text_option = output_option("table")

GLOBAL_NAMES = frozenset(str(click.Option(names).name) for names in _GLOBAL)
# of the root, whose settings and variables have the options' own names
global_options = options(
    *(
        click.option(*names, callback=_set_on_app, expose_value=False, is_eager="--inventory" in names, **settings)
        for names, settings in _GLOBAL.items()
    )
)
