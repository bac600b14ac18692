/* Decoding on a device by itself: what is around the forward of each iteration (kernels/plain/loop.h is the specification;
 * choose.h is between). In turn:
 *
 *     loop_draft      state, text -> token, position, slot, prefix, next_position of state->rows rows; what attention.h
 *                     wants of a chain after the committed tokens: position and slot are those of the root, then ascending
 *     (forward)
 *     loop_facts      the number of distinct experts among those rows, in each layer: counts
 *     (choose)
 *     loop_settle     choice -> text, state, and the iteration's record in the ring
 *
 * While a forward is part of such a loop the number of its rows is known to the device alone: operations are given the most
 * there can be, and treat as many as `rows` says (loop_start of tensor/device.h). */
#ifndef MOE_KERNELS_LOOP_H
#define MOE_KERNELS_LOOP_H

#include "kernels/buffer.h"
#include "kernels/plain/loop.h"

/* rules, state  one struct loop_rules, one struct loop_state
 * rows          [1] i32, state->rows once more: where operations look for it
 * text          [prompt + limit] i32;  ngram [ngram_slots] struct ngram_slot and earlier [text][longest - shortest + 1] i32, as
 *               ngram.h has them, of the text so far; none when nothing drafts
 * token, position, slot, prefix, next_position, choice, path  [rows_max] i32;  parent [rows_max] i32, i - 1
 * wanted, expert  [moe_layers][rows_max][top_k] i32;  counts [2][moe_layers] i32: distinct in wanted, and in expert
 * ring          `ring_records` records of loop_record_bytes(rows_max, moe_layers); iteration n's is n % ring_records
 * head          [1] i32: iterations that are in the ring, written after their record
 * more          [1] i32: 1 while the device may go on alone, 0 at the end of the answer and each time the ring is full */
struct loop_args {
    struct buffer rules, state, rows, text, ngram, earlier;
    struct buffer token, parent, position, slot, prefix, next_position, choice, path;
    struct buffer wanted, expert, counts, ring, head, more;
    uint32_t ngram_slots;
    int rows_max, moe_layers, experts, top_k, ring_records;
};

#endif
