# shellcheck shell=sh
# NAME VERSION a line, of the wheels that decide what a job loads; then torch's own word on its build

printf 'venv %s\n' "$1"
[ -d "$1" ] || exit 0
printf 'python %s\n' "$(sed -n 's/^version\(_info\)\{0,1\} *= *//p' "$1/pyvenv.cfg" | head -n 1)"
for folder in "$1"/lib/python3*/site-packages/*.dist-info; do
  name=${folder##*/}; name=${name%.dist-info}
  case $name in
    torch-* | deepspeed-* | nvidia_nccl_* | nvidia_cudnn_* | nvidia_cuda_runtime*) printf 'wheel %s\n' "$name" ;;
  esac
done
for library in "$1"/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2; do
  [ ! -e "$library" ] || "$1/bin/python" -I -S -c "$2" "$library" 2>/dev/null
done
sed -n "s/^cuda.*= *'\(.*\)'.*/cuda \1/p; s/^cuda.*= *None.*/cuda None/p" \
  "$1"/lib/python3*/site-packages/torch/version.py 2>/dev/null
exit 0
