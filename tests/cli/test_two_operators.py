"""Two operators at one host: the second provision, rollback or tuning ends with who holds it."""

import json
import subprocess
import sys
from pathlib import Path

from nodectl.payload.common.frames import texts
from tests.conftest import Cli

HOLDER = "import sys\nfrom nodectl.payload.probes import locks\nsys.exit(locks.main(sys.argv[1:]))\n"


def test_the_second_ends_with_who_holds_it_and_nothing_is_run(nodectl: Cli, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("here ansible_connection=local\n")
    cli = Cli({**nodectl.env, "XDG_STATE_HOME": str(tmp_path)})
    argv = [sys.executable, "-c", HOLDER, "--token=ada", "--operator=ada@laptop", "--what=provision"]
    with subprocess.Popen(argv, env=dict(cli.env), stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and json.loads(texts(holder.stdout.readline())[0])["event"] == "held"
        done = cli("-i", str(tmp_path / "hosts"), "--output", "json", "rollback", "--yes", check=False)
        holder.kill()
    document = json.loads(done.stdout)
    assert (done.returncode, document["hosts"]) == (1, {})
    (finding,) = document["findings"]
    assert "is held by ada@laptop for 'provision' since" in finding["actual"] and "--force" in finding["remedy"]
