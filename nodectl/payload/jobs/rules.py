"""What an exception's type and words mean: one table of rules, and whether it is a cause or the echo of another's end.

Nodes read it, as they choose what to tell each other and whether a restart can help; the controller reads it no more.
"""

from __future__ import annotations

import errno
import re
from typing import Any, Dict, List, NamedTuple, Optional, Pattern, Sequence, Tuple

from ..common.patterns import lazily

COMMUNICATION, TIMEOUT, SCRIPT = "communication", "collective_timeout", "script_error"

# what another rank's end, or its absence, makes of a healthy rank
_ECHO = lazily(
    r"gloo[/:]|ncclRemoteError|nccl(?:System|Internal)Error|DistBackendError|DistNetworkError|DistStoreError|TCPStore|"
    r"recvValue failed|sendBytes failed|watchdog caught collective|watchdog (?:got stuck|hang)|NCCL watchdog\b|"
    r"heartbeat monitor timed out|ProcessGroup(?:NCCL|Gloo)|NCCL communicator was aborted",
    re.IGNORECASE,
)
# the same, of any program: an echo only where torch's communication raised it
_CONNECTION = lazily(
    r"connection (?:closed|reset|refused|timed out|was closed|lost)|broken pipe|socket timeout|timed out waiting|"
    r"no route to host|network is unreachable|unhandled system error",
    re.IGNORECASE,
)
_TIMED_OUT = lazily(
    r"watchdog caught collective operation timeout|timed out waiting \d+ ?ms for|"
    r"ran for \d+ milliseconds before timing out|"
    r"failed to pass monitoredBarrier|wait timeout after \d+ ?ms|application timeout caused pair closure",
    re.IGNORECASE,
)
# what a message quotes is somebody else's word
_QUOTED = lazily(r'"[^"\n]{1,300}"')
_TORCH_DISTRIBUTED = lazily(r"torch[/\\]distributed[/\\]")


class Rule(NamedTuple):
    """An exception whose type (its last word) or words fit is of this class; of the table the first that fits counts.

    `example` is a last line of a traceback that it is for. Types and words are alternatives, regular expressions each.
    """

    category: str
    example: str
    types: Optional[Pattern[str]]
    words: Optional[Pattern[str]]

    def fits(self, name: str, message: str) -> bool:
        """Tell whether type or words fit."""
        return bool((self.types and self.types.fullmatch(name)) or (self.words and self.words.search(message)))


def _rule(category: str, example: str, types: str = "", wording: str = "") -> Rule:
    return Rule(
        category, example, lazily(types) if types else None, lazily(wording, re.IGNORECASE) if wording else None
    )


# CUDA says so of GPUs that are not there, or not what the libraries were built for
_NO_GPU_FAULT = "no kernel image|invalid device ordinal|no CUDA-capable device|CUDA driver version is insufficient"

# causes that speak with a communication library's words: looked at before those of an echo
AMONG_RANKS: Tuple[Rule, ...] = (
    _rule(
        "gpu_out_of_memory",
        "torch.distributed.DistBackendError: NCCL\nCuda failure 2 'out of memory'",
        wording="Cuda failure (?:2 )?'out of memory'|CUDA out of memory|HIP out of memory",
    ),
    _rule(
        "gpu_error",
        "torch.distributed.DistBackendError: CUDA error: an illegal memory access was encountered",
        wording=rf"CUDA error: (?!out of memory|{_NO_GPU_FAULT})|uncorrectable ECC|"
        "Cuda failure (?!2 |'out of memory)",
    ),
    _rule(
        "bad_argument",
        "torch.distributed.DistBackendError: ncclInvalidUsage: Duplicate GPU detected",
        wording="ncclInvalidUsage|ncclInvalidArgument|Duplicate GPU detected",
    ),
    _rule(
        "gpu_missing",
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        wording="only supported with GPUs, no GPUs found",
    ),
    _rule(
        "version_mismatch",
        "torch.distributed.DistBackendError: NCCL version mismatch",
        wording="NCCL version mismatch|mismatched? NCCL version|different NCCL versions",
    ),
    _rule(
        "port_in_use",
        "torch.distributed.DistNetworkError: failed to listen, EADDRINUSE",
        wording="address already in use|EADDRINUSE",
    ),
    _rule(
        "name_resolution",
        "RuntimeError: getaddrinfo failed: Name or service not known",
        wording="name or service not known|failure in name resolution|getaddrinfo failed|gai error",
    ),
    _rule(
        "network_interface",
        "RuntimeError: Bootstrap : no socket interface found",
        wording="no socket interface found|no interface found|unable to find address for|could not find interface",
    ),
    _rule(
        "rendezvous",
        "DistNetworkError: The client socket has timed out after 8000ms while trying to connect to (127.0.0.1, 29999).",
        wording=r"client socket has timed out|waiting for clients|wait timeout after \d+ ?ms, keys: /|"
        "Rendezvous(?:Connection|Timeout|Closed)Error",
    ),
    _rule(
        "collective_mismatch",
        "RuntimeError: op.preamble.length <= op.nbytes. 8 vs 4, gloo/transport",
        wording=r"op\.preamble\.length|Detected mismatch between collectives|"
        r"ProcessGroupGloo::\w+: invalid tensor (?:size|type)|"
        "output tensor size must be equal to world_size times input tensor size|"
        "expects same model across all ranks|params? .{0,80}inconsistent|collective mismatch|"
        "ranks? .{0,40}different collective",
    ),
    # what a rank itself hands over is refused
    _rule(
        SCRIPT,
        "RuntimeError: ProcessGroupGloo::broadcast: invalid root rank: 7",
        wording=r"ProcessGroupGloo::\w+: ",
    ),
)

RULES: Tuple[Rule, ...] = (
    # input() of a rank, which has no terminal
    _rule(
        SCRIPT,
        "EOFError: EOF when reading a line",
        wording="EOF when reading a line",
    ),
    _rule(
        "gpu_out_of_memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        types="OutOfMemoryError",
        wording="(?:CUDA|HIP)(?: error:)? out of memory|(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED|"
        r"Triton Error \[CUDA\]: out of memory|cudaErrorMemoryAllocation",
    ),
    # torch opens a file for each tensor that a worker hands over
    _rule(
        "limits",
        "RuntimeError: unable to open shared memory object </torch_1>: Too many open files (24)",
        wording=r"shared memory[^\n]{0,99}too many open files|received 0 items of ancdata|"
        r"\b(?:ibv_\w+|mlock\w*)[^\n]{0,80}cannot allocate memory",
    ),
    _rule(
        "shared_memory_full",
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.",
        wording="insufficient shared memory|"
        r"(?:unable to|could not|cannot) (?:write to|open|allocate|resize|create)[^\n]{0,40} shared memory|"
        r"killed by signal: bus error|shm_open|/dev/shm[^\n]{0,80}no space left|"
        r"no space left[^\n]{0,80}(?:/dev/shm|/torch_)",
    ),
    _rule(
        "host_out_of_memory",
        "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory",
        types="MemoryError|_ArrayMemoryError",
        wording="DefaultCPUAllocator|cannot allocate memory|std::bad_alloc|not enough memory: you tried to allocate",
    ),
    _rule(
        "disk_full",
        "OSError: [Errno 28] No space left on device",
        wording="no space left on device|disk quota exceeded",
    ),
    _rule(
        "helper_killed",
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.",
        wording=r"died with <Signals\.SIG(?:KILL|SEGV|BUS|ABRT|ILL)|process \d+ terminated with signal|"
        r"DataLoader worker \(pid[^)]*\) (?:is killed by signal|"
        "exited unexpectedly)|A process in the process pool was terminated abruptly",
    ),
    _rule(
        "gpu_missing",
        "RuntimeError: No CUDA GPUs are available",
        wording="no CUDA GPUs are available|found no NVIDIA driver|no CUDA-capable device|invalid device ordinal|"
        "CUDA unknown error|Torch not compiled with CUDA|CUDA is not available|"
        "CUDA driver initialization failed|doesn't have NCCL built in",
    ),
    _rule(
        "version_mismatch",
        "ImportError: libcudnn.so: undefined symbol: x",
        wording="driver version is insufficient|NVIDIA driver on your system is too old|"
        r"version [`'\"][\w.]+['\"] not found|undefined symbol|no kernel image is available|"
        "compiled (?:using|with|against) (?:NumPy|a different|numpy)|"
        r"numpy\.(?:dtype|ndarray) size changed|binary incompatib|version mismatch|"
        r"mismatch(?:ed|ing)? [^\n]{0,40}versions?|is required for a normal functioning|"
        r"(?:requires?|needs?) [^\n]{0,60}(?:version|[<>=]=) ?[^\n]{0,40}(?:but|found|have|got|installed)|"
        r"(?:version|got) [^\n]{0,40} is not (?:supported|compatible)|incompatible [^\n]{0,30}version|"
        r"different (?:torch|pytorch|python|cuda|nccl) version|\b(?:invalid|wrong) ELF (?:header|class)|"
        r"operator \w+::\w+ does not exist",
    ),
    _rule(
        "version_mismatch",
        "pkg_resources.VersionConflict: (torch 2.1)",
        types=r"VersionConflict|ContextualVersionConflict|VersionMismatch\w*|IncompatibleVersion\w*",
    ),
    _rule(
        "gpu_error",
        "RuntimeError: CUDNN_STATUS_EXECUTION_FAILED",
        types="AcceleratorError",
        wording="CUDA error|device-side assert|uncorrectable ECC|CUDNN_STATUS_(?:EXECUTION|INTERNAL)|"
        "CUBLAS_STATUS_(?:EXECUTION|INTERNAL)|unspecified launch failure|illegal memory access",
    ),
    _rule(
        "import_error",
        "ModuleNotFoundError: No module named 'x'",
        types="ModuleNotFoundError|ImportError",
        wording=r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError)\b|cannot open shared object file|"
        "error while loading shared libraries",
    ),
    _rule(
        "checkpoint_mismatch",
        "RuntimeError: Error(s) in loading state_dict for Net",
        wording=r"error\(s\) in loading state_dict|size mismatch for |missing key\(s\) in state_dict|"
        r"unexpected key\(s\) in state_dict",
    ),
    _rule(
        "data_damaged",
        "_pickle.UnpicklingError: invalid load key, 'x'.",
        types="UnpicklingError|BadZipFile|BadGzipFile|EOFError|JSONDecodeError|ParserError|ArrowInvalid|"
        "UnidentifiedImageError|ReadError|LZMAError|UnicodeDecodeError|HeaderTooLarge|SafetensorError",
        wording="PytorchStreamReader failed|invalid load key|unexpected EOF|file is truncated|file too short|"
        "mmap length is greater than file size|while decompressing data|"
        r"corrupted?\b[^\n]{0,40}(?:file|data|shard|record)|checksum (?:mismatch|failed)",
    ),
    _rule(
        "download_failed",
        "ssl.SSLCertVerificationError: certificate verify failed",
        types=r"ConnectionError|ConnectTimeout|ReadTimeout|HTTPError|URLError|SSL\w*Error|HfHubHTTPError|"
        "LocalEntryNotFoundError|OfflineModeIsEnabled|MaxRetryError|ProxyError",
        wording=r"HTTPSConnectionPool|Max retries exceeded|huggingface\.co",
    ),
    _rule(
        "data_missing",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/a'",
        types="FileNotFoundError|NotADirectoryError|IsADirectoryError|DatasetNotFoundError|"
        "DataFilesNotFoundError|EntryNotFoundError|RepositoryNotFoundError",
        wording="no such file or directory|"
        r"(?:file|folder|path|dataset|shard|checkpoint)\b[^\n]{0,99}(?:not exist|n't exist|not found|not be found)|"
        "couldn't find (?:any data|a dataset|file)|is not a valid model identifier|"
        "num_samples should be a positive integer value, but got num_samples=0",
    ),
    _rule(
        "permission",
        "PermissionError: [Errno 13] Permission denied: '/x'",
        types="PermissionError",
        wording="permission denied|operation not permitted",
    ),
    _rule(
        "limits",
        "RuntimeError: can't start new thread",
        wording="too many open files|can't start new thread|pthread_create failed|thread creation failed|"
        "resource temporarily unavailable",
    ),
    _rule(
        "bad_argument",
        "yaml.scanner.ScannerError: mapping values are not allowed here",
        types="ArgumentError|ArgumentTypeError|UsageError|BadParameter|NoSuchOption|MissingParameter|"
        "ConfigAttributeError|ConfigKeyError|MissingMandatoryValue|HydraException|ScannerError|"
        "TOMLDecodeError|OverrideParseException",
        wording="unrecognized arguments|the following arguments are required|invalid choice|"
        r"argument -{1,2}[\w-]+|no such option",
    ),
    _rule(
        "interrupted",
        "KeyboardInterrupt",
        types="KeyboardInterrupt|SignalException",
    ),
    _rule(
        "hardware_io",
        "OSError: [Errno 5] Input/output error",
        wording="input/output error|stale file handle|transport endpoint is not connected|read-only file system",
    ),
    _rule(
        "not_a_number",
        "RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.",
        types="FloatingPointError",
        wording=r"\b(?:loss|gradients?|grad norm|output)\b[^\n]{0,60}\b(?:nan|inf|infinite|non-finite|not finite)\b|"
        r"\b(?:nan|non-finite)\b[^\n]{0,40}\b(?:loss|gradients?|grad)|contains? nan|"
        r"\bnan or inf\b[^\n]{0,20}\b(?:found|detected|encountered)|"
        r"\b(?:found|detected|encountered) (?:nan|inf)\b|loss scale (?:is )?already at minimum|"
        r"returned nan values in its \d+\w* output",
    ),
)

_ERRNO = {
    errno.ENOSPC: "disk_full", errno.EDQUOT: "disk_full", errno.ENOMEM: "host_out_of_memory",
    errno.ENOENT: "data_missing", errno.ENOTDIR: "data_missing", errno.EACCES: "permission", errno.EPERM: "permission",
    errno.EMFILE: "limits", errno.ENFILE: "limits", errno.EFBIG: "limits", errno.EADDRINUSE: "port_in_use",
    **dict.fromkeys((errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH), "download_failed"),
    errno.EIO: "hardware_io", errno.ESTALE: "hardware_io", errno.EROFS: "hardware_io", errno.ENOTCONN: "hardware_io",
}  # fmt: skip
# torch's writers lose the system's word for what went wrong
_WRITE_FAILED = lazily(
    r"PytorchStreamWriter failed|file write failed|basic_ios::clear|iostream (?:error|stream error)"
    r"|inline_container\.cc:\d+\] \. unexpected pos \d+ vs \d+",
    re.I,
)
# what a process of multiprocessing meets where the other one has gone
_HELPER_GONE = lazily(r"EOFError|BrokenPipeError|FileNotFoundError|Connection(?:Reset|Refused|Aborted)Error")
_HELPER = lazily(r"[/\\]multiprocessing[/\\](?:connection|managers|resource_sharer|reductions?)\.py")
_NEWEST = 2
_CHECKPOINT_READER = lazily(r"torch[/\\]serialization\.py .*(?:__init__|_open_zipfile_reader|load)")

Link = Dict[str, Any]


def name_of(kind: str) -> str:
    """`OutOfMemoryError` of `torch.OutOfMemoryError`."""
    return kind.rpartition(".")[2]


def category_of(chain: Sequence[Link], full: Sequence[str] = ()) -> str:
    """Return the class of an exception with what it came from, the raised one first; `full`: folders without room.

    What it was explicitly raised from is nearer to the cause; what was only being handled counts where nothing else
    tells.
    """
    if any(_is_echo(link) for link in chain):
        echoed = [link for link in chain if _is_echo(link)]
        return TIMEOUT if any(_TIMED_OUT.search(link["message"]) for link in echoed) else COMMUNICATION
    causes = _explicit(chain)
    for links in (list(reversed(causes)), [link for link in chain if link not in causes]):
        for link in links:
            category = _own(link, full)
            if category != SCRIPT:
                return category
    return SCRIPT


def _explicit(chain: Sequence[Link]) -> List[Link]:
    """Return the raised exception, what it names as its cause, and what a group holds."""
    causes = list(chain[:1])
    for link in chain[1:]:
        if link.get("role") not in ("cause", "part"):
            break
        causes.append(link)
    return causes


def _own(link: Link, full: Sequence[str]) -> str:
    message, name = str(link["message"]), name_of(str(link["type"]))
    for rule in AMONG_RANKS:
        if rule.fits(name, message):
            return rule.category
    if _WRITE_FAILED.search(message):
        return _full_place(full) if full else "hardware_io"
    if _HELPER_GONE.fullmatch(name) and _talks_to_helper(link):
        return "helper_killed"
    number = None if name.startswith("SSL") else link.get("errno")  # SSL counts its own: 1 is not EPERM
    by_number = _ERRNO.get(number, "") if isinstance(number, int) else ""
    if number == errno.ENOSPC:
        return _full_place(full, message)
    if number == errno.EINVAL and _reads_checkpoint(link):
        return "data_damaged"
    if by_number:
        return by_number
    return next((rule.category for rule in RULES if rule.fits(name, _QUOTED.sub('""', message))), SCRIPT)


def _full_place(full: Sequence[str], message: str = "") -> str:
    """Return where no room was left: in memory, where the words say so or only that was full."""
    memory = "/dev/shm"  # noqa: S108
    return "shared_memory_full" if memory in full and (memory in message or set(full) == {memory}) else "disk_full"


def _reads_checkpoint(link: Link) -> bool:
    """Tell whether torch's reader raised it, which says of a file that was cut off only 'Invalid argument'."""
    place = next((f"{frame[0]} {frame[2]}" for frame in reversed(link.get("frames") or ())), "")
    return bool(_CHECKPOINT_READER.search(place))


def _talks_to_helper(link: Link) -> bool:
    """Tell whether it was raised on the way to another process of the rank, as to a DataLoader's worker."""
    return any(_HELPER.search(str(frame[0])) for frame in (link.get("frames") or ())[-_NEWEST:])


def _is_echo(link: Link) -> bool:
    message, name = str(link["message"]), str(link["type"])
    if any(rule.fits(name_of(name), message) for rule in AMONG_RANKS):
        return False
    if _ECHO.search(message) or _TIMED_OUT.search(message):
        return True
    frames = link.get("frames") or ()
    return bool(_CONNECTION.search(message)) and (
        not frames or any(_TORCH_DISTRIBUTED.search(str(f[0])) for f in frames)
    )


def of_text(message: str, full: Sequence[str] = ()) -> str:
    """Return the class of an exception of which only its last lines are known; `full`: folders without room then."""
    name = message.partition(":")[0].strip()
    return category_of([{"type": name, "message": message, "role": "raised"}], full)


def is_echo(category: str) -> bool:
    """Tell whether it follows from another rank's end, or absence."""
    return category in (COMMUNICATION, TIMEOUT)
