"""Registers and LDS of a kernel, and how many of its workgroups fit on a compute unit of gfx950."""

from .code_object import KernelCode

# CDNA4: a compute unit (CU) has 4 SIMDs and 160 KiB of LDS; a SIMD has 512 VGPRs a lane, 800 SGPRs, slots for 8 waves
SIMDS, VGPRS, SGPRS, WAVES, LDS = 4, 512, 800, 8, 160 * 1024
VGPR_GRANULE, SGPR_GRANULE, LDS_GRANULE = 8, 16, 1280


def resources(kernel: KernelCode) -> dict[str, int]:
    """What the metadata note and the descriptor say; sizes in bytes."""
    note, descriptor = kernel.metadata, kernel.descriptor
    agpr, total = note.get(".agpr_count", 0), note.get(".vgpr_count", 0)
    return {
        "vgpr_total": total,  # one file: accum_offset + agprs where agprs are used
        "arch_vgpr": min(descriptor.accum_offset, total) if agpr else total,
        "agpr": agpr,
        "accum_offset": descriptor.accum_offset,
        "sgpr": note.get(".sgpr_count", 0),
        "vgpr_spill": note.get(".vgpr_spill_count", 0),
        "sgpr_spill": note.get(".sgpr_spill_count", 0),
        "scratch_bytes_per_lane": note.get(".private_segment_fixed_size", 0),
        "lds_static": note.get(".group_segment_fixed_size", 0),
        "max_wg": note.get(".max_flat_workgroup_size", 0),
        "code_bytes": kernel.size,
        "preload_dwords": descriptor.preload_length,
    }


def _granules(n: int, granule: int) -> int:
    return (n + granule - 1) // granule * granule


def occupancy(used: dict[str, int], waves: int, lds: int) -> dict[str, float]:
    """Waves a SIMD and workgroups a CU that fit, by each limit and by all; of `waves` and `lds` bytes a workgroup."""
    by_vgpr = min(VGPRS // _granules(max(used["vgpr_total"], 1), VGPR_GRANULE), WAVES)
    by_sgpr = min(SGPRS // _granules(max(used["sgpr"], 1), SGPR_GRANULE), WAVES)
    by_registers = min(by_vgpr, by_sgpr) * SIMDS // waves
    by_lds = LDS // _granules(lds, LDS_GRANULE) if lds else 1 << 30
    workgroups = min(by_registers, by_lds, 16 if waves > 1 else 32)
    return {
        "waves_per_simd_by_vgpr": by_vgpr,
        "waves_per_simd_by_sgpr": by_sgpr,
        "wg_per_cu_by_regs": by_registers,
        "wg_per_cu_by_lds": by_lds,
        "wg_per_cu": workgroups,
        "waves_per_simd": workgroups * waves / SIMDS,
    }
