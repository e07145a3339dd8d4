# shellcheck shell=sh
# FOLDER VENV CUDA_HOME: one build for each version of the source; the one that `nodectl provision` made last counts

for each in "$3" /usr/local/cuda-*; do
  [ -x "$each/bin/nvcc" ] || continue
  printf 'cuda %s\n' "$("$each/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
done
own=
for each in "$2"/lib/python3*/site-packages/nvidia/nccl; do [ ! -e "$each/lib/libnccl.so.2" ] || own=$each; done
[ -z "$own" ] || printf 'own %s\n' "$(readlink -f "$own/lib/libnccl.so.2")"
sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) *\([0-9]*\).*/\2/p' "${own:-/usr}/include/nccl.h" 2>/dev/null |
  tr '\n' '.' | sed 's/^/headers /; s/\.$//'
echo
for note in "$1"/v*/nodectl-build.json; do
  [ -e "$note" ] || continue
  program=${note%/*}/all_reduce_perf
  [ -x "$program" ] || continue
  printf 'program %s\nnote %s\n' "$program" "$(tr -d '\n' <"$note")"
  printf 'library %s\n' "$(readlink -f "$(ldd "$program" | sed -n 's/.*libnccl\.so[^ ]* => \(\/[^ ]*\).*/\1/p')")"
  [ -e /dev/nvidia0 ] || continue
  said=$("$program" -b 8 -e 8 -g 1 -n 1 -w 1 2>&1)
  printf 'run %s %s\n' "$?" "$(printf '%s' "$said" | tr '\n' ' ')"
done
