"""Instructions on global memory, scratch and LDS: GLOBAL, FLAT, SCRATCH, MUBUF and DS."""

import re

from .instruction import Instruction, signed
from .structures import Insn, Kind

FAMILIES = ("GLOBAL", "FLAT", "SCRATCH", "MUBUF", "DS")
GLOBAL, SCRATCH, BUFFER = 0, 1, 2  # x[0] of VMEM
LOAD, STORE, ATOMIC = 0, 1, 2  # its x[1]
WHOLE, LOW_HALF, HIGH_HALF = 0, 1, 2  # which part of the register a narrow access means
NO_SGPR = 0x7F
WRITE_BACK, INVALIDATE = 1, 2  # imm of CACHE

LOAD_STORE = re.compile(r"(load|store)_(ubyte|sbyte|byte|ushort|sshort|short|dword(?:x\d)?)(_d16)?(_hi)?")
DS_TRANSPOSED = re.compile(r"ds_read_b(\d+)_tr_b(\d+)")
DS_TWO = re.compile(r"ds_(read|write)2(st64)?_b(32|64)")
DS_BY_THREAD = re.compile(r"ds_(read|write)_addtid_b32")
DS_ONE = re.compile(r"ds_(read|write)_([biu])(\d+)(_d16)?(_hi)?")
DS_ATOMIC = re.compile(r"ds_(\w+?)_(rtn_)?([biuf]\d\d|pk_f16|bf16|f16)")
# x[0] of DS; READ, WRITE and the forms that take two addresses or none come in pairs
DS_READ, DS_READ2, DS_ATOMICALLY, DS_READ_TRANSPOSED, DS_READ_BY_THREAD = 0, 2, 4, 8, 9
DS_LANES = {"ds_bpermute_b32": 5, "ds_permute_b32": 6, "ds_swizzle_b32": 7}

# The core's numbers for atomic operations
ATOMICS = {
    "swap": 0, "cmpswap": 1, "add": 2, "sub": 3, "rsub": 4, "smin": 5, "umin": 6, "smax": 7, "umax": 8, "and": 9,
    "or": 10, "xor": 11, "inc": 12, "dec": 13, "add_f32": 14, "add_f64": 14, "min_f64": 15, "max_f64": 16,
    "pk_add_f16": 17, "pk_add_bf16": 18,
}  # fmt: skip
DS_ATOMICS = {**ATOMICS, "fmin": 15, "fmax": 16, "mskor": 19, "wrap": 20}
RETURNS = ("wrxchg", "wrap")  # whether or not they are named _rtn


def fill(insn: Insn, instruction: Instruction, family: str) -> None:
    if family == "DS":
        _lds(insn, instruction)
    else:
        _memory(insn, instruction, family)


def _memory(insn: Insn, instruction: Instruction, family: str) -> None:
    """x: space, operation, bytes, sign-extended, part of the register, data in AccVGPRs; of an atomic whether the old
    value is returned, and which it is; whether to LDS; SGPR of the base or -1, whether scratch adds a VGPR; of a buffer
    its SGPRs, the operand with an offset, whether a VGPR has an offset, an index; sc1, which goes past the caches.
    """
    field = instruction.field
    operation = instruction.mnemonic.split("_", 1)[1]
    if operation in ("inv", "wbl2"):  # without sc1 they reach no further than the workgroup, which has one view
        insn.kind = Kind.CACHE if field("sc1") else Kind.NOP
        insn.imm = INVALIDATE if operation == "inv" else WRITE_BACK
        return
    insn.kind = Kind.VMEM
    _address(insn, instruction, family)
    insn.x[5], insn.x[15] = field("acc"), field("sc1")
    if operation.startswith("load_lds_"):
        insn.x[8], operation = 1, operation.replace("lds_", "")
    plain = LOAD_STORE.fullmatch(operation)
    if plain:
        what = plain[2]
        insn.x[1] = STORE if plain[1] == "store" else LOAD
        insn.x[2] = 1 if "byte" in what else 2 if "short" in what else 4 * int(what[6:] or 1)
        insn.x[3] = what in ("sbyte", "sshort")
        insn.x[4] = HIGH_HALF if plain[4] else LOW_HALF if plain[3] else WHOLE
        return
    which = operation.removeprefix("atomic_").removesuffix("_x2")
    if which not in ATOMICS:
        raise instruction.unsupported()
    insn.x[1], insn.x[2] = ATOMIC, 8 if operation.endswith(("_x2", "f64")) else 4
    insn.x[6], insn.x[7] = field("sc0"), ATOMICS[which]


def _address(insn: Insn, instruction: Instruction, family: str) -> None:
    field = instruction.field
    if family == "MUBUF":
        insn.s0, insn.s1, insn.dst, insn.imm = field("vaddr"), field("vdata"), field("vdata"), field("offset")
        insn.x[0], insn.x[8], insn.x[9] = BUFFER, field("lds"), -1
        insn.x[11], insn.x[12] = field("srsrc") * 4, field("soffset")
        insn.x[13], insn.x[14] = field("offen"), field("idxen")
        return
    insn.s0, insn.s1, insn.dst, insn.imm = field("addr"), field("data"), field("vdst"), field("offset")
    insn.x[0], insn.x[9], insn.x[10] = SCRATCH if family == "SCRATCH" else GLOBAL, -1, field("sve")
    if family != "FLAT":
        insn.imm = signed(insn.imm, 13)
        if field("saddr") != NO_SGPR:
            insn.x[9] = field("saddr")


def _lds(insn: Insn, instruction: Instruction) -> None:
    """x: form, bytes, sign-extended, part of the register, data in AccVGPRs, both offsets, bytes that they count; of an
    atomic whether it returns the old value, and which it is; bits of an element of a transposed read.
    """
    field, name, x = instruction.field, instruction.mnemonic, insn.x
    if field("gds"):
        raise instruction.unsupported("GDS")
    insn.kind = Kind.DS
    insn.s0, insn.s1, insn.s2, insn.dst = field("addr"), field("data0"), field("data1"), field("vdst")
    x[4], x[5], x[6] = field("acc"), field("offset0"), field("offset1")
    if name in DS_LANES:
        x[0] = DS_LANES[name]
    elif name == "ds_nop":
        insn.kind = Kind.NOP
    elif form := DS_TRANSPOSED.fullmatch(name):
        x[0], x[1], x[10] = DS_READ_TRANSPOSED, int(form[1]) // 8, int(form[2])
    elif form := DS_TWO.fullmatch(name):
        x[0], x[1] = DS_READ2 + (form[1] == "write"), int(form[3]) // 8
        x[7] = x[1] * (64 if form[2] else 1)
    elif form := DS_BY_THREAD.fullmatch(name):
        x[0], x[1] = DS_READ_BY_THREAD + (form[1] == "write"), 4
    elif form := DS_ONE.fullmatch(name):
        x[0], x[1], x[2] = DS_READ + (form[1] == "write"), int(form[3]) // 8, form[2] == "i"
        x[3] = HIGH_HALF if form[5] else LOW_HALF if form[4] else WHOLE
    elif form := DS_ATOMIC.fullmatch(name):
        which = _lds_atomic(form[1], form[3])
        if which not in DS_ATOMICS:
            raise instruction.unsupported()
        x[0], x[1] = DS_ATOMICALLY, 8 if form[3][1:] == "64" else 4
        x[8], x[9] = bool(form[2]) or form[1] in RETURNS, DS_ATOMICS[which]
    else:
        raise instruction.unsupported()


def _lds_atomic(operation: str, type_: str) -> str:
    """Its name in DS_ATOMICS."""
    if operation == "add" and type_[0] == "f":
        return "add_f32"
    if operation in ("min", "max"):
        return {"i": "s", "u": "u"}.get(type_[0], "f") + operation
    return {"wrxchg": "swap", "cmpst": "cmpswap", "pk_add": f"pk_add_{type_}"}.get(operation, operation)
