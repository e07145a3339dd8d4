"""Lines of NCCL Inspector: composed ones in the form of its source (inspector_json.cc), and some that it wrote itself.

For those in `BUILT` its plug-in was built from NCCL's source of that version, and given events of collectives without a
GPU: the form is real, the bandwidths are not.
"""

from __future__ import annotations

COMM = "0x7f8c496ae9f661"
_METADATA = (
    '"metadata":{"inspector_output_format_version":"v4.0","git_rev":"standalone-build",'
    '"rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":1795857833651258,"hostname":"vm","pid":1377}'
)
_PERF = (
    '"coll_perf":{"coll":"AllGather","coll_sn":1,"coll_msg_size_bytes":67108864,"coll_exec_time_us":700,'
    '"coll_timing_source":"kernel_gpu","coll_algobw_gbs":383.479223,"coll_busbw_gbs":287.609417}'
)
BUILT = {
    "2.28.3": f'{{"header":{{"id":"0x7f8c496ae9f662","rank":0,"n_ranks":4,"nnodes":2}},{_METADATA},{_PERF}}}\n',
    "2.30.7": f'{{"header":{{"id":"0x7f8c496ae9f662","comm_name":"dp","rank":0,"n_ranks":4,"nnodes":2}},{_METADATA},'
    f"{_PERF}}}\n",
}


def line(
    *,
    rank: int = 0,
    ranks: int = 4,
    nodes: int = 2,
    number: int = 1407,
    kind: str = "AllReduce",
    size: int = 64 << 20,
    time_us: int = 700,
    busbw: float = 150.0,
    comm: str = COMM,
    p2p: bool = False,
    verbose: bool = False,
) -> str:
    """Return a line as jsonFileOutput writes it: no blanks, doubles by %lf."""
    what, peer = ("p2p", '"p2p_peer":1,') if p2p else ("coll", "")
    trace = f',"event_trace_sn":{{"{what}_start_sn":1,"kernel_events":[{{"channel_id":0}}]}}' if verbose else ""
    return (
        f'{{"header":{{"id":"{comm}","comm_name":"unknown","rank":{rank},"n_ranks":{ranks},"nnodes":{nodes}}},'
        '"metadata":{"inspector_output_format_version":"v4.0","git_rev":"5067397c",'
        '"rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":1752867229276385,"hostname":"gpu01","pid":438776},'
        f'"{what}_perf":{{"{what}":"{kind}","{what}_sn":{number},{peer}"{what}_msg_size_bytes":{size},'
        f'"{what}_exec_time_us":{time_us},"{what}_timing_source":"kernel_gpu","{what}_algobw_gbs":{busbw / 1.5:f},'
        f'"{what}_busbw_gbs":{busbw:f}{trace}}}}}\n'
    )
