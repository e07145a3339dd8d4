"""The numbers that checks compare with where no profile has one: each with its reason; a site may set its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threshold:
    """A default that `nodectl_health: {thresholds: {NAME: NUMBER}}` replaces."""

    value: float
    why: str


THRESHOLDS: dict[str, Threshold] = {
    "shm_mib": Threshold(1024, "NCCL and loaders talk through it; container engines give 64"),
    "disk_free_mib": Threshold(1024, "room for logs and job folders"),
    "inodes_used_percent": Threshold(90, "a job folder and its cache are thousands of files"),
    "clock_warning_s": Threshold(1.0, "preflight lists of the field ask for less than a second"),
    "clock_failed_s": Threshold(5.0, "torchrun's rendezvous drops a host whose clock is 15 s off"),
    "memory_percent": Threshold(90, "what the firmware and the kernel keep is less than a tenth of what is installed"),
    "load_per_thread": Threshold(2.0, "an idle node's load is near nothing; above this ranks wait for processors"),
    "stuck_processes": Threshold(5, "gpud: five processes in uninterruptible sleep"),
    "zombies": Threshold(100, "one parent that does not reap; process ids run out late"),
    "swap_used_percent": Threshold(10, "a training node that swaps is slow for every rank"),
    "link_flaps": Threshold(3, "gpud: three returns of a link within 12 h; Azure: five losses of carrier in 24 h"),
    "nic_errors": Threshold(1, "a wire that is good loses nothing between two readings"),
    "nic_errors_first": Threshold(1000, "without an earlier reading only a clear number counts"),
    "nic_drops": Threshold(10_000, "drops of unknown protocols are counted too, so a few mean nothing"),
    "ib_errors": Threshold(1, "between two readings; any at all is worth a look"),
    "ib_errors_first": Threshold(1000, "without an earlier reading only a clear number counts"),
    "ib_downs_first": Threshold(10, "each boot of a host or a switch counts one"),
    "ib_discards": Threshold(1000, "a congested fabric drops now and then"),
    "ib_retries": Threshold(1000, "a lossy Ethernet fabric retries now and then"),
    "corrected_errors": Threshold(10, "a module that corrects more between two readings is about to fail"),
    "corrected_errors_first": Threshold(1000, "without an earlier reading only a clear number counts"),
    "gpu_memory_percent": Threshold(92, "with ECC in the memory itself (L40S, A10) a sixteenth is not for use"),
    "gpu_ecc_corrected": Threshold(20_000_000, "Azure takes a GPU out above this; GCM at 50 million"),
    "gpu_sram_corrected": Threshold(10_000, "Azure takes a GPU out above this"),
    "gpu_sram_uncorrectable": Threshold(4, "ml-engineering: above this NVIDIA replaces it; Azure fails at the first"),
    "gpu_retired_pages": Threshold(62, "Azure; NVIDIA's limit is 64 pages"),
    "gpu_remapped_rows": Threshold(512, "NVIDIA's RMA policy: rows for uncorrectable errors"),
    "gpu_pcie_replays": Threshold(100, "a link that changes its speed replays a few packets"),
    "gpu_pcie_replays_first": Threshold(10_000, "without an earlier reading only a clear number counts"),
    "gpu_temperature_margin_c": Threshold(5, "nearer to the slowdown it comes with the next hot day"),
    "gpu_idle_percent": Threshold(5, "utilisation up to which a GPU has nothing to do"),
    "gpu_busy_percent": Threshold(90, "utilisation from which its clock should be high"),
    "gpu_clock_percent": Threshold(50, "of the highest clock: power caps alone hold a GPU at more than that"),
    "gpu_memory_held_mib": Threshold(1024, "the driver itself keeps some hundreds of MiB"),
    "nvlink_errors": Threshold(1, "between two readings; any at all is worth a look"),
    "nvlink_errors_first": Threshold(5, "imbue warns from five on, counted since the driver was loaded"),
    "reboots_to_hardware": Threshold(2, "gpud: the same fault after two reboots is the hardware's"),
}
