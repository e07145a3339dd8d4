#!/bin/sh
# torchrun starts this in the place of Python (PYTHON_EXEC): the rank, profiled by Nsight Systems.
nsys=$NODECTL_NSYS options=$NODECTL_NSYS_OPTIONS
unset NODECTL_NSYS NODECTL_NSYS_OPTIONS PYTHON_EXEC
[ "$RANK" != 0 ] || options="$options --stats=true" # the tables of `nsys stats`, once, in the output of rank 0
python=$(command -v python || command -v python3) # of the environment, which the launch script puts in front
# shellcheck disable=SC2086 # several words, without blanks in them
exec "$nsys" profile $options --output="$NODECTL_JOB_DIR/traces/$RANK" "$python" "$@"
