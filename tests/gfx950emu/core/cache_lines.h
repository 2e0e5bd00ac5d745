// The lines of a workgroup's view of memory, as a data structure: a hash table by address, and bytes of a line as bits.
// What they mean is said in workgroup_view.c, the only file that includes this.
#pragma once
#include "core.h"
#include <stdlib.h>

enum { LINE = 128 };

// The bytes o .. o + n - 1 of a line as bits: of its first 64 bytes, and of the others
typedef struct {
    u64 lo, hi;
} Bytes;
static inline u64 bits_of_word(int from, int to)
{
    if (to <= 0 || from >= 64 || from >= to)
        return 0;
    u64 below = to >= 64 ? ~0ull : (1ull << to) - 1;
    return from <= 0 ? below : below & ~0ull << from;
}
static inline Bytes bytes_of(int o, int n)
{
    return (Bytes){bits_of_word(o, o + n), bits_of_word(o - 64, o + n - 64)};
}
static const Bytes ALL_BYTES = {~0ull, ~0ull};

static inline u8 *memory_of(const Line *L)
{
    return (u8 *)(L->tag * LINE);
}

static inline Line *find_line(View *v, u64 tag, int make);
static inline void grow(View *v)
{
    View t = {0};
    t.cap = v->cap ? 2 * v->cap : 64;
    t.line = calloc(t.cap, sizeof(Line));
    for (u64 i = 0; i < v->cap; i++)
        if (v->line[i].tag)
            *find_line(&t, v->line[i].tag, 1) = v->line[i];
    free(v->line);
    v->line = t.line;
    v->cap = t.cap;
    v->n = t.n;
}

// The line, made without any byte if it is not there, or NULL without `make`
static inline Line *find_line(View *v, u64 tag, int make)
{
    if (2 * v->n >= v->cap)
        grow(v);
    u64 i = tag * 0x9e3779b97f4a7c15ull >> 32 & (v->cap - 1);
    while (v->line[i].tag && v->line[i].tag != tag)
        i = (i + 1) & (v->cap - 1);
    if (!v->line[i].tag) {
        if (!make)
            return 0;
        v->line[i].tag = tag;
        v->n++;
    }
    return v->line + i;
}

// An access of n bytes at a, piece by piece: each in one line
typedef struct {
    u64 at, end;
    int offset, bytes;                  // of the piece at `at`, in its line
} Piece;
static inline Piece piece_at(u64 at, u64 end)
{
    int offset = at % LINE, rest = LINE - offset;
    return (Piece){at, end, offset, end - at < (u64)rest ? (int)(end - at) : rest};
}
#define EACH_PIECE(p, a, n)                                                                                            \
    for (Piece p = piece_at(a, (a) + (n)); p.at < p.end; p = piece_at(p.at + p.bytes, p.end))
