"""Runs a program of this folder: `python3 run.py probes.tcp ARGUMENT…` calls `main` of probes/tcp.py.

The programs import each other relatively, as one package that is named as the folder is: on nodes by a hash.
"""

import importlib
import os
import sys

if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[0] = os.path.dirname(folder)
    # ssh sends the operator's language, and what tools say is read; a job's ranks keep what its user has
    if not sys.argv[1].startswith("jobs."):
        os.environ["LC_ALL"] = "C.UTF-8"
    # nvidia-smi of WSL2, of which a command over ssh does not know
    if os.path.isdir("/usr/lib/wsl/lib"):
        os.environ["PATH"] = os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/lib/wsl/lib"
    program = importlib.import_module("." + sys.argv[1], os.path.basename(folder))
    if not hasattr(program, "main"):
        sys.exit("%s is no program: it has no main(argv)" % program.__file__)
    sys.exit(program.main(sys.argv[2:]))
