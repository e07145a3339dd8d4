"""What df is asked: the state folder's nearest parent that there is, also of a home that is not there."""

import os
import subprocess

import pytest

from nodectl.facts.storage import DISK_FACT, parse_df
from nodectl.model.host import Host


@pytest.mark.parametrize("home", ["/nonexistent", "/nonexistent/users/ada", "", "/"])
@pytest.mark.parametrize("state_home", [None, "/not-mounted/state", "not-absolute"])
def test_a_home_that_is_not_there_ends_the_search_at_the_root(home: str, state_home: str | None) -> None:
    command = next(each for each in DISK_FACT.commands_on(Host("gpu01", "gpu01")) if each.key == "df")
    environ = {"PATH": os.environ["PATH"], "HOME": home} | ({"XDG_STATE_HOME": state_home} if state_home else {})
    done = subprocess.run(command.argv, capture_output=True, text=True, check=False, timeout=60, env=environ)
    state, _, table = done.stdout.partition("\n")
    assert done.returncode == 0 and state.endswith("/nodectl")
    assert [row.mount for row in parse_df(table.partition("\nFilesystem")[0])][:1] == ["/"]
