"""The commands by task, and for each of them examples that can be typed as they stand."""

from __future__ import annotations

from collections.abc import Iterable

import click

# heading → its commands, in the order in which one needs them
TASKS = {
    "First minute": ("doctor", "init", "hostkeys", "lab", "completion"),
    "Provision": ("provision", "rollback", "profile", "sudoers"),
    "Look": ("health", "facts", "topology", "exec", "record", "parse"),
    "Measure": ("probe", "accept", "bench"),
    "Tune": ("tune",),
    "Train": ("launch", "jobs", "export"),
    "Keep and show": ("ledger", "history", "report", "metrics", "notify"),
}
_OTHERS = "Others"

# a command's path → (what is typed, what that does)
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("nodectl doctor", "what is missing on this machine, and on the way to the hosts"),
        ("nodectl -i hosts.yml -l 'node[01-04]' health", "the inventory, and these of its hosts"),
        ("nodectl facts --output json", "options of all commands stand before or behind the command"),
    ),
    "accept": (
        ("nodectl accept", "everything once: on the first day"),
        ("nodectl accept --level quick -l node03", "some minutes: after a repair"),
        ("nodectl accept --dry-run", "the plan and its times, and nothing measured"),
    ),
    "bench claims": (("nodectl bench claims 4", "what the fourth article claims, and what was measured of it"),),
    "bench compare": (("nodectl bench compare plain.log tuned.log", "two runs, by their output"),),
    "bench modes": (("nodectl bench modes --steps 20", "the ways to share out a model, on these hosts"),),
    "bench network-sweep": (("nodectl bench network-sweep --budget 5m", "a step's time by the network's rate"),),
    "bench preprocess": (("nodectl bench preprocess --workers 1,2,4", "rows a second by the number of workers"),),
    "bench retrieval": (("nodectl bench retrieval --batch 1,32", "nearest neighbours over all hosts"),),
    "bench scaling": (("nodectl bench scaling --workload resnet50 --devices 1,2,4", "speed by the number of devices"),),
    "completion": (("nodectl completion bash", "the script; --help says where it goes"),),
    "doctor": (
        ("nodectl doctor", "what is not fine, and the command that mends it"),
        ("nodectl doctor -i hosts.yml --all", "also what is fine"),
        ("nodectl doctor -K", "sudo wants a password there, and has it"),
    ),
    "exec": (
        ("nodectl exec uptime", "on every host"),
        ("nodectl exec -l node02 -- sh -c 'dmesg | tail'", "a pipe needs a shell"),
    ),
    "export hostfile": (("nodectl export hostfile --format deepspeed", "for `deepspeed --hostfile`"),),
    "export kubernetes": (
        ("nodectl export kubernetes --image registry.local/train:1 /app/train.py -- --epochs 3", "a JobSet"),
    ),
    "export slurm": (("nodectl export slurm --nodes 4 train.py -- --epochs 3", "a script for sbatch"),),
    "facts": (
        ("nodectl facts", "a line a subject; hosts that are alike share it"),
        ("nodectl facts -l node01 --output json", "every value of one host"),
        ("nodectl --replay h100-8 facts", "of recorded hardware; no host is asked"),
    ),
    "health": (
        ("nodectl health", "what is not fine, folded into two screens"),
        ("nodectl health -l node03 --all", "each finding of a host, with its remedy"),
        ("nodectl health --watch 1m", "what changes"),
    ),
    "history drift": (("nodectl history drift", "what is slower than it was"),),
    "history export": (("nodectl history export tcp", "every measurement of that probe"),),
    "history list": (("nodectl history list", "the runs that are kept"),),
    "history show": (("nodectl history show 12 --all", "run 12, each path"),),
    "hostkeys accept": (
        ("nodectl hostkeys accept", "shows the fingerprints, and asks"),
        ("nodectl hostkeys accept -l node03 --replace", "node03 was installed anew"),
    ),
    "hostkeys show": (("nodectl hostkeys show", "the keys that the hosts show, and which are known"),),
    "init": (
        ("nodectl init fleet --kind rtx4090-3", "then edit fleet/hosts.yml: the names of your hosts"),
        ("nodectl init fleet --from 'node[01-03]'", "names as ~/.ssh/config or DNS has them"),
        ("nodectl -i old.ini init fleet --from all", "how they are reached comes from the other inventory"),
    ),
    "jobs attach": (("nodectl jobs attach last", "the output; Ctrl-C leaves the job running"),),
    "jobs clean": (("nodectl jobs clean", "what ended jobs have left on the hosts"),),
    "jobs list": (("nodectl jobs list", "the jobs that the hosts know"),),
    "jobs logs": (
        ("nodectl jobs logs --tail 20 --rank 5 last", "the end of one rank's output"),
        ("nodectl jobs logs -f last", "what comes, until the job ends"),
    ),
    "jobs show": (("nodectl jobs show last", "its hosts, ranks and attempts"),),
    "jobs stop": (("nodectl jobs stop last", "on all hosts"),),
    "jobs trace": (("nodectl jobs trace last --to traces", "the figures, and the traces for Perfetto"),),
    "jobs watch": (("nodectl jobs watch last", "its pace, and which rank the others wait for"),),
    "jobs why": (("nodectl jobs why", "why it died, or hangs"),),
    "lab down": (("nodectl lab down", "the lab `lab`, and all of it"),),
    "lab fault": (
        ("nodectl lab fault --list", "what can be broken, and which command finds it"),
        ("nodectl lab fault slow-link node02", "until `nodectl lab heal node02`"),
    ),
    "lab heal": (("nodectl lab heal", "every fault of every host"),),
    "lab rate": (("nodectl lab rate 1gbit", "of every link, each way"),),
    "lab status": (("nodectl lab status", "its hosts, links and faults"),),
    "lab up": (
        ("nodectl lab up -n 4 --rate 1gbit", "four hosts on a slow network"),
        ("nodectl lab up -n 3 --as rtx4090-3", "hosts that answer as recorded hardware does"),
    ),
    "launch": (
        ("nodectl launch train.py -- --epochs 3", "preflight, start, follow"),
        ("nodectl launch --dry-run train.py", "the plan, and nothing started"),
        ("nodectl launch --detach -m pkg.train -- --steps 8", "a module; prints the job's id"),
    ),
    "ledger bundle": (("nodectl ledger bundle node03 --into node03.tar.gz", "before a reset, for the vendor's form"),),
    "ledger cordon": (("nodectl ledger cordon node03 --reason 'fan of GPU 2'", "no job and no probe goes there"),),
    "ledger list": (("nodectl ledger list --parts", "hosts, and each GPU and NIC"),),
    "ledger return": (("nodectl ledger return node03", "after an acceptance that it passed"),),
    "ledger show": (("nodectl ledger show node03", "what happened to it, and to its parts"),),
    "metrics alerts": (("nodectl metrics alerts", "rules for Prometheus"),),
    "metrics dashboard": (("nodectl metrics dashboard", "JSON for Grafana"),),
    "metrics list": (("nodectl metrics list", "every metric, and which command writes it"),),
    "notify pending": (("nodectl notify pending", "messages that wait, or were given up, and why"),),
    "notify test": (("nodectl notify test --from-hosts -l node01 phone", "one, also from a host that tells of jobs"),),
    "parse": (
        ("nodectl parse nvidia-smi-q saved.txt", "the output of `nvidia-smi -q`, kept in a file"),
        ("nodectl parse nccl-tests -", "from standard input"),
    ),
    "probe": (
        ("nodectl probe", "what fits these hosts within two minutes"),
        ("nodectl probe tcp,memory -l 'node[01-02]'", "two probes on two hosts"),
        ("nodectl probe tcp --compare LAST", "against the latest that is kept"),
    ),
    "profile diff": (("nodectl profile diff cu118 cu121", "what differs"),),
    "profile learn": (("nodectl profile learn --name ours node01", "a hardware profile of what the host is"),),
    "profile list": (("nodectl profile list", "nodectl's own, and those beside the inventory"),),
    "profile show": (("nodectl profile show h100-8", "each value with its reason and its source"),),
    "profile validate": (
        ("nodectl profile validate --hardware rtx4090-3 --stack cu121 --tuning consumer-pcie", "do they fit"),
    ),
    "provision": (
        ("nodectl provision --check --diff", "what would change"),
        ("nodectl provision -K", "sudo wants a password on the hosts"),
        ("nodectl provision --tags kernel_settings -l node03", "one role, on one host"),
    ),
    "record": (("nodectl record ours --mask", "names, addresses and serial numbers made up"),),
    "report": (("nodectl report -o fleet.html", "asks the hosts, and takes what the history holds"),),
    "rollback": (
        ("nodectl rollback --check --diff", "what would change"),
        ("nodectl rollback --list", "the runs that the hosts hold records of"),
        ("nodectl rollback --to start", "as before nodectl's first change"),
    ),
    "sudoers": (("nodectl sudoers --user op --provision password", "for /etc/sudoers.d, after `visudo -cf`"),),
    "topology": (
        ("nodectl topology", "GPUs, NICs and links of each host"),
        ("nodectl topology --propose-env", "NCCL's variables that follow from it"),
    ),
    "tune apply": (("nodectl tune apply won.yml --check --diff", "what would change"),),
    "tune judge": (("nodectl tune judge series.json", "the verdicts on series that were measured elsewhere"),),
    "tune list": (("nodectl tune list", "the trials that are kept"),),
    "tune propose": (("nodectl tune propose last --write won.yml", "what won, as one more inventory"),),
    "tune rollback": (("nodectl tune rollback --check", "what would change"),),
    "tune show": (("nodectl tune show last", "what the latest trial measured and said"),),
    "tune trial": (
        ("nodectl tune trial --profiles stock,article-20g --probes tcp,latency", "A/B, then all is as it was"),
        ("nodectl tune trial --space space.yml --budget 20m", "search for what wins"),
    ),
}


def examples_of(path: str) -> tuple[tuple[str, str], ...]:
    """Return a command's examples; one probe's, which is found by being there, are those that fit every probe."""
    group, _, name = path.partition(" ")
    if group == "probe" and name:
        return (
            (f"nodectl probe {name}", "on all hosts of the inventory"),
            (f"nodectl probe {name} -l 'node[01-02]' --output json", "on two of them; every figure"),
        )
    return EXAMPLES.get(path, ())


def epilog(path: str) -> str:
    """Return the examples as the end of a help text; empty where there are none."""
    examples = examples_of(path)
    width = max((len(line) for line, _ in examples), default=0)
    lines = [f"  {line:<{width}}  {what}" for line, what in examples]
    return "\n".join(["\b", "Examples:", *lines]) if lines else ""


def with_examples(command: click.Command, path: str) -> click.Command:
    """Add examples to the end of the help of the command and of all below it, and return it; idempotent."""
    ending = epilog(path)
    if ending and ending not in (command.epilog or ""):
        command.epilog = "\n\n".join(filter(None, [command.epilog, ending]))
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            with_examples(child, f"{path} {name}")
    return command


def by_task(commands: Iterable[str]) -> dict[str, list[str]]:
    """Heading → those of the commands that belong there; what stands below none comes last."""
    there = set(commands)
    tasks = {heading: [name for name in names if name in there] for heading, names in TASKS.items()}
    others = sorted(there - {name for names in tasks.values() for name in names})
    return {heading: names for heading, names in {**tasks, _OTHERS: others}.items() if names}
