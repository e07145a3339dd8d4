"""ansible-lint without its syntax check, which starts ansible-playbook once for each playbook and each role.

One start checks the syntax of all playbooks, which import all roles; the Makefile has it beside this.
"""

from ansiblelint import runner
from ansiblelint.__main__ import _run_cli_entrypoint

if __name__ == "__main__":
    # where a later ansible-lint has it by another name, it checks the syntax itself
    setattr(runner.Runner, "_get_ansible_syntax_check_matches", lambda self, lintable, app: [])  # noqa: B010
    _run_cli_entrypoint()
