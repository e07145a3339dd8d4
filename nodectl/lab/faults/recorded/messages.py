"""Recorded faults of which the kernel's log has a message: one for each entry of its catalogue."""

from __future__ import annotations

from nodectl.lab.faults.base import Fault, Outputs
from nodectl.lab.faults.editing import bus_of, logged, recorded

_OF_A_GPU = {
    "gpu_power": (
        "a GPU's power cable is not plugged",
        "NVRM: GPU {bus}.0: GPU does not have the necessary power cables connected.",
    ),
    "gpu_init": ("a GPU could not be started", "NVRM: GPU {bus}.0: RmInitAdapter failed! (0x62:0x65:2028)"),
    "gpu_bus": ("a GPU has left the bus, and no Xid says so", "nvidia {bus}.0: GPU has fallen off the bus."),
    "gpu_bar": (
        "a GPU got no address space",
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid: NVRM: BAR1 is 0M @ 0x0 (PCI:{bus}.0)",
    ),
    "aer_fatal": (
        "a fatal PCIe error",
        "pcieport {bus}.0: AER: Uncorrected (Fatal) error received: {bus}.0",
    ),
    "aer_nonfatal": (
        "a PCIe error that was not corrected",
        "nvidia {bus}.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
    ),
    "aer_not_recovered": ("a device stays lost after a PCIe error", "pcieport {bus}.0: AER: device recovery failed"),
    "pcie_contained": (
        "a PCIe port shut its link",
        "pcieport {bus}.0: DPC: containment event, status:0x1f01 source:0x0000",
    ),
    "pci_gone": (
        "a PCIe device does not answer",
        "nvidia {bus}.0: Unable to change power state from D3cold to D0, device inaccessible",
    ),
    "nouveau": ("nouveau drives a GPU", "nouveau {bus}.0: NVIDIA GA100 (170000a1)"),
}
_OFTEN = {
    "bnxt_refused": (
        "an adapter's firmware refuses commands",
        "bnxt_en 0000:c1:00.0 eth0: hwrm req_type 0x190 seq id 0x6 error 0x4",
    ),
    "own_address": (
        "packets come back to their sender",
        "bridge0: received packet on enp226s0 with own address as source address (addr:02:00:00:00:00:01, vlan:0)",
    ),
    "audit_full": ("the audit log is full", "audit: backlog limit exceeded"),
    "kernel_warning": (
        "the kernel warns of itself again and again",
        "WARNING: CPU: 12 PID: 48120 at drivers/iommu/dma-iommu.c:1042 iommu_dma_unmap_page+0x79/0x90",
    ),
    "lustre_slow": (
        "Lustre's servers answer late",
        "Lustre: 9:0:(client.c:2289:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: x",
    ),
    "bmc_silent": ("the BMC does not answer", "ipmi_si IPI0001:00: KCS in invalid state 9"),
    "aer_corrected": (
        "many corrected PCIe errors",
        "pcieport 0000:c0:01.1: AER: Corrected error received: 0000:c1:00.0",
    ),
    "edac_corrected": (
        "the log has many corrected memory errors",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x8f offset:0x0)",
    ),
    "hardware_corrected": (
        "the firmware reports many corrected errors",
        "{1}[Hardware Error]: event severity: corrected",
    ),
    "ceph": ("Ceph's servers do not answer", "libceph: mon0 (1)10.0.0.5:6789 session lost, hunting for new mon"),
}
_ONCE = {
    "nvlink_detection": (
        "the driver asks without end which NVLinks are up",
        "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!",
    ),
    "efa_admin": ("an EFA adapter answers no commands", "infiniband rdmap0s6: Admin queue is closed"),
    "efa_reset": ("an EFA adapter could not be reset", "efa 0000:00:06.0: Reset indication didn't turn on"),
    "efa_command": (
        "an EFA adapter refused a command",
        "infiniband rdmap16s27: Failed to process command CREATE_QP (opcode 6) comp_status 1 err -22",
    ),
    "mlx5_power": (
        "an adapter reads too little power from its slot",
        "mlx5_core 0000:4b:00.0: mlx5_pcie_event:299:(pid 2682): Detected insufficient power on the PCIe slot (27W).",
    ),
    "gpu_unsupported": (
        "the driver does not know a GPU",
        "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
    ),
    "slot_power": ("a PCIe slot has too little power", "pcieport 0000:c0:01.1: pciehp: Slot(17): Power fault"),
    "pci_link_slow": (
        "a PCIe link came up at its slowest",
        "pcieport 0000:c0:01.1: broken device, retraining non-functional downstream link at 2.5GT/s",
    ),
    "iommu_stuck": ("the IOMMU does not answer", "AMD-Vi: Completion-Wait loop timed out"),
    "nvme_remote": ("an NVMe disk over the network is lost", "nvme nvme9: starting error recovery"),
    "raid_event": (
        "the RAID controller reports a failure",
        "megaraid_sas 0000:65:00.0: 2764 (652345654s/0x0001/FATAL) - VD 00/0 is now OFFLINE",
    ),
    "multipath": ("a path to a disk failed", "device-mapper: multipath: 253:0: Failing path 8:16."),
    "device_mapper": (
        "a thin pool is full",
        "device-mapper: thin: 253:2: switching pool to out-of-data-space (queue IO) mode",
    ),
    "san_lost": ("a disk of the storage network is lost", "connection1:0: detected conn error (1022)"),
    "zfs_suspended": (
        "ZFS has stopped",
        "WARNING: Pool 'scratch' has encountered an uncorrectable I/O failure and has been suspended.",
    ),
    "nfs_clientid": ("two NFS clients of one name", "NFS: Server 10.0.0.9 reports our clientid is in use"),
    "nic_stopped": (
        "an adapter stopped to protect itself",
        "ice 0000:31:00.0: Firmware recovery mode detected. Limiting functionality.",
    ),
    "nic_reset": ("an adapter was reset", "ena 0000:00:05.0 ens5: Keep alive watchdog timeout."),
    "bad_checksums": ("an adapter tells wrong checksums", "enp226s0: hw csum failure"),
    "syn_flood": (
        "a program takes connections too slowly",
        "TCP: request_sock_TCP: Possible SYN flooding on port 10.0.0.1:29500. Sending cookies.",
    ),
    "pids_limit": (
        "a login may start no more processes",
        "cgroup: fork rejected by pids controller in /user.slice/user-1000.slice/session-3.scope",
    ),
    "files_limit": ("the machine may open no more files", "VFS: file-max limit 1048576 reached"),
    "oom_nobody": ("memory was full and nothing could be ended", "Out of memory and no killable processes..."),
    "irq_disabled": (
        "an interrupt was switched off",
        'irq 16: nobody cared (try booting with the "irqpoll" option)',
    ),
    "rt_throttled": ("a real-time process takes a processor whole", "sched: RT throttling activated"),
    "boot_error": ("the boot before ended with a hardware error", "BERT: Error records from previous boot:"),
    "hugepages_missing": (
        "no room for huge pages",
        "HugeTLB: allocating 512 of page size 2.00 MiB failed.  Only allocated 200 hugepages.",
    ),
    "page_retired": ("pages of memory are taken out", "RAS: Soft-offlining pfn: 0x8f2a31"),
    "bmc_watchdog": ("the BMC's watchdog is not fed", "IPMI Watchdog: Unexpected close, not stopping watchdog!"),
    "gsp_boot": (
        "the GPU's system processor did not start",
        "NVRM: GPU0 RmInitAdapter: Cannot initialize GSP firmware RM",
    ),
    "gsp_timeout": (
        "the GPU's system processor does not answer",
        "NVRM: _kgspRpcRecvPoll: Timeout after 45s of waiting for RPC response from GPU3 GSP! Expected function 76",
    ),
    "gpu_locked": (
        "a GPU does nothing more",
        "NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",
    ),
    "module_foreign": (
        "a module is of another kernel",
        "nvidia_uvm: disagrees about version of symbol module_layout",
    ),
    "pci_link_lost": (
        "a PCIe slot lost its link",
        "pcieport 0000:c0:01.1: pciehp: Slot(17): Link Down",
    ),
    "probe_failed": (
        "a driver could not start its adapter",
        "mlx5_core 0000:0c:00.0: probe with driver mlx5_core failed with error -110",
    ),
    "page_lost": (
        "data was not written to its disk",
        "Buffer I/O error on dev nvme2n1, logical block 24, lost async page write",
    ),
    "ext4_damaged": (
        "a file system has errors of an earlier boot",
        "EXT4-fs (md0): warning: mounting fs with errors, running e2fsck is recommended",
    ),
    "xfs_memory": (
        "XFS waits for memory",
        "XFS: python3(48120) possible memory allocation deadlock size 65552 in kmem_alloc (mode:0x250)",
    ),
    "bond_partner": (
        "the switch does not answer LACP",
        "bond0: Warning: No 802.3ad response from the link partner for any adapters in the bond",
    ),
    "driver_mismatch": (
        "library and module of the driver differ",
        "NVRM: API mismatch: the client has the version 580.105.08, but this kernel module has the version 580.95.05",
    ),
    "gpu_not_probed": (
        "the driver has not taken a GPU",
        "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
    ),
    "module_refused": (
        "Secure Boot refused a module",
        "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
    ),
    "nvswitch_open": ("an NVSwitch could not be opened", "nvidia-nvswitch3: open failed"),
    "iommu_fault": (
        "the IOMMU refused an access",
        "nvme 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0021 address=0xdf83e000 flags=0x0000]",
    ),
    "bounce_full": (
        "no room for bounce buffers",
        "mlx5_core 0000:0c:00.0: swiotlb buffer is full (sz: 131072 bytes), total 32768 (slots), used 4 (slots)",
    ),
    "nvme_timeout": ("an NVMe disk does not answer", "nvme nvme1: I/O 227 QID 12 timeout, aborting"),
    "nvme_reset": (
        "an NVMe disk was reset",
        "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
    ),
    "medium_error": (
        "a disk cannot read a sector",
        "critical medium error, dev nvme2n1, sector 88213560 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
    ),
    "io_error": (
        "a disk failed to write",
        "I/O error, dev nvme2n1, sector 88213560 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2",
    ),
    "target_error": ("a disk refuses work", "sd 0:0:0:0: rejecting I/O to offline device"),
    "scsi_failed": (
        "a SCSI command failed",
        "sd 0:0:0:0: [sda] tag#12 FAILED Result: hostbyte=DID_BAD_TARGET driverbyte=DRIVER_OK cmd_age=0s",
    ),
    "ata_error": (
        "a SATA disk or its cable fails",
        "ata1.00: exception Emask 0x0 SAct 0x4000 SErr 0x0 action 0x6 frozen",
    ),
    "raid_controller": ("the RAID controller failed", "megaraid_sas 0000:65:00.0: FW in FAULT state!!"),
    "md_failed": ("a disk of a RAID failed", "md/raid1:md0: Disk failure on nvme0n1p2, disabling device."),
    "md_degraded": ("a RAID started with one disk less", "md/raid1:md0: active with 1 out of 2 mirrors"),
    "read_only": ("a file system was made read-only", "EXT4-fs (md0): Remounting filesystem read-only"),
    "ext4_error": (
        "an ext4 file system is damaged",
        "EXT4-fs error (device md0): ext4_find_entry:1455: inode #1177346: comm python3: reading directory lblock 0",
    ),
    "xfs_error": (
        "an XFS file system is damaged",
        "XFS (nvme2n1): Metadata corruption detected at xfs_agf_read_verify+0x70/0x140 [xfs], xfs_agf block 0x1",
    ),
    "btrfs_error": (
        "a btrfs file system is damaged",
        "BTRFS error (device sdb1): bdev /dev/sdb1 errs: wr 0, rd 0, flush 0, corrupt 4, gen 0",
    ),
    "nfs_server": ("an NFS server does not answer", "nfs: server 10.0.0.9 not responding, still trying"),
    "nfs_stale": (
        "an NFS mount lost its state",
        "NFS: state manager: check lease failed on NFSv4 server 10.0.0.9 with error 13",
    ),
    "lustre": (
        "Lustre lost a server",
        "Lustre: lfs01-OST0003-osc: Connection to lfs01-OST0003 was lost; in progress operations wait",
    ),
    "cifs": (
        "a CIFS server does not answer",
        "CIFS: VFS: \\\\10.0.0.7 has not responded in 180 seconds. Reconnecting...",
    ),
    "mlx5_health": (
        "an adapter's firmware has stopped",
        "mlx5_core 0000:0c:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
    ),
    "mlx5_command": (
        "an adapter's firmware answers no command",
        "mlx5_core 0000:0c:00.0: wait_func:1136: ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
    ),
    "mlx5_module": (
        "an optical module reports an error",
        "mlx5_core 0000:12:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)",
    ),
    "mlx5_hot": (
        "an adapter is too hot",
        "mlx5_core 0000:12:00.0: temp_warn:181:(pid 0): High temperature on sensors with bit set 0x0 0x1",
    ),
    "rdma_catastrophic": (
        "RDMA queues of an adapter failed",
        "infiniband mlx5_0: mlx5_ib_event: Local work queue catastrophic error on qp 0x1f2",
    ),
    "tx_timeout": (
        "an interface does not send",
        "NETDEV WATCHDOG: enp226s0 (mlx5_core): transmit queue 3 timed out",
    ),
    "duplicate_address": (
        "two machines have one address",
        "IPv6: enp226s0: IPv6 duplicate address fe80::1 used by 02:00:00:00:00:01 detected!",
    ),
    "neighbour_full": ("the table of neighbours is full", "neighbour: arp_cache: neighbor table overflow!"),
    "conntrack_full": ("the firewall's table is full", "nf_conntrack: nf_conntrack: table full, dropping packet"),
    "tcp_memory": ("TCP has no memory", "TCP: out of memory -- consider tuning tcp_mem"),
    "net_device_stuck": (
        "an interface cannot be removed",
        "unregister_netdevice: waiting for veth3f to become free. Usage count = 1",
    ),
    "soft_lockup": ("a processor hung", "watchdog: BUG: soft lockup - CPU#12 stuck for 23s! [python3:48120]"),
    "hard_lockup": (
        "a processor hung with interrupts off",
        "NMI watchdog: Watchdog detected hard LOCKUP on cpu 17",
    ),
    "rcu_stall": ("a processor does not come back", "rcu: INFO: rcu_sched self-detected stall on CPU"),
    "hung_task": (
        "a process waits without end",
        "INFO: task python3:48120 blocked for more than 120 seconds.",
    ),
    "kernel_bug": (
        "the kernel itself crashed",
        "BUG: unable to handle page fault for address: ffffb0e2c0a01000",
    ),
    "edac_uncorrected": (
        "the log has a memory error that was not corrected",
        "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x12 offset:0x0)",
    ),
    "hardware_error": (
        "the firmware reports a hardware error",
        "{1}[Hardware Error]: event severity: recoverable",
    ),
    "thermal_critical": (
        "a part reached its critical temperature",
        "thermal thermal_zone0: acpitz: critical temperature reached, shutting down",
    ),
    "thermal_throttled": (
        "processors are too hot",
        "mce: CPU12: Core temperature above threshold, cpu clock throttled (total events = 1)",
    ),
    "nmi": ("the hardware reports an error without a name", "Uhhuh. NMI received for unknown reason 2d on CPU 0."),
    "clock_unstable": (
        "the processors' clock is not used",
        "clocksource: watchdog on CPU3: Marking clocksource 'tsc' as unstable because the skew is too large",
    ),
    "allocation_failed": (
        "the kernel found no memory in one piece",
        "python3: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO)",
    ),
    "memory_failure": (
        "a page of memory was taken out",
        "Memory failure: 0x8f2a31: recovery action for dirty LRU page: Recovered",
    ),
}
_MANY = 60


def _fault(name: str, about: str, text: str, *, gpu: int | None = None, times: int = 1) -> Fault:
    def line(outputs: Outputs) -> str:
        one = text if gpu is None else text.replace("{bus}", bus_of(outputs, gpu))
        return "\n".join([one, *(f"<4>[1295000.118204] {one}" for _ in range(times - 1))])

    return recorded(f"log-{name.replace('_', '-')}", about, "kernel_message", logged(line))


FAULTS: tuple[Fault, ...] = (
    *(_fault(name, about, text, gpu=2) for name, (about, text) in _OF_A_GPU.items()),
    *(_fault(name, about, text) for name, (about, text) in _ONCE.items()),
    *(_fault(name, about, text, times=_MANY) for name, (about, text) in _OFTEN.items()),
)
