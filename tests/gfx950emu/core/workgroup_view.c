// What one workgroup sees of another: the memory model (docs/memory.md says what follows from it).
//
// The device has eight L2 caches that the hardware does not keep coherent, and an L1 in each CU. LLVM's memory model
// for gfx942 and gfx950, at agent scope, promises order between workgroups of a launch only by these steps:
//
//     plain load, store       no cache bits; the caches of one agent may be several
//     relaxed load, store     sc1: past the caches
//     relaxed atomic          the instruction alone: past the caches
//     release                 buffer_wbl2 sc1, s_waitcnt vmcnt(0), then the atomic
//     acquire                 the atomic, s_waitcnt vmcnt(0), then buffer_inv sc1
//     barrier in a workgroup  orders its waves; does not wait for stores
//     distinct bytes          are distinct places, also within one cache line
//     end of a launch         all caches are written back and invalidated
//
// Here each workgroup has a cache of its own, which keeps what it has read and written for as long as the model
// allows, at worst until the launch ends; and what goes past the caches takes as long as the model allows too: it is
// posted, and reaches memory when its wave waits for it. A program that forgets a step thus reads old data here. Each
// part below says which of the rules it stands for.
#include "cache_lines.h"
#include "memory.h"
#include "races.h"

// ── bytes ───────────────────────────────────────────────────────────────────────────────────────────────────────────
// Rule "distinct bytes": of a line, only the bytes that this workgroup wrote go to memory
static void write_back(Line *L, Bytes which)
{
    u64 dirty[2] = {L->dirty[0] & which.lo, L->dirty[1] & which.hi};
    for (int h = 0; h < 2; h++) {
        L->dirty[h] &= ~dirty[h];
        for (u64 left = dirty[h]; left; left &= left - 1) {
            int b = h * 64 + __builtin_ctzll(left);
            memory_of(L)[b] = L->data[b];
        }
    }
}

// ── plain loads and stores ──────────────────────────────────────────────────────────────────────────────────────────
// Rule "plain load": it may see a line as it was when the workgroup first touched it, whatever others have stored.
// A miss fetches the whole line, so that a neighbour's bytes grow old too.
void view_read(View *v, u64 a, u8 *t, int n)
{
    if (!v) {
        memcpy(t, (void *)a, n);
        return;
    }
    EACH_PIECE(p, a, n) {
        Line *L = find_line(v, p.at / LINE, 1);
        Bytes need = bytes_of(p.offset, p.bytes);
        if (~L->valid[0] & need.lo || ~L->valid[1] & need.hi) {
            const u8 *memory = memory_of(L);
            if (!(L->valid[0] | L->valid[1]))
                memcpy(L->data, memory, LINE);
            else
                for (int b = 0; b < LINE; b++)
                    if (!(L->valid[b >> 6] >> (b & 63) & 1))
                        L->data[b] = memory[b];
            L->valid[0] = L->valid[1] = ~0ull;
        }
        memcpy(t + (p.at - a), L->data + p.offset, p.bytes);
    }
}

// Rule "plain store": nobody else need see it before a release
void view_write(View *v, u64 a, const u8 *t, int n)
{
    if (!v) {
        memcpy((void *)a, t, n);
        return;
    }
    EACH_PIECE(p, a, n) {
        Line *L = find_line(v, p.at / LINE, 1);
        Bytes written = bytes_of(p.offset, p.bytes);
        memcpy(L->data + p.offset, t + (p.at - a), p.bytes);
        L->valid[0] |= written.lo;
        L->valid[1] |= written.hi;
        L->dirty[0] |= written.lo;
        L->dirty[1] |= written.hi;
    }
}

// ── past the caches ─────────────────────────────────────────────────────────────────────────────────────────────────
// Rules "relaxed load, store" and "relaxed atomic": the access is to memory itself, and orders no other place. A
// workgroup's own plain store to this place comes before it (settle), and its plain loads after it see it (follow).
void settle(View *v, u64 a, int n)
{
    if (!v)
        return;
    EACH_PIECE(p, a, n) {
        Line *L = find_line(v, p.at / LINE, 0);
        if (L)
            write_back(L, bytes_of(p.offset, p.bytes));
    }
}
void follow(View *v, u64 a, int n)
{
    if (!v)
        return;
    EACH_PIECE(p, a, n) {
        Line *L = find_line(v, p.at / LINE, 0);
        if (L)
            memcpy(L->data + p.offset, (void *)p.at, p.bytes);
    }
}

void write_through(View *v, u64 a, const u8 *t, int n)
{
    settle(v, a, n);
    memcpy((void *)a, t, n);
    follow(v, a, n);
}

u64 read_modify_write(Wave *w, int op, u64 a, u64 v, u64 v2, int n)
{
    u64 old = 0;
    settle(w->view, a, n);
    memcpy(&old, (void *)a, n);
    u64 r = atomic_value(op, old, v, v2, n, f16_saturates(w));
    memcpy((void *)a, &r, n);
    follow(w->view, a, n);
    return old;
}

// ── release, acquire, the end ───────────────────────────────────────────────────────────────────────────────────────
// Rules "release" (1: write back; run.c first performs all that is posted) and "acquire" (2: forget what is not dirty).
// Rule "end of a launch": Python calls it with 1 for each view, in an order that a seed shuffles.
void core_view(View *v, int what)
{
    for (u64 i = 0; i < v->cap; i++) {
        Line *L = v->line + i;
        if (!L->tag)
            continue;
        if (what & 1)
            write_back(L, ALL_BYTES);
        if (what & 2) {
            L->valid[0] = L->dirty[0];
            L->valid[1] = L->dirty[1];
        }
    }
}

// The workgroup has ended, the launch has not: what it wrote may still come late. All else of its view is freed.
void core_view_ended(View *v)
{
    View t = {0};
    for (u64 i = 0; i < v->cap; i++) {
        const Line *L = v->line + i;
        if (L->tag && (L->dirty[0] | L->dirty[1]))
            *find_line(&t, L->tag, 1) = *L;
    }
    free(v->line);
    *v = t;
}

void core_view_free(View *v)
{
    free(v->line);
    v->line = 0;
    v->cap = v->n = 0;
}

// ── operations under way ────────────────────────────────────────────────────────────────────────────────────────────
// s_waitcnt vmcnt(n) says that all but the newest n vector memory operations of a wave have finished. Until then a load
// to LDS has written nothing (code that reads too early gets what was there before), and a sc1 store or an atomic
// without a result is posted. Both rules "relaxed" allow that: only a wait makes sure that memory has it.

// A place in the wave's list for an operation that begins; NULL where everything finishes at once
Pend *issue(Wave *w)
{
    if (!w->pend)
        return 0;
    if (w->npend == NPEND)
        retire(w, NPEND - 1);
    Pend *p = w->pend + w->npend++;
    p->what = P_NONE;
    p->lanes = 0;
    return p;
}

// One lane of a posted operation: atomic `op` with v and v2, or a store of v when op is -1
void post(Wave *w, Pend *p, int l, u64 a, const void *v, const void *v2, int n, int op)
{
    if (p->what != P_POSTED) {
        p->what = P_POSTED;
        p->op = op;
        p->size = n;
        p->lo = ~0ull;
        p->hi = 0;
        w->view->nposted++;
    }
    p->lanes |= 1ull << l;
    p->addr[l] = a;
    memcpy(p->data[l], v, n);
    if (v2)
        memcpy((u8 *)p->data[l] + 8, v2, n);
    if (a < p->lo)
        p->lo = a;
    if (a + n > p->hi)
        p->hi = a + n;
}

// It reaches memory
static void perform(Wave *w, Pend *p)
{
    w->view->nposted--;
    p->what = P_NONE;
    EACH_LANE {
        u64 v = 0, v2 = 0;
        if (!(p->lanes >> l & 1))
            continue;
        if (p->op < 0) {
            write_through(w->view, p->addr[l], (u8 *)p->data[l], p->size);
            continue;
        }
        memcpy(&v, p->data[l], p->size);
        memcpy(&v2, (u8 *)p->data[l] + 8, p->size);
        read_modify_write(w, p->op, p->addr[l], v, v2, p->size);
    }
}

// Those of the workgroup that touch [lo, hi), oldest first in each wave. A workgroup sees its own operations at one
// place in order, so memory.c asks for this before each access; and a release covers what other waves have posted,
// because Triton's release rests on that: only the wave of the atomic waits.
void perform_posted(View *v, u64 lo, u64 hi)
{
    for (u64 i = 0; i < v->nwaves && v->nposted; i++)
        for (u64 j = 0; j < v->wave[i]->npend; j++) {
            Pend *p = v->wave[i]->pend + j;
            if (p->what == P_POSTED && lo < p->hi && hi > p->lo)
                perform(v->wave[i], p);
        }
}

// s_waitcnt: all but the newest `keep` have finished, in the order of their issue
void retire(Wave *w, u64 keep)
{
    if (w->npend <= keep)
        return;
    u64 n = w->npend - keep;
    for (u64 i = 0; i < n; i++) {
        Pend *p = w->pend + i;
        if (p->what == P_POSTED)
            perform(w, p);
        if (p->what != P_LDS)
            continue;
        EACH_LANE {
            if (!(p->lanes >> l & 1))
                continue;
            memcpy(w->lds + p->lbase + l * p->step, p->data[l], p->step);
            races_access(w, RACE_LDS, p->lbase + l * p->step, p->step, RACE_WRITE, p->data[l]);
        }
    }
    memmove(w->pend, w->pend + n, keep * sizeof(Pend));
    w->npend = keep;
}
