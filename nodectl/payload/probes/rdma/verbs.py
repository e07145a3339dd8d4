"""RDMA ports as a user's program sees them, through libibverbs: a program of its own, for a sick device can hang it."""

import ctypes
import json
import os
from pathlib import Path
from typing import Any, Dict, Optional

INFINIBAND = Path("/sys/class/infiniband")
MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
# struct ibv_port_attr: state, max_mtu, active_mtu, then what is not needed here
PORT_ATTR_BYTES = 256


def ask_verbs() -> Optional[Dict[str, Any]]:
    """`device/port` → MTUs, or the error with which the device could not be opened; None without libibverbs."""
    try:
        verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
    except OSError:
        return None
    verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    verbs.ibv_get_device_name.restype = ctypes.c_char_p
    verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
    verbs.ibv_open_device.restype = ctypes.c_void_p
    verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
    verbs.ibv_query_port.argtypes = [ctypes.c_void_p, ctypes.c_uint8, ctypes.c_void_p]
    count = ctypes.c_int(0)
    listed = verbs.ibv_get_device_list(ctypes.byref(count))
    answers: Dict[str, Any] = {}
    for number in range(count.value if listed else 0):
        name = verbs.ibv_get_device_name(listed[number]).decode()
        numbers = sorted(int(path.name) for path in (INFINIBAND / name / "ports").glob("*"))
        ctypes.set_errno(0)
        context = verbs.ibv_open_device(listed[number])
        for port in numbers:
            if context:
                answers["%s/%d" % (name, port)] = attributes_of(verbs, context, port)
            else:
                answers["%s/%d" % (name, port)] = {"error": os.strerror(ctypes.get_errno() or 5)}
    return answers


def attributes_of(verbs: Any, context: int, port: int) -> Dict[str, Any]:
    """Return the MTUs of one port."""
    answer = ctypes.create_string_buffer(PORT_ATTR_BYTES)
    if verbs.ibv_query_port(context, port, answer):
        return {"error": "the port cannot be queried"}
    _, largest, active = ctypes.cast(answer, ctypes.POINTER(ctypes.c_int))[:3]
    return {"mtu": MTU_BYTES.get(active), "mtu_max": MTU_BYTES.get(largest)}


if __name__ == "__main__":
    print(json.dumps(ask_verbs()), flush=True)
