"""The catalogue of the kernel's messages: what alarms is found and counted, what every healthy boot says is not."""

import pytest

from nodectl.checks.check import ACTIONS
from nodectl.checks.kernel import log as kernel_log
from nodectl.facts.board import Pcie
from nodectl.parsers.linux.dmesg import parse_dmesg
from nodectl.parsers.linux.kernel_messages import kernel_messages, message_of
from tests.checks.table import UNREAD, Case, found
from tests.lab.recorded_faults import RECORDED_FAULTS

BOOT = "[    0.000000] Linux version 5.15.0-91-generic (buildd@x)\n"
RESET = "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"
CORRECTED = "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0"


def log(*texts: str) -> dict[str, object]:
    return {"kernel_events": parse_dmesg(BOOT + "".join(f"[ 71.5] {text}\n" for text in texts))}


CASES = [
    Case("kernel_message", "ok", log()),
    Case("kernel_message", "failed", log(RESET), subject="nvme_reset", action="drain"),
    Case("kernel_message", "ok", log(*[CORRECTED] * 49)),
    Case("kernel_message", "warning", log(*[CORRECTED] * 50), subject="aer_corrected"),
    Case("kernel_message", "unknown", {"kernel_events": UNREAD}),
]


ALARMING = {
    "NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x24:0x65:1185)": "gpu_init",
    "NVRM: GPU 0000:41:00.0: rm_init_adapter failed, device minor number 0": "gpu_init",
    "pcieport 0000:00:01.0: AER: Multiple Uncorrected (Fatal) error received: 0000:01:00.0": "aer_fatal",
    "pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error message received from 0000:01:00.0": "aer_fatal",
    "mlx5_core 0000:0c:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer, (ID)": "aer_fatal",
    "pcieport 0000:00:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:01:00.0": "aer_nonfatal",
    "nvme nvme0: I/O tag 12 (a00c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting req_op:READ(0)": "nvme_timeout",
    "nvme nvme0: I/O 3 QID 0 timeout, reset controller": "nvme_timeout",
    "nvme nvme0: Device not ready; aborting reset, CSTS=0x1": "nvme_reset",
    "blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ)": "io_error",
    "Buffer I/O error on dev dm-0, logical block 0, async page read": "io_error",
    "Buffer I/O error on device sda1, logical block 12": "io_error",
    "EXT4-fs error (device nvme0n1p2): ext4_journal_check_start:83: Detected aborted journal": "ext4_error",
    "EXT4-fs (nvme0n1p2): Remounting filesystem read-only": "read_only",
    "XFS (dm-1): Corruption of in-memory data (0x8) detected at xfs_defer_finish.": "xfs_error",
    "XFS (dm-1): log I/O error -5": "xfs_error",
    "md/raid:md5: raid level 5 active with 3 out of 4 devices, algorithm 2": "md_degraded",
    "mlx5_core 0000:d2:00.0: poll_health:825: device's health compromised - reached miss count.": "mlx5_health",
    "mlx5_core 0000:1a:00.0: mlx5_pcie_event:9: Detected insufficient power on the PCIe slot (27W).": "mlx5_power",
    "infiniband rdmap0s6: Wait for completion (polling) timeout": "efa_admin",
    "infiniband rdmap16s27: The device didn't send any completion for admin cmd CREATE_QP(6) status 0": "efa_admin",
    "infiniband efa_0: Admin queue is closed": "efa_admin",
    "efa 0000:00:06.0: Device isn't ready, can't reset device": "efa_reset",
    "efa 0000:00:06.0: Device isn't ready, abort com init": "efa_reset",
    "infiniband rdmap0s6: Failed to submit command REG_MR (opcode 9) err -12": "efa_command",
    "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!": "nvlink_detection",
    "ixgbe 0000:41:00.0 eth0: Detected Tx Unit Hang": "tx_timeout",
    "tg3 0000:02:00.0 eno1: transmit timed out, resetting": "tx_timeout",
    "mlx5_core 0000:12:00.0: probe_one:1763:(pid 611): mlx5_init_one failed with error code -110": "probe_failed",
    "LustreError: 11-0: lfs01-OST0003-osc-ffff: operation ost_read to node 10.1.2.4@o2ib failed: rc = -107": "lustre",
    "[Hardware Error]: Uncorrected, software restartable error.": "hardware_error",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [kworker/3:1:4242]": "soft_lockup",
    "INFO: task kworker/u256:3:71 blocked for more than 241 seconds.": "hung_task",
    "NETDEV WATCHDOG: CPU: 3: eth0 (mlx5_core): transmit queue 5 timed out 5204 ms": "tx_timeout",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0": "edac_uncorrected",
    "EDAC MC1: UE page 0x0, offset 0x0, grain 8": "edac_uncorrected",
    "CPU12: Package temperature above threshold, cpu clock throttled (total events = 71)": "thermal_throttled",
    "mce: CPU3: Core temperature is above threshold, cpu clock is throttled (total events = 1)": "thermal_throttled",
    "nouveau 0000:01:00.0: DRM: VRAM: 8192 MiB": "nouveau",
    "nfs: server nas1 not responding, timed out": "nfs_server",
    "Oops: 0000 [#1] SMP NOPTI": "kernel_bug",
    "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP": "kernel_bug",
    "NVRM: _kgspProcessRpcEvent: Timeout after 6s of waiting for RPC response from GPU0 GSP! Expe": "gsp_timeout",
    "NVRM: GPU 0000:c1:00.0: kgspBootstrap_GH100: GSP-FMC reported an error while attempting to boot GSP": "gsp_boot",
    "NVRM: nvGpuOpsReportFatalError: uvm encountered fatal error 0x60, requiring os reboot to recover": "gpu_locked",
    "NVRM: No NVIDIA devices probed.": "gpu_not_probed",
    "nvidia: version magic '5.15.0-86-generic SMP ' should be '5.15.0-91-generic SMP '": "module_foreign",
    "nvidia 0000:3b:00.0: can't change power state from D3cold to D0 (config space inaccessible)": "pci_gone",
    "ixgbe 0000:03:00.0 eno1: Adapter removed": "pci_gone",
    "mlx5_core: probe of 0000:12:00.0 failed with error -110": "probe_failed",
    "nvme 0000:41:00.0: probe with driver nvme failed with error -12": "probe_failed",
    "nvidia 0000:3b:00.0: AER: can't recover (no error_detected callback)": "aer_not_recovered",
    "AMD-Vi: Event logged [INVALID_DEVICE_REQUEST device=41:00.0]": "iommu_fault",
    "nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR": "medium_error",
    "lost page write due to I/O error on sda1": "page_lost",
    "EXT4-fs (sda1): failed to convert unwritten extents to written extents -- potential data loss!": "page_lost",
    "EXT4-fs (sda1): Delayed block allocation failed for inode 12 at logical offset 0": "ext4_damaged",
    "EXT4-fs (nvme0n1p2): error count since last fsck: 12": "ext4_damaged",
    "EXT4-fs warning (device sda1): ext4_end_bio:345: I/O error 10 writing to inode 3145": "ext4_damaged",
    "XFS (dm-2): writeback error on sector 293847": "xfs_error",
    "XFS (dm-2): Metadata CRC error detected at xfs_agf_read_verify+0xde/0x100 [xfs]": "xfs_error",
    "XFS (sda1): xfs_do_force_shutdown(0x2) called from line 1277 of file fs/xfs/xfs_log.c.": "xfs_error",
    "BTRFS: error (device sda2) in btrfs_commit_transaction:2377: errno=-5 IO failure": "btrfs_error",
    "BTRFS warning (device sda2): csum failed root 5 ino 257 off 0": "btrfs_error",
    "ata1.00: disabled": "ata_error",
    "hpsa 0000:05:00.0: Controller lockup detected: 0x0": "raid_controller",
    "md/raid:md5: cannot start dirty degraded array.": "md_failed",
    "md: super_written gets error=-5": "md_failed",
    "NFS: nfs4_reclaim_open_state: Lock reclaim failed!": "nfs_stale",
    "mlx5_core 0000:12:00.0: Firmware over 120000 MS in pre-initializing state, aborting": "mlx5_health",
    "mlx5_core 0000:12:00.0 ens1f0: Error cqe on cqn 0x419, ci 0x0, sqn 0x15a, opcode 0xd": "rdma_catastrophic",
    "ice 0000:31:00.0 eth0: tx_timeout: VSI_num: 6, Q 3, NTC: 0x1": "tx_timeout",
    "bond0: Warning: No 802.3ad response from the link partner for any adapters in the bond": "bond_partner",
    "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-... } 21 jiffies": "rcu_stall",
    "INFO: task dd:456 blocked in I/O wait for more than 122 seconds.": "hung_task",
    "BUG: workqueue lockup - pool cpus=12 node=0 flags=0x0 nice=0 stuck for 33s!": "kernel_bug",
    "BUG: Bad page state in process python  pfn:12345": "kernel_bug",
    "Internal error: synchronous external abort: 96000410 [#1] SMP": "kernel_bug",
    "SError Interrupt on CPU12, code 0x00000000be000011 -- SError": "kernel_bug",
    "list_del corruption. prev->next should be ffff, but was dead": "kernel_bug",
    "NVRM: GPU 0000:13:00.0: GPU does not have the necessary power cables connected.": "gpu_power",
    "NVRM: installed in this system requires use of the NVIDIA open kernel modules.": "gpu_unsupported",
    "NVRM: installed in this system is not supported by the": "gpu_unsupported",
    "pcieport 0000:80:01.0: pciehp: Slot(3): Power fault": "slot_power",
    "pciehp 0000:00:1c.0:pcie004: Power fault on slot 12": "slot_power",
    "pcieport 0000:80:01.0: pciehp: Slot(3): Card not present": "pci_link_lost",
    "pcieport 0000:80:01.0: pciehp: Slot(3-1): Cannot train link: status 0x5811": "pci_link_lost",
    "pcieport 0000:80:01.0: broken device, retraining non-functional downstream link at 2.5GT/s": "pci_link_slow",
    "arm-smmu-v3 arm-smmu-v3.16.auto: event 0x10 received:": "iommu_fault",
    "AMD-Vi: Completion-Wait loop timed out": "iommu_stuck",
    "nvidia 0000:41:00.0: AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=0000:41:00.0 address=0x10a]": "iommu_stuck",
    "DMAR: VT-d detected Invalidation Time-out Error: SID 3b00": "iommu_stuck",
    "nvme nvme2: frozen state error detected, reset controller": "nvme_reset",
    "nvme nvme2: Identify Controller failed (-4)": "nvme_reset",
    "nvme nvme2: starting error recovery": "nvme_remote",
    "block nvme0n1: no usable path - requeuing I/O": "nvme_remote",
    "timeout error, dev nvme0n1, sector 8 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2": "io_error",
    "nvme0n1: I/O Cmd(0x2) @ LBA 81920, 8 blocks, Internal Error (sct 0x0 / sc 0x6) MORE DNR": "io_error",
    "nvme1n1: writeback error on inode 131, offset 0, sector 1234": "page_lost",
    "VFS: Dirty inode writeback failed for block device dm-1 (err=-5).": "page_lost",
    "sd 2:0:0:0: Device offlined - not ready after error recovery": "target_error",
    "sd 2:0:0:0: attempting task abort!scmd(0x00000000f1), outstanding for 30 ms & timeout 3 ms": "scsi_failed",
    "sd 0:0:0:0: [sda] tag#12 FAILED Result: hostbyte=DID_TIME_OUT driverbyte=DRIVER_OK cmd_age=30s": "scsi_failed",
    "sd 0:0:0:0: [sda] tag#12 Sense Key : Hardware Error [current]": "scsi_failed",
    "CIFS VFS: Server nas has not responded in 120 seconds. Reconnecting...": "cifs",
    "sd 2:0:0:0: [sda] Synchronize Cache(10) failed: Result: hostbyte=DID_BAD_TARGET": "scsi_failed",
    "ata3: reset failed, giving up": "ata_error",
    "ata3: limiting SATA link speed to 1.5 Gbps": "ata_error",
    "ata3.00: qc timeout after 5000 msecs (cmd 0xec)": "ata_error",
    "ata3.00: revalidation failed (errno=-5)": "ata_error",
    "mpt3sas_cm0: SAS host is non-operational !!!!": "raid_controller",
    "smartpqi 0000:65:00.0: controller is offline: status code 0x6100c": "raid_controller",
    "megaraid_sas 0000:65:00.0: 2764 (652345654s/0x0002/FATAL) - VD 00/0 is now OFFLINE": "raid_event",
    "device-mapper: multipath: 253:0: Failing path 8:16.": "multipath",
    "device-mapper: multipath: Failing path 8:32.": "multipath",
    "multipath: IO failure on sdb, disabling IO path.": "multipath",
    "device-mapper: thin: 253:2: switching pool to out-of-data-space (queue IO) mode": "device_mapper",
    "device-mapper: thin: 253:2: reached low water mark for data device: sending event.": "device_mapper",
    "device-mapper: crypt: dm-3: INTEGRITY AEAD ERROR, sector 40": "device_mapper",
    "device-mapper: raid1: Primary mirror (8:16) failed while out-of-sync: Reads may fail.": "device_mapper",
    "connection1:0: detected conn error (1022)": "san_lost",
    "rport-3:0-1: blocked FC remote port time out: removing target and saving binding": "san_lost",
    "md/raid:md5: Too many read errors, failing device sdc1.": "md_failed",
    "md/raid:md5: failed to run raid set.": "md_failed",
    "EXT4-fs (sda1): I/O error while writing superblock": "ext4_error",
    "XFS (dm-0): xfs_log_force: error -5 returned.": "xfs_error",
    "XFS (dm-0): log mount/recovery failed: error -117": "xfs_error",
    "WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended.": "zfs_suspended",
    "lockd: server nas1 not responding, still trying": "nfs_server",
    "NFS: nas1: lost 3 locks": "nfs_stale",
    "NFS: Server nas1 reports our clientid is in use": "nfs_clientid",
    "LNetError: 2:0:(o2iblnd_cb.c:34:kiblnd_check_txs()) Timed out tx for 10.1.2.4@o2ib: 4 seconds": "lustre",
    "mlx5_core 0000:d2:00.0: mlx5_health_try_recover:335: health recovery failed": "mlx5_health",
    "mlx5_core 0000:d2:00.0: Firmware is not responsive (0x0000) after 120000 ms": "mlx5_health",
    "bnxt_en 0000:c1:00.0 eth0: Detected firmware fatal condition, initiating reset": "mlx5_health",
    "bnxt_en 0000:c1:00.0 eth0: Firmware not responding, status: 0x8000": "mlx5_health",
    "mlx5_core 0000:d2:00.0: wait_func:1062: cmd[0]: ACCESS_REG(0x805) No done completion": "mlx5_command",
    "mlx5_core 0000:d2:00.0: ACCESS_REG(0x805) timeout while waiting for command semaphore.": "mlx5_command",
    "bnxt_en 0000:c1:00.0 eth0: Error (timeout: 500015) msg {0x23 0x3d} len:0": "mlx5_command",
    "bnxt_en 0000:c1:00.0: Abandoning msg {0x16 0x8} len: 0 due to firmware status: 0x8000": "mlx5_command",
    "bnxt_en 0000:c1:00.0 eth0: hwrm req_type 0x23 seq id 0x3d error 0xf": "mlx5_command",
    "bnxt_en 0000:c1:00.0 eth0: FW returned busy, hwrm req_type 0x51": "mlx5_command",
    "bnxt_en 0000:c1:00.0 bnxt_re0: FW STALL Detected. cmdq[0xe]=0x3 waited (102 > 100) msec active 1": "mlx5_command",
    "ice 0000:31:00.0: Firmware recovery mode detected. Limiting functionality.": "nic_stopped",
    "ixgbe 0000:31:00.0 eth0: Network adapter has been stopped because it has over heated.": "nic_stopped",
    "ena 0000:00:05.0 ens5: Keep alive watchdog timeout.": "nic_reset",
    "ice 0000:31:00.0: Malicious Driver Detection event 3 on TX queue 2 PF# 0 VF# 0": "nic_reset",
    "bnxt_en 0000:c1:00.0 eth0: Chip temperature has gone above the critical thermal threshold!": "mlx5_hot",
    "irdma 0000:31:00.0 rocep49s0: critical PE Error, GLPE_CRITERR=0x00000010": "rdma_catastrophic",
    "ixgbe 0000:41:00.0 eth0: initiating reset due to tx timeout": "tx_timeout",
    "ixgbe 0000:41:00.0 eth0: tx hang 2 detected on queue 3, resetting adapter": "tx_timeout",
    "gve 0000:00:05.0 ens5: TX timeout on queue 3. Scheduling reset.": "tx_timeout",
    "eth0: hw csum failure": "bad_checksums",
    "TCP: request_sock_TCP: Possible SYN flooding on port 10.0.0.1:29500. Sending cookies.": "syn_flood",
    "TCP: Out of socket memory": "tcp_memory",
    "cgroup: fork rejected by pids controller in /user.slice/user-1000.slice/session-3.scope": "pids_limit",
    "VFS: file-max limit 1048576 reached": "files_limit",
    "rcu: rcu_preempt kthread starved for 5250 jiffies! g1 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=3": "rcu_stall",
    "csd: Detected non-responsive CSD lock (#1) on CPU#3, waiting 5000000017 ns for CPU#12": "rcu_stall",
    "divide error: 0000 [#1] PREEMPT SMP NOPTI": "kernel_bug",
    "BUG kmalloc-64 (Tainted: P           OE    ): Poison overwritten": "kernel_bug",
    "BUG: non-zero pgtables_bytes on freeing mm: 4096": "kernel_bug",
    "Kernel panic - not syncing: stack-protector: Kernel stack is corrupted in: nvidia_ioctl": "kernel_bug",
    "Out of memory and no killable processes...": "oom_nobody",
    "Kernel panic - not syncing: System is deadlocked on memory": "oom_nobody",
    'irq 16: nobody cared (try booting with the "irqpoll" option)': "irq_disabled",
    "Disabling IRQ #16": "irq_disabled",
    "sched: RT throttling activated": "rt_throttled",
    "BERT: Error records from previous boot:": "boot_error",
    "BERT: Total records found: 2": "boot_error",
    "BERT: [Hardware Error]: Skipped 12 error records": "boot_error",
    "[Hardware Error]: System Fatal error.": "hardware_error",
    "Clocksource tsc unstable (delta = -171744960 ns)": "clock_unstable",
    "SLUB: Unable to allocate memory on node -1, gfp=0x800(GFP_NOWAIT)": "allocation_failed",
    "HugeTLB: allocating 512 of page size 2.00 MiB failed.  Only allocated 200 hugepages.": "hugepages_missing",
    "RAS: Soft-offlining pfn: 0x8f2a31": "page_retired",
    "IPMI Watchdog: Unexpected close, not stopping watchdog!": "bmc_watchdog",
}
HARMLESS = [
    "nvidia: loading out-of-tree module taints kernel.",
    "snd_hda_intel 0000:01:00.1: Unable to change power state from D3hot to D0, device inaccessible",
    "ucsi_ccg: probe of 0-0008 failed with error -110",
    "pcieport 0000:16:01.0: pciehp: Slot(1): Link Up",
    "nvme0: Identify(0x6), Invalid Field in Command (sct 0x0 / sc 0x2) DNR",
    "EXT4-fs (sda1): INFO: recovery required on readonly filesystem",
    "EXT4-fs warning (device dm-0): ext4_multi_mount_protect:320: MMP interval 42 higher than expected, please wait.",
    "BTRFS warning (device sda2): excessive commit interval 300",
    "workqueue: nv_drm_handle hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
    "Command line: BOOT_IMAGE=/vmlinuz root=/dev/md0 ro modprobe.blacklist=nouveau iommu=pt",
    "nvme nvme0: Shutdown timeout set to 10 seconds",
    "nvme nvme0: 64/0/0 default/read/poll queues",
    "nvme nvme0: missing or invalid SUBNQN field.",
    "EXT4-fs (md0): mounted filesystem with ordered data mode. Opts: (null). Quota mode: none.",
    "EXT4-fs (md0): re-mounted. Opts: errors=remount-ro. Quota mode: none.",
    "EXT4-fs (sda2): mounted filesystem 0f7b ro with ordered data mode. Quota mode: none.",
    "XFS (nvme1n1): Mounting V5 Filesystem",
    "XFS (nvme1n1): Ending clean mount",
    "XFS (nvme1n1): Unmounting Filesystem",
    "md/raid1:md0: active with 2 out of 2 mirrors",
    "md/raid:md5: raid level 5 active with 4 out of 4 devices, algorithm 2",
    "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:3a:0a.0 (INTERRUPT)",
    "EDAC igen6 MC0: ADDR 0x7fffffffe0",
    "pcieport 0000:00:01.0: AER: enabled with IRQ 24",
    "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug SHPCHotplug PME AER PCIeCapability LTR DPC]",
    "pcieport 0000:00:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+",
    "DMAR: DRHD base: 0x000000fed90000 flags: 0x1",
    "DMAR: IOMMU enabled",
    "AMD-Vi: Interrupt remapping enabled",
    "mlx5_core 0000:0c:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:0c:00.0: E-Switch: Total vports 2, per vport: max uc(128) max mc(2048)",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "mce: CPU3: Core temperature/speed normal (total events = 1)",
    "rcu: Hierarchical RCU implementation.",
    "rcu: \tRCU CPU stall warnings timeout set to 60 (rcu_cpu_stall_timeout).",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "clocksource: tsc: mask: 0xffffffffffffffff max_cycles: 0x2b0, max_idle_ns: 440795 ns",
    "tsc: Marking TSC stable due to hypervisor",
    "traps: python3[71] general protection fault ip:7f sp:7f error:0 in libc.so.6[7f+1000]",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build",
    "nvidia-nvswitch0: using MSI",
    "ata1: SATA link up 6.0 Gbps (SStatus 133 SControl 300)",
    "sr 0:0:0:0: [sr0] scsi3-mmc drive: 0x/0x cd/rw xa/form2 cdda tray",
    "I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
    "Buffer I/O error on dev sr0, logical block 0, async page read",
    "nfs: server nas1 OK",
    "NFS: Registering the id_resolver key type",
    "Lustre: Lustre: Build Version: 2.15.4",
    "libceph: mon0 (1)10.0.0.5:6789 session established",
    "BTRFS info (device sdb1): using crc32c checksum algorithm",
    "GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.",
    "software IO TLB: mapped [mem 0x000000005c000000-0x0000000060000000] (64MB)",
    "thermal_sys: Registered thermal governor 'step_wise'",
    "perf: interrupt took too long (2503 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
    "ata2: SATA link down (SStatus 0 SControl 300)",
    "pcieport 0000:16:01.0: pciehp: Slot(1): Card present",
    "pcieport 0000:16:01.0: pciehp: Slot(1): Link Down/Up ignored (recovered by DPC)",
    "pcieport 0000:16:01.0: pciehp: Slot #1 AttnBtn- PwrCtrl+ MRL- AttnInd- PwrInd- HotPlug+ Surprise+ Interlock-",
    "mlx5_core 0000:12:00.0: mlx5_pcie_event:296:(pid 9): PCIe slot advertised sufficient power (75W).",
    # healthy machines say it of each of their adapters
    "ACPI: BERT 0x000000006F7B4000 000030 (v01 DELL   PE_SC3   00000001 DELL 00000001)",
    "BERT: Boot Error Record Table support is disabled. Enable it by using bert_enable as kernel parameter.",
    "device-mapper: multipath: version 1.14.0 loaded",
    "device-mapper: multipath service-time: version 0.3.0 loaded",
    "device-mapper: ioctl: 4.45.0-ioctl (2021-03-22) initialised: dm-devel@redhat.com",
    "device-mapper: thin: 253:2: switching pool to write mode",
    "nvidia-uvm: Loaded the UVM driver, major device number 509.",
    "IPMI Watchdog: driver initialized",
    "ipmi_si IPI0001:00: IPMI kcs interface initialized",
    "megaraid_sas 0000:65:00.0: 2764 (652345654s/0x0020/INFO) - Patrol Read started",
    "NFS: v4 server nas1  does not accept raw uid/gids. Reenabling the idmapper.",
    "ZFS: Loaded module v2.1.5-1, ZFS pool version 5000, ZFS filesystem version 5",
    "HugeTLB: registered 2.00 MiB page size, pre-allocated 0 pages",
    "ice 0000:31:00.0: The DDP package was successfully loaded: ICE OS Default Package version 1.3.30.0",
    "audit: initializing netlink subsys (disabled)",
    "critical target error, dev sda, sector 2048 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 0",
    "critical target error, dev nvme1n1, sector 0 op 0x9:(WRITE_ZEROES) flags 0x400 phys_seg 0 prio class 0",
    # a BMC's virtual drive without a medium
    "sd 2:0:0:0: [sdb] tag#0 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK cmd_age=0s",
    "sd 2:0:0:0: [sdb] tag#0 Sense Key : Not Ready [current]",
    "sd 2:0:0:0: [sdb] tag#0 Add. Sense: Medium not present",
    "sd 8:0:0:0: [sdc] tag#0 Sense Key : Illegal Request [current]",
    "clocksource: Switched to clocksource tsc",
]


@pytest.mark.parametrize(("text", "name"), ALARMING.items())
def test_an_alarming_line_is_found_by_its_entry(text: str, name: str) -> None:
    (finding,) = found(kernel_log, Case("kernel_message", "", log(text)))
    assert finding.subject == name and finding.status.value in ("failed", "warning") and finding.remedy
    assert text[:40] in finding.evidence


@pytest.mark.parametrize(
    "text",
    [
        'audit: type=1326 audit(1.0:2): comm="EXT4-fs error (device sda1)" exe="/bin/x"',
        'audit: type=1400 audit(1.0:3): name="NVRM: Xid (PCI:0000:07:00): 79, pid=1" comm="sh"',
        "mce: Machine check injector initialized",
        "x86/mce: Machine check polling timer started",
    ],
)
def test_what_is_quoted_or_only_started_is_no_event(text: str) -> None:
    assert parse_dmesg(f"[    1.000000] Linux version 6.8.0\n[   99.100000] {text}\n").events == ()


@pytest.mark.parametrize("text", HARMLESS)
def test_what_a_healthy_boot_says_is_no_message(text: str) -> None:
    assert message_of(text) is None


def test_many_lines_of_one_kind_are_one_finding_that_counts_and_names_the_parts() -> None:
    texts = [f"nvme nvme{number}: I/O 1 QID 2 timeout, aborting" for number in (0, 0, 3, 4, 5, 6)]
    (finding,) = found(kernel_log, Case("kernel_message", "", log(*texts)))
    assert "6 lines since boot, last at 71.5 (nvme0: 2, nvme3, nvme4, nvme5, 1 more)" in finding.actual


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("NETDEV WATCHDOG: eno1 (ixgbe): transmit queue 4 timed out", "eno1"),
        ("NETDEV WATCHDOG: CPU: 3: eth0 (mlx5_core): transmit queue 5 timed out 5204 ms", "eth0"),
        ("mlx5_core 0000:12:00.0 ens1f0: NETDEV WATCHDOG: CPU: 3: transmit queue 5 timed out 5080 ms", "ens1f0"),
        ("bnxt_en 0000:c1:00.0 eth0: TX timeout detected, starting reset task!", "eth0"),
        ("blk_update_request: critical medium error, dev sdc, sector 888", "sdc"),
        ("nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR", "nvme0n1"),
    ],
)
def test_the_part_is_named_in_each_wording(text: str, part: str) -> None:
    (finding,) = found(kernel_log, Case("kernel_message", "", log(text)))
    assert f"({part})" in finding.actual


def test_older_kernels_name_the_page_of_a_process_that_memory_killed() -> None:
    (event,) = parse_dmesg(BOOT + "[ 71.5] MCE 0x3c0a1f: Killing python:1234 due to hardware memory corruption").events
    assert (event.kind, event.pid, event.process) == ("mce", 1234, "python")


def test_only_the_newest_boot_of_several_counts() -> None:
    old, new = f"{BOOT}[ 71.5] {RESET}\n", f"{BOOT}[  2.5] eth0: fine\n"
    assert parse_dmesg(old + new).events == ()
    assert [event.kind for event in parse_dmesg(new + old).events] == ["nvme_reset"]
    journal = "-- Systemstart 0123456789abcdef0123456789abcdef --\nOct 12 08:00:00 n1 kernel: "
    (event,) = parse_dmesg(f"{journal}{RESET}\n{journal}{RESET.replace('nvme1', 'nvme7')}\n").events
    assert event.device == "nvme7"


def test_a_log_with_its_newest_line_first_is_read_down_to_its_boot() -> None:
    lines = [f"[ 9.0] {RESET}", BOOT.strip(), f"[ 99.0] {RESET}", f"[ 98.0] {RESET}", BOOT.strip()]
    assert [event.time for event in parse_dmesg("\n".join(lines)).events] == ["9.0"]


def test_hosts_side_by_side_are_all_read() -> None:
    text = "".join(f"n{number}: {BOOT}n{number}: [ 1.5] {RESET}\n" for number in (1, 2))
    assert len(parse_dmesg(text).events) == 2


def test_each_entry_says_what_to_do_and_a_fault_shows_it() -> None:
    for name, message in kernel_messages().items():
        assert message.action in ACTIONS and message.remedy and message.source.count(":") >= 1
        assert message.status == "ok" or f"log-{name.replace('_', '-')}" in RECORDED_FAULTS, name


def test_the_device_below_a_port_is_named() -> None:
    told = log("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:41:00.0")
    (finding,) = found(kernel_log, Case("kernel_message", "", told))
    assert "(0000:41:00.0)" in finding.actual
    shut = log("pcieport 0000:00:01.0: DPC: containment event, status:0x1f01 source:0x0000")
    tree = {"0000:41:00.0": "0000:00:01.0", "0000:41:00.1": "0000:00:01.0"}
    (finding,) = found(kernel_log, Case("kernel_message", "", {**shut, "pcie": Pcie((), (), tree)}))
    assert "(0000:41:00.0 below 0000:00:01.0)" in finding.actual
