#!/bin/sh
# torchrun starts this in the place of Python (PYTHON_EXEC): a rank that is killed when torchrun ends, however that ends.
exec "$NODECTL_PYTHON" -S -c '
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
os.execv(os.environ["NODECTL_PYTHON"], [os.environ["NODECTL_PYTHON"], *sys.argv[1:]])
' "$@"
