#!/bin/sh
# torchrun starts this in the place of Python (PYTHON_EXEC): the rank, profiled by Nsight Systems.
unset PYTHON_EXEC
PATH=$PATH:/usr/local/cuda/bin stats=false
[ "$RANK" != 0 ] || stats=true # the tables of `nsys stats`, once, in the output of rank 0
python=$(command -v python || command -v python3) # of the environment, which the launch script puts in front
mkdir -p "$NODECTL_JOB_DIR/traces"
exec nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true --stats=$stats \
  --output="$NODECTL_JOB_DIR/traces/$RANK" "$python" "$@"
