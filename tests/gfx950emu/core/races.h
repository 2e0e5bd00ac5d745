// What the waves of one workgroup do to each other's data between two barriers: see races.c.
#pragma once
#include "core.h"

enum { RACE_LDS, RACE_MEMORY };                 // space
enum { RACE_READ, RACE_WRITE, RACE_ATOMIC };    // kind
enum { RACES_KEPT = 16 };

// Two accesses of one byte by two waves with no barrier between, at least one of them a write. pc: from the core's base
typedef struct {
    u64 space, address, barriers;               // barriers: that the workgroup had passed
    u64 wave, pc, kind;                         // the later of the two
    u64 other_wave, other_pc, other_kind;
} Conflict;

typedef struct RaceLine RaceLine;
struct Races {
    RaceLine *line;                             // a hash table
    u64 capacity, used;
    u64 barriers;                               // passed by the workgroup; Python counts them
    u64 found;                                  // pairs of instructions in conflict; the first of them are kept
    Conflict conflict[RACES_KEPT];
};

void record(Wave *w, int space, u64 address, int n, int kind, const u8 *value);

// Wave `w` accesses n bytes at `address`; value: what a write leaves there, else NULL
static inline void races_access(Wave *w, int space, u64 address, int n, int kind, const void *value)
{
    if (w->races)
        record(w, space, address, n, kind, value);
}
