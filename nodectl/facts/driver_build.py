"""What could keep an installed NVIDIA driver from being loaded: no module for this kernel, or Secure Boot."""

from dataclasses import dataclass

from nodectl.facts.base import Fact, output_unless_missing
from nodectl.model.recording import Command, Recording

_EFI = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# the newest tree of DKMS counts; a log of a build that failed is quoted by its last words
_SHOW = f"""\
kernel=$(uname -r) newest=
for tree in /var/lib/dkms/nvidia/[0-9]*; do [ ! -d "$tree" ] || newest=$tree; done
[ -z "$newest" ] && [ ! -e {_EFI} ] && exit 3
printf 'kernel\\t%s\\n' "$kernel"
[ ! -e {_EFI} ] || printf 'secure_boot\\t%s\\n' "$(tail -c 1 {_EFI} | od -An -tu1 | tr -d ' ')"
[ -n "$newest" ] || exit 0
printf 'dkms\\t%s\\n' "${{newest##*/}}"
set -- "$newest/$kernel"/*/module/*.ko*
if [ -e "$1" ]; then
  printf 'modules\\t%s\\n' "$#"
else
  for log in "$newest/build/make.log" "$newest/$kernel"/*/log/make.log; do
    [ ! -s "$log" ] || printf 'log\\t%s ends: %s\\n' "$log" "$(grep -v '^ *$' "$log" | tail -n 3 | tr '\\n' ' ')"
  done
fi
exit 0
"""


@dataclass(frozen=True, slots=True)
class DriverBuild:
    """`dkms` is the version that DKMS builds, empty without one; `modules` how many it built for the running `kernel`.

    `log` is the end of a build that failed.
    """

    kernel: str
    dkms: str
    modules: int
    log: str
    secure_boot: bool


def _read(recording: Recording) -> DriverBuild:
    text = output_unless_missing(recording, "driver-build", "neither DKMS nor EFI has anything to tell")
    lines = dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)
    modules = int(lines.get("modules", "0"))
    secure = lines.get("secure_boot") == "1"
    return DriverBuild(lines["kernel"], lines.get("dkms", ""), modules, lines.get("log", ""), secure)


def _words(build: DriverBuild) -> str:
    return f"DKMS {build.dkms or 'none'}, {build.modules} modules for {build.kernel}"


FACT = Fact(
    "driver_build",
    (Command("driver-build", ("sh", "-c", _SHOW), hardware=True),),
    _read,
    _words,
    row=604,
    occasion="live",
)
