"""A stand-in for AMD's management library: vLLM asks it which GPUs there are and hears of one MI355X.

FAKE_GCN_ARCH names another architecture.
"""

import os
from enum import IntEnum


class AmdSmiException(Exception):  # noqa: N818  amdsmi's own name
    pass


class AmdSmiMemoryType(IntEnum):
    VRAM = 0


class AmdSmiLinkType(IntEnum):
    AMDSMI_LINK_TYPE_XGMI = 2


def amdsmi_init(*arguments: object) -> None:
    pass


def amdsmi_shut_down() -> None:
    pass


def amdsmi_get_processor_handles() -> list[int]:
    return [0]


def amdsmi_get_gpu_asic_info(handle: int) -> dict[str, str]:
    architecture = os.environ.get("FAKE_GCN_ARCH", "gfx950")
    return {
        "target_graphics_version": architecture,
        "market_name": "AMD Instinct MI355X",
        "device_id": "0x75a3",
    }


def amdsmi_get_gpu_device_uuid(handle: int) -> str:
    return "00000000-0000-0000-0000-000000000000"


def amdsmi_get_gpu_memory_total(handle: int, kind: int) -> int:
    return 288 << 30


def amdsmi_topo_get_link_type(a: int, b: int) -> dict[str, int]:
    return {"hops": 1, "type": 2}


def amdsmi_topo_get_numa_node_number(handle: int) -> int:
    return 0
