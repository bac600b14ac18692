/* Decoding loop that runs on the device: the operations around the forward of each iteration. kernels/plain/loop.h is their
 * specification; choose.h specifies the one between. In order:
 *
 *     loop_draft      state, text -> token, position, slot, prefix, next_position of state->rows rows, as attention.h requires
 *                     for a chain after the committed tokens: position and slot of the root, then ascending
 *     (forward)
 *     loop_facts      the number of distinct experts among those rows, in each layer: counts
 *     (choose)
 *     loop_accept     choice -> text, state, and the iteration's record in the ring
 *
 * While a forward is part of such a loop, only the device knows its number of rows: operations are queued with the maximum and
 * process as many rows as `rows` contains (loop_start of tensor/device.h). */
#ifndef MOE_KERNELS_LOOP_H
#define MOE_KERNELS_LOOP_H

#include "kernels/buffer.h"
#include "kernels/plain/loop.h"

/* rules, state  one struct loop_rules, one struct loop_state
 * rows          [1] i32, a copy of state->rows, which operations read
 * text          [prompt + limit] i32;  ngram [ngram_slots] struct ngram_slot and earlier [text][longest - shortest + 1] i32, as
 *               in ngram.h, of the text so far; none without a drafter
 * token, position, slot, prefix, next_position, choice, path  [rows_max] i32;  parent [rows_max] i32, i - 1
 * wanted, expert  [moe_layers][rows_max][top_k] i32;  counts [2][moe_layers] i32: distinct in wanted, and in expert
 * ring          `ring_records` records of loop_record_bytes(rows_max, moe_layers); iteration n is record n % ring_records
 * head          [1] i32: number of iterations in the ring, written after their records
 * more          [1] i32: 1 while the device may continue alone, 0 at the end of the answer and whenever the ring is full */
struct loop_args {
    struct buffer rules, state, rows, text, ngram, earlier;
    struct buffer token, parent, position, slot, prefix, next_position, choice, path;
    struct buffer wanted, expert, counts, ring, head, more;
    uint32_t ngram_slots;
    int rows_max, moe_layers, experts, top_k, ring_records;
};

#endif
