"""Read by train.py with exec: a file of settings, then `--name=value` words, take the place of its globals."""

import sys
from ast import literal_eval
from pathlib import Path

for word in sys.argv[1:]:
    if not word.startswith("--"):
        exec(Path(word).read_text())  # noqa: S102 - such a file is Python, that is the point of it
        continue
    name, _, text = word[2:].partition("=")
    if name not in globals():
        raise ValueError(f"there is no setting {name}")
    try:
        value = literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if type(value) is not type(globals()[name]):
        raise ValueError(f"{name} is {globals()[name]!r}; {text!r} is of another type")
    globals()[name] = value
