/* Collectives of the lanes of a warp. */
#include "tests/emu/inside.h"

namespace emu {

static unsigned word_of(const thread *t)
{
    unsigned word;
    memcpy(&word, t->in, sizeof word);
    return word;
}

static unsigned combine(kind what, unsigned a, unsigned b)
{
    switch (what) {
    case REDUCE_ADD: return a + b;
    case REDUCE_MIN: return a < b ? a : b;
    case REDUCE_MAX: return a > b ? a : b;
    case REDUCE_MIN_SIGNED: return (int)a < (int)b ? a : b;
    case REDUCE_MAX_SIGNED: return (int)a > (int)b ? a : b;
    case REDUCE_AND: case ALL: return a & b;
    case REDUCE_XOR: return a ^ b;
    default: return a | b;
    }
}

static void shuffle_all(thread *lane, unsigned mask)
{
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        thread *t = &lane[__builtin_ctz(rest)];
        int source = t->argument;
        if (source < 0 || source > 31 || !(mask >> source & 1))
            found(t->line, "lane %d takes a value of lane %d, which is not in the mask %08x", __builtin_ctz(rest),
                  source, mask);
        if (lane[source].bytes != t->bytes)
            found(t->line, "lanes %d and %d give values of different sizes", __builtin_ctz(rest), source);
        memcpy(t->out, lane[source].in, t->bytes);
    }
}

/* Computes the product of a warp's fragments as matrices (mma16816 in dev_nvcc.h). */
static void multiply(thread *lane)
{
    uint16_t a[16][16], b[8][16];
    for (int l = 0; l < 32; l++) {
        int g = l / 4, t = l % 4;
        const unsigned char *pair = lane[l].in;                     /* neighbours in a row, two at a time */
        for (int i = 0; i < 4; i++)
            memcpy(&a[g + i % 2 * 8][2 * t + i / 2 * 8], pair + 4 * i, 4);
        for (int i = 0; i < 2; i++)
            memcpy(&b[g][2 * t + i * 8], pair + 16 + 4 * i, 4);
    }
    row_parts row[16], column[8];
    for (int i = 0; i < 16; i++)
        row_of(a[i], &row[i]);
    for (int i = 0; i < 8; i++)
        row_of(b[i], &column[i]);
    for (int l = 0; l < 32; l++) {
        int g = l / 4, t = l % 4;
        float c[4], out[4];
        memcpy(c, lane[l].in + 24, sizeof c);
        for (int i = 0; i < 4; i++)
            out[i] = row_sum(row[g + i / 2 * 8], column[2 * t + i % 2], c[i], emu_options.tensor_core);
        memcpy(lane[l].out, out, sizeof out);
    }
}

void warp_finish(int first, unsigned mask)
{
    thread *lane = &now.thread_of[first];
    kind what = lane[__builtin_ctz(mask)].what;
    if (what == SYNC_WARP) {
        race_sync_warp(first, mask);
        return;
    }
    if (what == SHUFFLE) {
        shuffle_all(lane, mask);
        return;
    }
    if (what == MMA) {
        multiply(lane);
        return;
    }
    unsigned all = 0;
    bool any = false;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        unsigned word = what == BALLOT ? word_of(&lane[l]) << l : word_of(&lane[l]);
        all = any ? combine(what, all, word) : word;
        any = true;
    }
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        thread *t = &lane[__builtin_ctz(rest)];
        unsigned result = all;
        if (what == MATCH) {
            result = 0;
            for (unsigned other = mask; other; other &= other - 1)
                result |= (unsigned)(word_of(&lane[__builtin_ctz(other)]) == word_of(t)) << __builtin_ctz(other);
        }
        memcpy(t->out, &result, sizeof result);
    }
}

}
