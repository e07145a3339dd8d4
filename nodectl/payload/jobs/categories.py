"""What an exception's type and words mean: its class, and whether it is a cause or the echo of another rank's end."""

from __future__ import annotations

import errno
import re
from typing import Any, Dict, List, NamedTuple, Optional, Pattern, Sequence

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
    """An exception whose type (its last word) or words fit is of this class; the first that fits counts."""

    category: str
    types: Optional[Pattern[str]] = None
    words: Optional[Pattern[str]] = None

    def fits(self, name: str, message: str) -> bool:
        """Type or words fit."""
        return bool((self.types and self.types.fullmatch(name)) or (self.words and self.words.search(message)))


def _rule(category: str, types: Sequence[str] = (), words: Sequence[str] = ()) -> Rule:
    """Of alternatives, each a regular expression."""
    fits_words = lazily("|".join(words), re.IGNORECASE) if words else None
    return Rule(category, lazily("|".join(types)) if types else None, fits_words)


# CUDA says so of GPUs that are not there, or not what the libraries were built for
_NO_GPU_FAULT = "no kernel image|invalid device ordinal|no CUDA-capable device|CUDA driver version is insufficient"

# causes that speak with a communication library's words: looked at before those of an echo
_IN_COMMUNICATION = (
    _rule(
        "gpu_out_of_memory",
        words=(
            "Cuda failure (?:2 )?'out of memory'",
            "CUDA out of memory",
            "HIP out of memory",
        ),
    ),
    _rule(
        "gpu_error",
        words=(
            rf"CUDA error: (?!out of memory|{_NO_GPU_FAULT})",
            r"uncorrectable ECC",
            r"Cuda failure (?!2 |'out of memory)",
        ),
    ),
    _rule(
        "bad_argument",
        words=(
            "ncclInvalidUsage",
            "ncclInvalidArgument",
            "Duplicate GPU detected",
        ),
    ),
    _rule("gpu_missing", words=("only supported with GPUs, no GPUs found",)),
    _rule(
        "version_mismatch",
        words=(
            "NCCL version mismatch",
            "mismatched? NCCL version",
            "different NCCL versions",
        ),
    ),
    _rule(
        "port_in_use",
        words=(
            "address already in use",
            "EADDRINUSE",
        ),
    ),
    _rule(
        "name_resolution",
        words=(
            "name or service not known",
            "failure in name resolution",
            "getaddrinfo failed",
            "gai error",
        ),
    ),
    _rule(
        "network_interface",
        words=(
            "no socket interface found",
            "no interface found",
            "unable to find address for",
            "could not find interface",
        ),
    ),
    _rule(
        "rendezvous",
        words=(
            "client socket has timed out",
            "waiting for clients",
            r"wait timeout after \d+ ?ms, keys: /",
            "Rendezvous(?:Connection|Timeout|Closed)Error",
        ),
    ),
    _rule(
        "collective_mismatch",
        words=(
            r"op\.preamble\.length",
            "Detected mismatch between collectives",
            r"ProcessGroupGloo::\w+: invalid tensor (?:size|type)",
            "output tensor size must be equal to world_size times input tensor size",
            "expects same model across all ranks",
            "params? .{0,80}inconsistent",
            "collective mismatch",
            "ranks? .{0,40}different collective",
        ),
    ),
    _rule(SCRIPT, words=(r"ProcessGroupGloo::\w+: ",)),  # what a rank itself hands over is refused
)

_RULES = (
    _rule(SCRIPT, words=("EOF when reading a line",)),  # input() of a rank, which has no terminal
    _rule(
        "gpu_out_of_memory",
        types=("OutOfMemoryError",),
        words=(
            "(?:CUDA|HIP)(?: error:)? out of memory",
            "(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED",
            r"Triton Error \[CUDA\]: out of memory",
            "cudaErrorMemoryAllocation",
        ),
    ),
    _rule(
        "limits",  # torch opens a file for each tensor that a worker hands over
        words=(
            r"shared memory[^\n]{0,99}too many open files",
            "received 0 items of ancdata",
            r"\b(?:ibv_\w+|mlock\w*)[^\n]{0,80}cannot allocate memory",
        ),
    ),
    _rule(
        "shared_memory_full",
        words=(
            "insufficient shared memory",
            r"(?:unable to|could not|cannot) (?:write to|open|allocate|resize|create)[^\n]{0,40} shared memory",
            "killed by signal: bus error",
            "shm_open",
            r"/dev/shm[^\n]{0,80}no space left",  # noqa: S108
            r"no space left[^\n]{0,80}(?:/dev/shm|/torch_)",
        ),
    ),
    _rule(
        "host_out_of_memory",
        types=(
            "MemoryError",
            "_ArrayMemoryError",
        ),
        words=(
            "DefaultCPUAllocator",
            "cannot allocate memory",
            "std::bad_alloc",
            "not enough memory: you tried to allocate",
        ),
    ),
    _rule(
        "disk_full",
        words=(
            "no space left on device",
            "disk quota exceeded",
        ),
    ),
    _rule(
        "helper_killed",
        words=(
            r"died with <Signals\.SIG(?:KILL|SEGV|BUS|ABRT|ILL)",
            r"process \d+ terminated with signal",
            r"DataLoader worker \(pid[^)]*\) (?:is killed by signal",
            "exited unexpectedly)|A process in the process pool was terminated abruptly",
        ),
    ),
    _rule(
        "gpu_missing",
        words=(
            "no CUDA GPUs are available",
            "found no NVIDIA driver",
            "no CUDA-capable device",
            "invalid device ordinal",
            "CUDA unknown error",
            "Torch not compiled with CUDA",
            "CUDA is not available",
            "CUDA driver initialization failed",
            "doesn't have NCCL built in",
        ),
    ),
    _rule(
        "version_mismatch",
        words=(
            "driver version is insufficient",
            "NVIDIA driver on your system is too old",
            r"""version [`'\"][\w.]+['\"] not found""",
            "undefined symbol",
            "no kernel image is available",
            "compiled (?:using|with|against) (?:NumPy|a different|numpy)",
            r"numpy\.(?:dtype|ndarray) size changed",
            "binary incompatib",
            "version mismatch",
            r"mismatch(?:ed|ing)? [^\n]{0,40}versions?",
            "is required for a normal functioning",
            r"(?:requires?|needs?) [^\n]{0,60}(?:version|[<>=]=) ?[^\n]{0,40}(?:but|found|have|got|installed)",
            r"(?:version|got) [^\n]{0,40} is not (?:supported|compatible)",
            r"incompatible [^\n]{0,30}version",
            "different (?:torch|pytorch|python|cuda|nccl) version",
            r"\b(?:invalid|wrong) ELF (?:header|class)",
            r"operator \w+::\w+ does not exist",
        ),
    ),
    _rule(
        "version_mismatch",
        types=(
            "VersionConflict",
            "ContextualVersionConflict",
            r"VersionMismatch\w*",
            r"IncompatibleVersion\w*",
        ),
    ),
    _rule(
        "gpu_error",
        types=("AcceleratorError",),
        words=(
            "CUDA error",
            "device-side assert",
            "uncorrectable ECC",
            "CUDNN_STATUS_(?:EXECUTION|INTERNAL)",
            "CUBLAS_STATUS_(?:EXECUTION|INTERNAL)",
            "unspecified launch failure",
            "illegal memory access",
        ),
    ),
    _rule(
        "import_error",
        types=(
            "ModuleNotFoundError",
            "ImportError",
        ),
        words=(
            r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError)\b",
            r"cannot open shared object file",
            r"error while loading shared libraries",
        ),
    ),
    _rule(
        "checkpoint_mismatch",
        words=(
            r"error\(s\) in loading state_dict",
            "size mismatch for ",
            r"missing key\(s\) in state_dict",
            r"unexpected key\(s\) in state_dict",
        ),
    ),
    _rule(
        "data_damaged",
        types=(
            "UnpicklingError",
            "BadZipFile",
            "BadGzipFile",
            "EOFError",
            "JSONDecodeError",
            "ParserError",
            "ArrowInvalid",
            "UnidentifiedImageError",
            "ReadError",
            "LZMAError",
            "UnicodeDecodeError",
            "HeaderTooLarge",
            "SafetensorError",
        ),
        words=(
            "PytorchStreamReader failed",
            "invalid load key",
            "unexpected EOF",
            "file is truncated",
            "file too short",
            "mmap length is greater than file size",
            "while decompressing data",
            r"corrupted?\b[^\n]{0,40}(?:file|data|shard|record)",
            "checksum (?:mismatch|failed)",
        ),
    ),
    _rule(
        "download_failed",
        types=(
            "ConnectionError",
            "ConnectTimeout",
            "ReadTimeout",
            "HTTPError",
            "URLError",
            r"SSL\w*Error",
            "HfHubHTTPError",
            "LocalEntryNotFoundError",
            "OfflineModeIsEnabled",
            "MaxRetryError",
            "ProxyError",
        ),
        words=(
            "HTTPSConnectionPool",
            "Max retries exceeded",
            r"huggingface\.co",
        ),
    ),
    _rule(
        "data_missing",
        types=(
            "FileNotFoundError",
            "NotADirectoryError",
            "IsADirectoryError",
            "DatasetNotFoundError",
            "DataFilesNotFoundError",
            "EntryNotFoundError",
            "RepositoryNotFoundError",
        ),
        words=(
            "no such file or directory",
            r"(?:file|folder|path|dataset|shard|checkpoint)\b[^\n]{0,99}(?:not exist|n't exist|not found|not be found)",
            "couldn't find (?:any data|a dataset|file)",
            "is not a valid model identifier",
            "num_samples should be a positive integer value, but got num_samples=0",
        ),
    ),
    _rule(
        "permission",
        types=("PermissionError",),
        words=(
            "permission denied",
            "operation not permitted",
        ),
    ),
    _rule(
        "limits",
        words=(
            "too many open files",
            "can't start new thread",
            "pthread_create failed",
            "thread creation failed",
            "resource temporarily unavailable",
        ),
    ),
    _rule(
        "bad_argument",
        types=(
            "ArgumentError",
            "ArgumentTypeError",
            "UsageError",
            "BadParameter",
            "NoSuchOption",
            "MissingParameter",
            "ConfigAttributeError",
            "ConfigKeyError",
            "MissingMandatoryValue",
            "HydraException",
            "ScannerError",
            "TOMLDecodeError",
            "OverrideParseException",
        ),
        words=(
            "unrecognized arguments",
            "the following arguments are required",
            "invalid choice",
            r"argument -{1,2}[\w-]+",
            "no such option",
        ),
    ),
    _rule(
        "interrupted",
        types=(
            "KeyboardInterrupt",
            "SignalException",
        ),
    ),
    _rule(
        "hardware_io",
        words=(
            "input/output error",
            "stale file handle",
            "transport endpoint is not connected",
            "read-only file system",
        ),
    ),
    _rule(
        "not_a_number",
        types=("FloatingPointError",),
        words=(
            r"\b(?:loss|gradients?|grad norm|output)\b[^\n]{0,60}\b(?:nan|inf|infinite|non-finite|not finite)\b",
            r"\b(?:nan|non-finite)\b[^\n]{0,40}\b(?:loss|gradients?|grad)",
            "contains? nan",
            r"\bnan or inf\b[^\n]{0,20}\b(?:found|detected|encountered)",
            r"\b(?:found|detected|encountered) (?:nan|inf)\b",
            "loss scale (?:is )?already at minimum",
            r"returned nan values in its \d+\w* output",
        ),
    ),
)

_ERRNO = {
    errno.ENOSPC: "disk_full", errno.EDQUOT: "disk_full", errno.ENOMEM: "host_out_of_memory",
    errno.ENOENT: "data_missing", errno.ENOTDIR: "data_missing", errno.EACCES: "permission", errno.EPERM: "permission",
    errno.EMFILE: "limits", errno.ENFILE: "limits", errno.EFBIG: "limits", errno.EADDRINUSE: "port_in_use",
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
    """The class of an exception with what it came from, the raised one first; `full`: folders without room then.

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
    """The raised exception, what it names as its cause, and what a group holds."""
    causes = list(chain[:1])
    for link in chain[1:]:
        if link.get("role") not in ("cause", "part"):
            break
        causes.append(link)
    return causes


def _own(link: Link, full: Sequence[str]) -> str:
    message, name = str(link["message"]), name_of(str(link["type"]))
    for rule in _IN_COMMUNICATION:
        if rule.fits(name, message):
            return rule.category
    if _WRITE_FAILED.search(message):
        return _full_place(full) if full else "hardware_io"
    if _HELPER_GONE.fullmatch(name) and _talks_to_helper(link):
        return "helper_killed"
    number = link.get("errno")
    by_number = _ERRNO.get(number, "") if isinstance(number, int) else ""
    if number == errno.ENOSPC:
        return _full_place(full, message)
    if number == errno.EINVAL and _reads_checkpoint(link):
        return "data_damaged"
    if by_number:
        return by_number
    return next((rule.category for rule in _RULES if rule.fits(name, _QUOTED.sub('""', message))), SCRIPT)


def _full_place(full: Sequence[str], message: str = "") -> str:
    """Return where no room was left: in memory, where the words say so or only that was full."""
    memory = "/dev/shm"  # noqa: S108
    return "shared_memory_full" if memory in full and (memory in message or set(full) == {memory}) else "disk_full"


def _reads_checkpoint(link: Link) -> bool:
    """Of a file that was cut off torch's reader tells no more than 'Invalid argument'."""
    place = next((f"{frame[0]} {frame[2]}" for frame in reversed(link.get("frames") or ())), "")
    return bool(_CHECKPOINT_READER.search(place))


def _talks_to_helper(link: Link) -> bool:
    """It was raised on the way to another process of the rank, as to a DataLoader's worker."""
    return any(_HELPER.search(str(frame[0])) for frame in (link.get("frames") or ())[-_NEWEST:])


def _is_echo(link: Link) -> bool:
    message, name = str(link["message"]), str(link["type"])
    if any(rule.fits(name_of(name), message) for rule in _IN_COMMUNICATION):
        return False
    if _ECHO.search(message) or _TIMED_OUT.search(message):
        return True
    frames = link.get("frames") or ()
    return bool(_CONNECTION.search(message)) and (
        not frames or any(_TORCH_DISTRIBUTED.search(str(f[0])) for f in frames)
    )


def of_text(message: str, full: Sequence[str] = ()) -> str:
    """The class of an exception of which only its last lines are known; `full`: folders without room then."""
    name = message.partition(":")[0].strip()
    return category_of([{"type": name, "message": message, "role": "raised"}], full)


def is_echo(category: str) -> bool:
    """It follows from another rank's end, or absence."""
    return category in (COMMUNICATION, TIMEOUT)
