"""The articles' numbers: every one is a figure, a setting that lies where it says, or refused with a reason."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from nodectl.articles.claims import all_figures, article, articles, figures
from nodectl.articles.comparing import nearest
from nodectl.cli.root import cli
from nodectl.common.resources import share_dir
from nodectl.profiles.gpus import completed
from nodectl.profiles.load import read_profile
from nodectl.workloads.dynamic_batch import DOWN, UP

WORKLOADS = Path(__file__).parents[2] / "nodectl/workloads"
NUMBERS = yaml.safe_load((Path(__file__).parents[1] / "fixtures/articles/numbers.yml").read_text())


def scalars(value: Any) -> Iterator[Any]:
    """The single values in a tree of lists and mappings."""
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from scalars(part)
    else:
        yield value


def as_number(value: Any) -> Any:
    """A number where the text is one, so that 5e8 is 500000000."""
    try:
        return float(value)
    except ValueError:
        return value


@pytest.mark.parametrize("number", range(5))
def test_every_number_of_the_article_is_told_of(number: int) -> None:
    whole = article(number)
    held = [
        *(each.values for claim in whole.claims.values() for each in claim.rows),
        *(figure.conditions for figure in all_figures() if figure.article == number),
        *(setting.value for setting in whole.settings),
        *(refused.value for refused in whole.refused),
    ]
    known = {as_number(value) for value in scalars(held)}
    assert [value for value in NUMBERS[number] if as_number(value) not in known] == []


def settings() -> Iterable[tuple[int, str, Any, str]]:
    """(article, what, value, place) of each setting; the values of a list go with its places one by one."""
    for number, whole in articles().items():
        for setting in whole.settings:
            values = setting.value if isinstance(setting.value, tuple) else (setting.value,)
            paired = len(values) == len(setting.at)
            for index, place in enumerate(setting.at):
                for value in (values[index],) if paired else values:
                    yield number, setting.what, value, place


PROFILES = [each for each in settings() if each[3].split()[0] in ("hardware", "stack", "tuning")]


@pytest.mark.parametrize(("number", "what", "value", "place"), PROFILES)
def test_a_setting_lies_in_the_profile_that_is_named(number: int, what: str, value: Any, place: str) -> None:
    kind, name, path = place.split()
    document = read_profile(kind, name)[0]
    target: Any = completed(document) if kind == "hardware" else document
    for step in path.split("/"):
        target = target[int(step)] if isinstance(target, list) else target[step]
    if isinstance(target, dict):  # a range of versions
        low, high, asked = (tuple(map(int, str(each).split("."))) for each in (*target.values(), value))
        assert low <= asked <= high
    else:
        texts = [str(each) for each in scalars(target)]
        assert any(re.search(rf"(^|[^\d.]){re.escape(str(value))}($|[^\d])", text) for text in texts), (what, target)


def test_a_setting_of_a_template_lies_there() -> None:
    templates = [each for each in settings() if each[3].startswith("template ")]
    assert len(templates) == 3
    for _, what, value, place in templates:
        _, name, *variable = place.split()
        text = next((share_dir() / "roles").glob(f"*/templates/{name}")).read_text()
        assert f"{{{{ {variable[0]} }}}}" in text if variable else re.search(rf"\b{value}\b", text), what


def test_a_setting_of_the_code_is_a_constant_there() -> None:
    places = [each for each in settings() if each[3].startswith("code ")]
    assert len(places) >= 9
    for _, what, value, place in places:
        _, file, name = place.split()
        assert value in scalars(constants(Path(__file__).parents[2] / file)[name]), what


def constants(file: Path) -> dict[str, Any]:
    """The names of a module that are assigned a value as it is written."""
    given = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple):
            given.update({target.id: node.value for target in node.targets if isinstance(target, ast.Name)})
    return {name: ast.literal_eval(value) for name, value in given.items() if name.isupper() and name[0] != "_"}


PLACES = {"workload": 4, "option": 3, "default": 3}
OF_PROGRAMS = [each for each in settings() if each[3].split()[0] in PLACES]
# what each program makes of its arguments, for which it needs no torch
PARSE = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
import options
from workload import Workload
told = []
for program, arguments in json.load(sys.stdin):
    module = importlib.import_module(program)
    kinds = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Workload)]
    (kind,) = [each for each in kinds if each.__module__ == program]
    settings = options.parse(kind(), arguments)
    told.append({**vars(settings.own), **vars(settings)})
json.dump(told, sys.stdout, default=str)
"""


def test_a_setting_of_a_workload_is_what_its_program_takes() -> None:
    asked, expected = [], []
    for _, what, value, place in OF_PROGRAMS:
        kind, program, *rest = place.split()
        assert len(rest) + 2 == PLACES[kind], place
        option = rest[-1]
        if not (WORKLOADS / f"{program}.py").is_file():
            continue
        given = {
            "workload": [f"--preset={rest[0]}"],
            "option": [f"--{option.replace('_', '-')}={value}"],
            "default": [],
        }
        asked.append([program, given[kind]])
        expected.append((what, option, value))
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(WORKLOADS)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wrong = [
        (what, option, value, settings[option])
        for (what, option, value), settings in zip(expected, json.loads(done.stdout), strict=True)
        if as_number(settings[option]) != as_number(value)
    ]
    assert wrong == [] and len(expected) >= 20


def test_the_batch_follows_the_throughput_by_the_articles_rule() -> None:
    rules = [each for each in settings() if each[3] == "rule dynamic_batch"]
    assert [each[2] for each in rules] == [1 + UP, 1 - DOWN, 100 * UP, 2]


def test_what_measures_a_claim_is_a_command() -> None:
    for whole in articles().values():
        for claim in whole.claims.values():
            command: click.Command | None = cli
            for word in claim.measured_by.split():
                if word.startswith("-"):
                    assert command is not None
                    assert word in {name for parameter in command.params for name in parameter.opts}
                else:
                    assert isinstance(command, click.Group)
                    command = command.get_command(click.Context(command), word)
            assert command is not None, claim.measured_by


HERE = {
    "device": "NVIDIA GeForce RTX 4090",
    "nodes": 1,
    "workload": "llm",
    "preset": "article-4",
    "devices": 1,
    "batch": 4,
    "accumulation": 8,
    "parallel": "single",
}


def test_the_figure_with_the_nearest_conditions_is_found() -> None:
    table = figures(4, "scaling", "tokens_s")
    assert nearest(table, HERE).row == "1 GPU"
    assert nearest(table, HERE | {"devices": 2, "batch": 8, "accumulation": 4, "parallel": "ddp"}).row == "2 GPUs, DP"


@pytest.mark.parametrize(("name", "near"), [("NVIDIA A100-SXM4-80GB", True), ("NVIDIA A100-SXM4-40GB", False)])
def test_a_device_is_known_by_the_words_of_its_name(name: str, near: bool) -> None:
    (figure, *_) = figures(1, "two_clouds", "step")
    other = replace(figure, conditions={**figure.conditions, "device": "A100 40GB"}, row="other")
    assert (nearest([other, figure], {**figure.conditions, "device": name}).row == figure.row) is near
