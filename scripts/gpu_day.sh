#!/usr/bin/env bash
# All that a machine with NVIDIA GPUs can say of nodectl, in nine minutes and without a network.
#
#   scripts/gpu_day.sh fill FOLDER         fill FOLDER (`make gpu-day`: .state/gpu-day), which is then carried there
#   bash FOLDER/gpu_day.sh                 run it there; results go into $OUT (default: FOLDER/out), eight files at most
#
# That machine needs Linux, bash, tar and the Python of PYTHON (default: python3; 3.11 to 3.13, x86_64 or aarch64 as
# filled) with torch. Nothing is written outside $OUT and $WORK (default: a
# new folder of /tmp, removed at the end).
# GPU_DAY_SECONDS (default: 520) bounds all of it: a step gets no more than what is left. GPU_DAY_SMALL=1 is the dry run.
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pythons=${GPU_DAY_PYTHONS:-3.11 3.12 3.13}
platforms='manylinux_2_28 manylinux_2_17 manylinux2014 manylinux_2_12 manylinux2010 manylinux1'
# not for one machine: statistics of trials, the installer, provisioning's accelerator
left_out='scipy|uv'

fill() {
    local folder=$1 root python arch platform args=()
    root=$(cd "$here/.." && pwd)
    arch=${GPU_DAY_ARCH:-x86_64}
    rm -rf "$folder"
    mkdir -p "$folder/wheels" "$folder/benchmarks"
    cp "$here/gpu_day.sh" "$folder/"
    cp "$root"/benchmarks/{gpu_truth,truth_gpu,llm_loop}.py "$folder/benchmarks/"
    "$root/.venv/bin/uv" build --quiet --wheel --out-dir "$folder/wheels" "$root" || return 1
    rm -f "$folder/wheels/.gitignore"
    "$root/.venv/bin/python" - "$root/pyproject.toml" "$left_out" > "$folder/requirements.txt" <<'PYTHON' || return 1
import re, sys, tomllib
with open(sys.argv[1], "rb") as file:
    wanted = tomllib.load(file)["project"]["dependencies"]
print(*(line for line in wanted if not re.match(rf"({sys.argv[2]})\b", line)), "py-spy>=0.4", "pip", sep="\n")
PYTHON
    for platform in $platforms; do args+=(--platform "${platform}_$arch"); done
    for python in $pythons; do
        python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version "$python" \
            "${args[@]}" --dest "$folder/wheels" --requirement "$folder/requirements.txt" || return 1
    done
    du -sh "$folder"
}

# step NAME SECONDS FILE COMMAND...: append what it prints to $OUT/FILE, and a line on how it ended to summary.txt
step() {
    local name=$1 seconds=$2 file=$3 started=$SECONDS left status
    shift 3
    left=$((limit - SECONDS - reserve))
    ((left < seconds)) && seconds=$left
    if ((seconds < 3)); then
        printf '%-12s  not run: no time is left\n' "$name" >> "$out/summary.txt"
        return
    fi
    printf '\n===== %s: %s\n' "$name" "$*" >> "$out/$file"
    timeout --kill-after=5 "$seconds" "$@" >> "$out/$file" 2>&1 < /dev/null
    status=$?
    printf '%-12s  exit %-3s  %3d s of %3d  %s\n' \
        "$name" "$status" "$((SECONDS - started))" "$seconds" "$(said "$status")" | tee -a "$out/summary.txt"
}

said() {
    case $1 in
        0) echo ok ;;
        124 | 137) echo 'ran out of time' ;;
        1) echo 'something is failed or wrong' ;;
        2) echo 'was refused' ;;
        3) echo 'something could not be told' ;;
        *) echo 'ended by an error' ;;
    esac
}

# an environment with this Python's own packages, torch among them, and nodectl's wheels; removed with $work
environment() {
    "$python" -m venv --without-pip "$work/venv" || return 1
    "$python" - "$work/venv" <<'PYTHON' || return 1
import importlib.util, pathlib, site, sys
venv = pathlib.Path(sys.argv[1])
(own,) = venv.glob("lib/python3*/site-packages")
spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    sys.exit(f"{sys.executable} has no torch: say PYTHON=... of one that has")
home = pathlib.Path(spec.origin).parents[1]
# nodectl looks for torch in the environment's own folder, without importing it
for part in (home / "torch", *home.glob("torch-*.dist-info")):
    (own / part.name).symlink_to(part)
folders = dict.fromkeys([str(home), *site.getsitepackages(), *[p for p in sys.path if p.endswith("-packages")]])
(own / "of_this_machine.pth").write_text("\n".join(folders) + "\n")
torchrun = venv / "bin/torchrun"
torchrun.write_text(f"#!{venv}/bin/python\nfrom torch.distributed.run import main\nmain()\n")
torchrun.chmod(0o755)
PYTHON
    # pip's wheel installs by itself, also where this Python has no pip
    local pip=("$work/venv/bin/python" "$(echo "$here"/wheels/pip-*.whl)/pip" --disable-pip-version-check)
    pip+=(install --quiet --no-index --ignore-installed)
    "${pip[@]}" --find-links "$here/wheels" --requirement "$here/requirements.txt" || return 1
    "${pip[@]}" --no-deps "$here"/wheels/nodectl-*.whl || return 1
    # gpu_truth reads the probes from beside itself
    cp -r "$here/benchmarks" "$work/"
    ln -s "$(echo "$work"/venv/lib/python3*/site-packages/nodectl)" "$work/nodectl"
}

run() {
    out=${OUT:-$here/out}
    python=${PYTHON:-python3}
    limit=${GPU_DAY_SECONDS:-520}
    # of packing at the end
    reserve=8
    mkdir -p "$out" || return 1
    work=${WORK:-$(mktemp -d /tmp/gpu-day.XXXXXX)}
    mkdir -p "$work/tmp" || return 1
    [ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT
    export XDG_STATE_HOME=$work/state XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config ANSIBLE_HOME=$work/ansible
    export TMPDIR=$work/tmp PYTHONUNBUFFERED=1 COLUMNS=160
    unset ANSIBLE_INVENTORY PYTHONDONTWRITEBYTECODE
    {
        date -u '+gpu day of %Y-%m-%d %H:%M:%S UTC'
        uname -srm
        (nvidia-smi -L || true) 2>&1 | head -n 16
    } > "$out/summary.txt"
    if ! environment > "$work/install.txt" 2>&1; then
        cat "$work/install.txt" | tee -a "$out/summary.txt" >&2
        return 1
    fi
    printf '%-12s  %s, %3d s\n' install "$("$work/venv/bin/python" -c \
        'import sys, torch; print("Python", sys.version.split()[0] + ", torch", torch.__version__)')" "$SECONDS" \
        >> "$out/summary.txt"
    export VIRTUAL_ENV=$work/venv PATH="$work/venv/bin:$PATH"
    local here_only=(nodectl --inventory localhost) model=(--steps 30) truth=(--rounds 2) level=() probe patience=45
    local probes=(gemm hbm h2d p2p 'nccl --scope node' 'gemm --mode bits' memory)
    # 0.2 billion weights: some GiB of a GPU
    ! nvidia-smi -L 2> /dev/null | grep -q '^GPU ' ||
        model=(--steps 100 --precision bf16 --hidden 1024 --heads 16 --intermediate 2752 --layers 16 --seq 1024)
    if [ -n "${GPU_DAY_SMALL:-}" ]; then
        model=(--steps 3) truth=(--device cpu --rounds 1 --only llm) probes=(memory) patience=12 level=(--dry-run)
    fi
    # what is seen, what is measured, and a job with its black box; the longest last, since it takes what is left
    step facts 30 look.txt "${here_only[@]}" facts
    step topology 30 look.txt "${here_only[@]}" topology
    step health 60 look.txt "${here_only[@]}" health --all
    step record 60 look.txt "${here_only[@]}" record --mask "$work/recording"
    for probe in "${probes[@]}"; do
        # shellcheck disable=SC2086 # a name and its options
        step "${probe%% *}" "$patience" probes.txt "${here_only[@]}" probe $probe --budget 20
    done
    step launch 110 job.txt "${here_only[@]}" launch --time-limit 100 workload:llm -- "${model[@]}"
    step why 20 job.txt "${here_only[@]}" jobs why
    step accept 120 accept.txt "${here_only[@]}" accept --level quick "${level[@]}"
    step gpu_truth 300 gpu_truth.txt python "$work/benchmarks/gpu_truth.py" "${truth[@]}"
    # the acceptance, the job's folder with its black box, and what the probes kept
    tar -C "$work" -czf "$out/kept.tar.gz" recording state 2>/dev/null
    printf '%-12s  %d s of %d\n' whole "$SECONDS" "$limit" | tee -a "$out/summary.txt"
    ! grep -q 'ended by an error' "$out/summary.txt"
}

case ${1:-} in
    fill) fill "${2:?usage: gpu_day.sh fill FOLDER}" ;;
    '') run ;;
    *) echo 'usage: gpu_day.sh [fill FOLDER]' >&2; exit 2 ;;
esac
