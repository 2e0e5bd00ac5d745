// The state of a wave and the decoded form of an instruction: what every file of the core shares.
//
// Python (cdna4_ext.py) owns the memory of all of these, decodes each instruction once into an Insn, and mirrors Insn,
// Wave and View as ctypes structures; core_insn_size and core_wave_size let it check that both sides agree.
//   sgpr[0..127]   SGPRs, VCC, M0 and EXEC at their operand codes; [128..250] the inline constants; SCC; the PC
//   vgpr[reg * 64 + lane], acc[reg * 64 + lane]   vector and accumulation registers
// An operand code is what the encoding holds: 0..127 SGPR, 128..248 constant, 255 literal, 256 and more VGPR.
#pragma once
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

enum { LANES = 64 };
#define EACH_LANE for (int l = 0; l < LANES; l++)

enum { VCC = 106, M0 = 124, EXEC = 126, SCC = 253, PC = 256 };              // places in sgpr[]
enum { VCCZ = 251, EXECZ = 252, LITERAL = 255, VGPR = 256 };                // operand codes that are no place

// Insn.kind: which function runs an instruction. The order is that of KINDS in Python.
enum {
    K_NONE, K_VALU, K_VOPC, K_VOP3P, K_SALU, K_SMEM, K_BRANCH, K_BARRIER, K_END, K_NOP, K_LANE, K_VMEM, K_DS, K_MFMA,
    K_CVTS, K_SETREG, K_GETREG, K_PCREL, K_TRAP, K_ACC, K_WAIT, K_IDX, K_VSKIP, K_CACHE,
};

// Why core_run returned. Also what the function of a kind returns: 0 (R_END) when all went well, R_FAULT or R_BADOP.
enum { R_END, R_BARRIER, R_DECODE, R_LIMIT, R_FAULT, R_TRAP, R_BADOP };

typedef struct {
    i32 kind, op, size, dst, s0, s1, s2, sdst;     // op counts within its kind; dst: a register, s*: operand codes
    u32 lit;
    i32 abs, neg, omod, clamp, opsel, opsel_hi, neg_hi;  // modifiers, one bit for each source where there are several
    i32 imm;
    i32 dpp, row_mask, bank_mask, bc;                    // dpp: control + 1, or 0
    i32 sdwa, sel0, sel1, dsel, dunused, sext0, sext1;   // sdwa: 1 or 0
    union {                                              // what else a kind needs; Python fills x by index
        i32 x[20];
        struct { i32 truth_table; } valu;                // of v_bitop3
        struct { i32 type, relation, is_class, writes_exec; } vopc;                   // see compare.c
        struct { i32 wide0, wide1; } salu;                                            // a source is 64 bits wide
        struct { i32 dwords, soffset, is_buffer; } smem;                              // soffset: an SGPR or -1
        struct { i32 fetch_inactive, bound_ctrl; } lane;                              // of the permlane swaps
        struct { i32 move; } acc;                                                     // see lanes.c
        struct { i32 direction, narrow, wide, count, scaled, scale_source, two_sources, source_pair; } cvt;
        struct {
            i32 space, op, bytes, sext, d16, agpr, returns, atomic, to_lds, saddr, has_vaddr, srsrc, soffset, offen,
                idxen, sc1;
        } mem;                                                                        // see memory.c
        struct { i32 op, bytes, sext, d16, agpr, offset0, offset1, unit, returns, atomic, element_bits; } ds;
        struct {
            i32 M, N, K, blocks, type[2], result, agpr[2], agpr_cd, scaled, scale[2], scale_byte[2], split8;
        } mfma;                                                                       // see matrix.c
        struct { i32 enable; } idx;                      // which operands M0 offsets
        struct { i32 id, offset, size; } hwreg;          // of s_setreg and s_getreg
    };
    u64 count;                                           // times executed
} Insn;

typedef struct {
    u64 lo, hi;
} Range;

// A vector memory operation that has been issued and not been waited for; see workgroup_view.c
enum { P_NONE, P_LDS, P_POSTED };
typedef struct {
    u64 what, lanes, lbase, step;       // lbase, step: place in LDS and bytes a lane
    u32 data[LANES][4];
    u64 addr[LANES], lo, hi;            // of a posted operation; [lo, hi) holds all of addr
    i32 op, size;                       // atomic operation, or -1: a store
} Pend;
enum { NPEND = 64 };

// 128 bytes of memory as a workgroup sees them, one bit a byte. valid: it has them; dirty: only it has them
typedef struct {
    u64 tag, valid[2], dirty[2];        // tag: address / 128, or 0: free
    u8 data[128];
} Line;

typedef struct Wave Wave;
typedef struct Races Races;            // see races.c

// A workgroup's view of memory: a hash table of lines. See workgroup_view.c
typedef struct {
    Line *line;
    u64 cap, n;
    Wave **wave;                        // the workgroup's waves
    u64 nwaves, nposted;                // posted: operations of theirs that have not reached memory
} View;

enum { FAULT_LOAD = 1, FAULT_STORE, FAULT_LDS, FAULT_SCRATCH };
struct Wave {
    u32 *sgpr, *vgpr, *acc;
    u8 *lds;
    u64 lds_size;
    u8 *scratch;
    u64 scratch_stride;                 // bytes of each lane
    Range *ranges;
    u64 nranges;                        // memory that may be touched; none: no check
    u64 mode, hwid, xcc, icount;        // hardware registers, and instructions executed
    u64 fault_addr, fault_lane, fault_size, fault_kind;
    Pend *pend;
    u64 npend;                          // oldest first; pend == NULL: everything finishes at once
    View *view;                         // NULL: one memory that all see at once
    Races *races;                       // NULL: nobody looks for them
    u64 index, pc;                      // which wave of its workgroup; where it is, from the start of the code
};

static inline u64 ld64(const u32 *p)
{
    return p[0] | (u64)p[1] << 32;
}
static inline void st64(u32 *p, u64 v)
{
    p[0] = (u32)v;
    p[1] = (u32)(v >> 32);
}
static inline u64 exec_mask(const Wave *w)
{
    return ld64(w->sgpr + EXEC);
}
// Bits of the MODE register
static inline int f16_saturates(const Wave *w)
{
    return w->mode >> 23 & 1;
}
static inline int ieee_mode(const Wave *w)
{
    return w->mode >> 9 & 1;
}

static inline int fault(Wave *w, int kind, u64 address, int lane, u64 size)
{
    w->fault_addr = address;
    w->fault_lane = lane;
    w->fault_size = size;
    w->fault_kind = kind;
    return R_FAULT;
}

// One function for each kind of instruction that does more than steer the loop
int valu(Wave *w, Insn *I);          // valu.c
int vopc(Wave *w, Insn *I);          // compare.c
int vop3p(Wave *w, Insn *I);         // packed.c
int cvts(Wave *w, Insn *I);          // convert.c
int lane_op(Wave *w, Insn *I);       // lanes.c
int acc_op(Wave *w, Insn *I);        // lanes.c
int salu(Wave *w, Insn *I);          // scalar.c
int smem(Wave *w, Insn *I);          // scalar.c
int vmem(Wave *w, Insn *I);          // memory.c
int ds(Wave *w, Insn *I);            // lds.c
int mfma(Wave *w, Insn *I);          // matrix.c

enum { L_READFIRST, L_READ, L_WRITE, L_SWAP16, L_SWAP32, L_SWAP };  // Insn.op of K_LANE
