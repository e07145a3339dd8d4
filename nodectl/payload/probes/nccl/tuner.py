"""Asks a tuner plug-in of NCCL's, without NCCL or a GPU, what it makes of a file by collective and size.

The file comes by stdin.  The plug-in's forms are v5 and v6 (NCCL 2.30.7, src/include/plugin/tuner).
"""

import argparse
import ctypes
import os
import sys
import tempfile
from typing import Optional, Sequence

from ...common import program
from ...common.events import say

FUNCTIONS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
_COST = 1000.0
_PLACES = len(ALGORITHMS) * len(PROTOCOLS)
_Pointer, _Int, _Size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_Begin = ctypes.CFUNCTYPE(_Int, _Pointer, ctypes.c_uint64, _Size, _Size, _Pointer, _Pointer, _Pointer)
_Choose = ctypes.CFUNCTYPE(_Int, _Pointer, _Int, _Size, _Int, _Pointer, _Int, _Int, _Int, _Pointer)


def choose(options: argparse.Namespace) -> None:
    """Say algorithm, protocol and channels for each FUNCTION:BYTES; what it leaves to NCCL is null, and 0."""
    # as NCCL finds it
    is_file = "/" in options.plugin or options.plugin.endswith(".so")
    library = ctypes.CDLL(options.plugin if is_file else "libnccl-tuner-%s.so" % options.plugin)
    symbols = [name for name in ("ncclTunerPlugin_v6", "ncclTunerPlugin_v5") if hasattr(library, name)]
    if not symbols:
        raise RuntimeError("it has neither ncclTunerPlugin_v5 nor _v6")
    # its name, init and getCollInfo
    table = (_Pointer * 3).in_dll(library, symbols[0])
    context, constants = _Pointer(), ctypes.create_string_buffer(1 << 14)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(sys.stdin.read())
        file.flush()
        os.environ["NCCL_TUNER_CONFIG_FILE"] = file.name
        begun = _Begin(table[1] or 0)(
            ctypes.byref(context), 1, options.ranks, options.nodes, None, None, ctypes.byref(constants)
        )
    for place in options.places.split(",") if not begun else ():
        function, size_bytes = place.split(":")
        # NCCL hands over one block of numbers
        costs, channels = (ctypes.c_float * _PLACES)(*[_COST] * _PLACES), _Int()
        what = (context, FUNCTIONS.index(function), int(size_bytes), 1, ctypes.byref(costs))
        begun = _Choose(table[2] or 0)(*what, len(ALGORITHMS), len(PROTOCOLS), 0, ctypes.byref(channels))
        least = min(range(_PLACES), key=lambda at: costs[at])
        algorithm, protocol = divmod(least, len(PROTOCOLS))
        named = (None, None) if costs[least] == _COST else (ALGORITHMS[algorithm], PROTOCOLS[protocol])
        say(event="choice", place=place, choice=[*named, channels.value])
    if begun:
        raise RuntimeError("the plug-in answers with NCCL's error %d" % begun)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Return the exit status."""
    parser, (asked,) = program.commands(choose)
    for name, kind in (("--plugin", str), ("--places", str), ("--nodes", int), ("--ranks", int)):
        asked.add_argument(name, type=kind, required=True)
    return program.run(parser, argv)


if __name__ == "__main__":
    sys.exit(main())
