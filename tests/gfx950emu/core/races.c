// Races inside a workgroup.
//
// Nothing but s_barrier orders the waves of a workgroup. Two of them that touch a byte between the same two barriers,
// one of them writing, have a result that hangs on which came first, in LDS as in memory. So every byte that a
// workgroup touches has a cell that says which waves have read and written it since the last barrier.
//
// No race: atomics among themselves, as which sc1 loads and stores count; writes of one value by several waves, as
// Triton makes them where waves hold copies of a tensor, and what a wave reads back after such a write of its own.
#include <stdlib.h>

#include "races.h"

enum { CELLS = 64 };

typedef struct {
    u32 epoch;                          // barriers passed, plus 1, when the rest was written; else it says nothing
    u16 readers, writers, atomics;      // a bit for each wave
    u8 value;                           // what the writers wrote
    u32 read_pc, write_pc, atomic_pc;   // of the last one each
} Cell;

struct RaceLine {
    u64 tag;                            // address / CELLS + 1, the top bit set for LDS; 0: free
    Cell cell[CELLS];
};

static RaceLine *find(const Races *r, u64 tag)
{
    u64 i = tag * 0x9e3779b97f4a7c15ull >> 32 & (r->capacity - 1);
    while (r->line[i].tag && r->line[i].tag != tag)
        i = (i + 1) & (r->capacity - 1);
    return r->line + i;
}

static void grow(Races *r)
{
    Races larger = {.capacity = r->capacity ? 2 * r->capacity : 64};
    larger.line = calloc(larger.capacity, sizeof(RaceLine));
    for (u64 i = 0; i < r->capacity; i++)
        if (r->line[i].tag)
            *find(&larger, r->line[i].tag) = r->line[i];
    free(r->line);
    r->line = larger.line;
    r->capacity = larger.capacity;
}

static Cell *cells_of(Races *r, int space, u64 address)
{
    if (2 * r->used >= r->capacity)
        grow(r);
    u64 tag = (address / CELLS + 1) | (u64)(space == RACE_LDS) << 63;
    RaceLine *line = find(r, tag);
    r->used += !line->tag;
    line->tag = tag;
    return line->cell;
}

// Each pair of instructions once
static void report(Races *r, Conflict c)
{
    for (u64 i = 0; i < r->found && i < RACES_KEPT; i++)
        if (r->conflict[i].pc == c.pc && r->conflict[i].other_pc == c.other_pc)
            return;
    if (r->found < RACES_KEPT)
        r->conflict[r->found] = c;
    r->found++;
}

static void check(Wave *w, const Cell *c, int space, u64 a, int kind, const u8 *value)
{
    const u16 own = 1u << w->index;
    u16 readers = c->readers & ~own, writers = c->writers & ~own, atomics = c->atomics & ~own;
    if (kind == RACE_READ) {
        readers = 0;
        if (c->writers & own)           // it reads its own value, which is also the others'
            writers = 0;
    } else if (kind == RACE_ATOMIC)
        atomics = 0;
    else if (c->value == *value)
        writers = 0;
    if (!(readers | writers | atomics))
        return;
    Conflict found = {space, a, w->races->barriers, w->index, w->pc, kind, 0, c->read_pc, RACE_READ};
    u16 others = readers;
    if (writers) {
        others = writers;
        found.other_pc = c->write_pc;
        found.other_kind = RACE_WRITE;
    } else if (atomics) {
        others = atomics;
        found.other_pc = c->atomic_pc;
        found.other_kind = RACE_ATOMIC;
    }
    found.other_wave = __builtin_ctz(others);
    report(w->races, found);
}

static void note(const Wave *w, Cell *c, int kind, const u8 *value)
{
    const u16 own = 1u << w->index;
    if (kind == RACE_ATOMIC) {
        c->atomics |= own;
        c->atomic_pc = w->pc;
    } else if (kind == RACE_WRITE) {
        c->writers |= own;
        c->write_pc = w->pc;
        c->value = *value;
    } else if (!(c->writers & own)) {
        c->readers |= own;
        c->read_pc = w->pc;
    }
}

void record(Wave *w, int space, u64 address, int n, int kind, const u8 *value)
{
    const u32 epoch = w->races->barriers + 1;
    Cell *cells = 0;
    for (int i = 0; i < n; i++) {
        u64 a = address + i;
        if (!cells || a % CELLS == 0)
            cells = cells_of(w->races, space, a);
        Cell *c = cells + a % CELLS;
        if (c->epoch != epoch)
            *c = (Cell){.epoch = epoch};
        check(w, c, space, a, kind, value ? value + i : 0);
        note(w, c, kind, value ? value + i : 0);
    }
}

void core_races_free(Races *r)
{
    free(r->line);
    r->line = 0;
    r->capacity = r->used = 0;
}
