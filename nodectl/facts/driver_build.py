"""What keeps an installed NVIDIA driver from being loaded, now or after a reboot: a kernel without it, Secure Boot."""

from dataclasses import dataclass

from nodectl.facts.base import script, text_fact

_EFI = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# each tree of DKMS; the log of a build that failed is quoted by its last words. modules.dep is what modprobe goes by,
# whoever built the modules; a boot starts the newest kernel, as GRUB takes it
_SHOW = f"""\
dkms=/var/lib/dkms/nvidia
set -- "$dkms"/[0-9]*
with=$(grep -lE '/nvidia(-current|-tesla[0-9-]*)?[.]ko' /lib/modules/*/modules.dep 2>/dev/null)
[ ! -d "$1" ] && [ ! -e {_EFI} ] && [ -z "$with" ] && exit 3
read -r kernel </proc/sys/kernel/osrelease || kernel=$(uname -r)
printf 'kernel\\t%s\\n' "$kernel"
[ ! -e {_EFI} ] || printf 'secure_boot\\t%s\\n' "$(tail -c 1 {_EFI} | od -An -tu1 | tr -d ' ')"
for dep in $with; do
  dep=${{dep%/modules.dep}}
  printf 'module\t%s\n' "${{dep##*/}}"
done
[ -z "$with" ] || for image in $(printf '%s\n' /boot/vmlinuz-[1-9]* | sort -V); do
  [ ! -e "$image" ] || [ "$image" != "${{image%.old}}" ] || printf 'next\\t%s\\n' "${{image#/boot/vmlinuz-}}"
done
for tree in "$dkms"/[0-9]*; do
  [ -d "$tree" ] || continue
  set -- "$tree/$kernel"/*/module/*.ko*
  [ -e "$1" ] || set --
  end=
  for log in "$tree/build/make.log" "$tree/$kernel"/*/log/make.log; do
    [ $# -gt 0 ] || [ -n "$end" ] || [ ! -s "$log" ] ||
      end="$log ends: $(grep -v '^ *$' "$log" | tail -n 3 | tr '\\n\\t' '  ')"
  done
  printf 'dkms\\t%s\\t%s\\t%s\\n' "${{tree##*/}}" "$#" "$end"
done
exit 0
"""


@dataclass(frozen=True, slots=True)
class Tree:
    """A driver's `version` that DKMS builds, and how many `modules` it built for the running kernel.

    `log` is the end of a build that failed.
    """

    version: str
    modules: int
    log: str


@dataclass(frozen=True, slots=True)
class DriverBuild:
    """The running `kernel`, and what DKMS has of the driver: a tree for each version, also of drivers before.

    `with_module` are the kernels that have a module of the driver, whoever built it; `next_kernel` is the one that the
    next boot starts, empty where /boot has none (a container's kernel is its host's).
    """

    kernel: str
    trees: tuple[Tree, ...]
    secure_boot: bool
    with_module: tuple[str, ...] = ()
    next_kernel: str = ""


def _parse(text: str) -> DriverBuild:
    rows = [line.split("\t") for line in text.splitlines()]
    values = {row[0]: row[1] for row in rows if len(row) == 2}
    trees = tuple(Tree(row[1], int(row[2]), row[3]) for row in rows if len(row) == 4 and row[0] == "dkms")
    with_module = tuple(row[1] for row in rows if len(row) == 2 and row[0] == "module")
    return DriverBuild(values["kernel"], trees, values.get("secure_boot") == "1", with_module, values.get("next", ""))


def _words(build: DriverBuild) -> str:
    trees = ", ".join(f"DKMS {tree.version} with {tree.modules} modules" for tree in build.trees)
    after = f"; modules for {', '.join(build.with_module)}; the next boot starts {build.next_kernel}"
    return f"{trees or 'DKMS none'} for {build.kernel}{after if build.with_module and build.next_kernel else ''}"


FACT = text_fact(
    "driver_build",
    script("driver-build", _SHOW, hardware=True),
    _parse,
    _words,
    absent="neither DKMS nor EFI has anything to tell, and no kernel has a module of the driver",
    row=604,
    occasion="live",
)
