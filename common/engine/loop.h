/* Decodes a text entirely on the device (device_info.loops): draft, forward, acceptance and policy decision of each
 * iteration run there, by the operations of kernels/loop.h and the engine's own; the host reads the resulting records. Text,
 * drafts and routes equal those of engine_forward and the functions of kernels/plain on the host.
 *
 *     engine_loop_open     the sequence contains all tokens of the text but the last
 *     engine_loop_next     one iteration after another, until a record says that the text has ended
 *     engine_loop_close    the sequence contains the accepted tokens
 *
 * Meanwhile the engine must not be used otherwise. Expert plans, forced routes and expert sources that are not fixed are not
 * supported, because they need the host in each forward. */
#ifndef MOE_ENGINE_LOOP_H
#define MOE_ENGINE_LOOP_H

#include "common/engine/engine.h"
#include "kernels/plain/loop.h"
#include "kernels/plain/sample.h"

struct engine_loop;

struct engine_loop_setup {
    struct sequence *sequence;          /* with capacity for prompt, answer and a draft */
    const int32_t *text;                /* [length] the prompt and the answer so far */
    int length;
    struct loop_rules rules;
    struct sample_filter filter;
    struct sample_draw draw;            /* draw, without the position */
};

struct engine_iteration {               /* arrays are valid until the next iteration */
    const struct loop_record *record;
    const int32_t *token;               /* [record->rows]; the root first */
    const int32_t *emitted;             /* [record->emitted] */
    struct forward forward;             /* counters only (distinct experts, bytes); no logits, no experts by row */
};

bool engine_loops(const struct engine *engine);                 /* returns whether device and expert source support it */
int engine_loop_open(struct engine_loop **out, struct engine *engine, const struct engine_loop_setup *setup, struct err *err);
int engine_loop_next(struct engine_loop *loop, struct engine_iteration *out, struct err *err);
int engine_loop_close(struct engine_loop **loop, struct err *err);

#endif
