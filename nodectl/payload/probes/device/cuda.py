"""The little of torch.cuda that the measurements need, in one place."""

from typing import Any, Callable, Optional


class Cuda:
    """GPUs by number, None for the processors; sizes in bytes."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def device(self, gpu: Optional[int]) -> Any:
        """Return torch's name of the device."""
        return self.torch.device("cpu") if gpu is None else self.torch.device("cuda", gpu)

    def seconds(self, work: Callable[[], Any]) -> float:
        """Return how long the current GPU needs for what `work` gives it, by its own clock."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def free_bytes(self, gpu: int) -> int:
        """Return the GPU's free memory."""
        return int(self.torch.cuda.mem_get_info(gpu)[0])

    def cache_bytes(self, gpu: int) -> int:
        """Return the size of L2; 0 if this torch does not tell."""
        return int(getattr(self.torch.cuda.get_device_properties(gpu), "L2_cache_size", 0))

    def sync(self, *gpus: int) -> None:
        """Wait until these GPUs have done what they were given."""
        for gpu in gpus:
            self.torch.cuda.synchronize(gpu)

    def stream(self, gpu: int) -> Any:
        """Return a new stream of the GPU."""
        return self.torch.cuda.Stream(device=gpu)


def is_out_of_memory(error: BaseException) -> bool:
    """Older torch raises a plain RuntimeError."""
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()
