"""The shape of a profile: every field that exists, so that a typo is refused with its path."""

from nodectl.profiles.fields import Document, Setting, Strict, Version
from nodectl.profiles.hardware_schema import Floor, Gpu, GpuLink, Hardware, Nic
from nodectl.profiles.stack_schema import Driver, PythonRange, Stack
from nodectl.profiles.tuning_schema import GpuSettings, NcclSetting, NicSettings, SysctlSetting, Tuning

__all__ = [
    "Document",
    "Driver",
    "Floor",
    "Gpu",
    "GpuLink",
    "GpuSettings",
    "Hardware",
    "NcclSetting",
    "Nic",
    "NicSettings",
    "PythonRange",
    "Setting",
    "Stack",
    "Strict",
    "SysctlSetting",
    "Tuning",
    "Version",
]
