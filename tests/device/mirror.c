#include "tests/device/mirror.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/tensor/device.h"

enum { PIECES = 1024, GUARD = 256, BUFFERS = 16 };

struct piece {
    unsigned char *data;
    size_t bytes;
    struct buffer copy;                     /* address of its first guard; 0: not made yet */
};

static struct piece pieces[PIECES];
static int piece_count;
static struct device *device;

void mirror_add(void *piece, size_t bytes)
{
    assert_true(piece_count < PIECES);
    pieces[piece_count++] = (struct piece){piece, bytes, {0, 0}};
}

void mirror_remove(void *piece)
{
    for (int i = 0; i < piece_count; i++)
        if (pieces[i].data == piece) {
            pieces[i] = pieces[--piece_count];
            return;
        }
}

static void must(int rc, const struct err *err)
{
    if (rc)
        fail_msg("%s", err->text);
}

static struct device *opened(void)
{
    const char *name = getenv("MOE_TEST_DEVICE");
    struct err err = {0};
    if (!device && device_open(&device, &(struct device_setup){.name = name && *name ? name : "cuda"}, &err)) {
        printf("cannot judge: %s\n", err.text);
        exit(125);
    }
    return device;
}

const char *mirror_name(void) { return device_info(opened())->name; }

/* Chooses the tests of the file that run, before main. */
__attribute__((constructor)) static void choose_tests(void)
{
    const char *only = getenv("MOE_TEST_ONLY");
    if (only)
        cmocka_set_test_filter(only);
}

static size_t guard(void) { return getenv("MOE_TEST_EXACT") ? 0 : GUARD; }

/* Returns the piece that contains an address, or the empty piece at it; NULL: none. */
static struct piece *piece_of(uint64_t address)
{
    for (int i = 0; i < piece_count; i++)
        if (address == (uintptr_t)pieces[i].data || address - (uintptr_t)pieces[i].data < pieces[i].bytes)
            return &pieces[i];
    return NULL;
}

/* Returns the piece's copy on the device, which is made and filled at its first use. */
static uint64_t copy_of(struct piece *piece)
{
    static const unsigned char around[GUARD] = {[0 ... GUARD - 1] = 0xff};
    struct err err = {0};
    size_t edge = guard();
    if (!piece->copy.address) {
        must(device_alloc(opened(), piece->bytes + 2 * edge, &piece->copy, &err), &err);
        queue_upload(device, buffer_part(piece->copy, 0, edge), around, edge);
        queue_upload(device, buffer_part(piece->copy, edge, piece->bytes), piece->data, piece->bytes);
        queue_upload(device, buffer_part(piece->copy, edge + piece->bytes, edge), around, edge);
    }
    return piece->copy.address + edge;
}

static void to_device(struct buffer *buffer)
{
    struct piece *piece = buffer->address ? piece_of(buffer->address) : NULL;
    if (!buffer->address)
        return;
    if (!piece)
        fail_msg("an operation is given memory that is no test's");
    buffer->address = copy_of(piece) + (buffer->address - (uintptr_t)piece->data);
}

/* Translates addresses of experts in a table to the device's. Unused entries may have any value. */
static void table_to_device(struct buffer table)
{
    struct piece *piece = piece_of(table.address);
    assert_non_null(piece);
    uint64_t *address = malloc(piece->bytes + 1), *host = (uint64_t *)(void *)piece->data;
    for (size_t i = 0; i < piece->bytes / sizeof *address; i++) {
        struct piece *expert = piece_of(host[i]);
        address[i] = expert ? copy_of(expert) + (host[i] - (uintptr_t)expert->data) : host[i];
    }
    uint64_t copy = copy_of(piece);
    queue_upload(device, (struct buffer){copy, piece->bytes}, address, piece->bytes);
    struct err err = {0};
    must(queue_wait(device, &err), &err);
    free(address);
}

/* Waits, copies all pieces back and frees them. `table` stays unchanged on the host. */
static void from_device(struct buffer table)
{
    struct err err = {0};
    unsigned char before[GUARD], after[GUARD];
    size_t edge = guard();
    must(queue_wait(device, &err), &err);
    for (int i = 0; i < piece_count; i++) {
        struct piece *piece = &pieces[i];
        if (!piece->copy.address)
            continue;
        if (!table.address || piece != piece_of(table.address))
            queue_download(device, piece->data, buffer_part(piece->copy, edge, piece->bytes), piece->bytes);
        queue_download(device, before, buffer_part(piece->copy, 0, edge), edge);
        queue_download(device, after, buffer_part(piece->copy, edge + piece->bytes, edge), edge);
        must(queue_wait(device, &err), &err);
        device_free(device, &piece->copy);
        for (size_t k = 0; k < edge; k++)
            if (before[k] != 0xff || after[k] != 0xff)
                fail_msg("the device wrote outside of a piece of %zu bytes: %s it", piece->bytes,
                         before[k] != 0xff ? "before" : "after");
    }
}

#define B(op, name) offsetof(struct op##_args, name)
static const size_t embed_buffers[BUFFERS] = {B(embed, token), B(embed, table), B(embed, out), SIZE_MAX};
static const size_t norm_buffers[BUFFERS] = {B(norm, in), B(norm, weight), B(norm, bias), B(norm, out), SIZE_MAX};
static const size_t clamp_buffers[BUFFERS] = {B(clamp, x), SIZE_MAX};
static const size_t gather_buffers[BUFFERS] = {B(gather, in), B(gather, index), B(gather, out), SIZE_MAX};
static const size_t linear_buffers[BUFFERS] = {B(linear, in), B(linear, weight), B(linear, bias), B(linear, out),
                                               B(linear, operand), B(linear, ahead), SIZE_MAX};
static const size_t rope_buffers[BUFFERS] = {B(rope, x), B(rope, table), B(rope, position), SIZE_MAX};
static const size_t kv_write_buffers[BUFFERS] = {B(kv_write, in_k), B(kv_write, in_v), B(kv_write, shared), B(kv_write, k),
                                                 B(kv_write, v), B(kv_write, slot), SIZE_MAX};
static const size_t kv_move_buffers[BUFFERS] = {B(kv_move, k), B(kv_move, v), B(kv_move, from), B(kv_move, to), SIZE_MAX};
static const size_t attention_buffers[BUFFERS] = {B(attention, q), B(attention, k), B(attention, v), B(attention, sink),
                                                  B(attention, prefix), B(attention, path_start), B(attention, path),
                                                  B(attention, out), SIZE_MAX};
static const size_t route_score_buffers[BUFFERS] = {B(route_score, logits), B(route_score, score), SIZE_MAX};
static const size_t route_shortlist_buffers[BUFFERS] = {B(route_shortlist, score), B(route_shortlist, bias),
                                                        B(route_shortlist, weight), B(route_shortlist, mask), SIZE_MAX};
static const size_t route_select_buffers[BUFFERS] = {B(route_select, score), B(route_select, logits), B(route_select, bias),
                                                     B(route_select, mask), B(route_select, wanted), B(route_select, expert),
                                                     B(route_select, weight), B(route_select, expert_scale),
                                                     B(route_select, zero_weight), SIZE_MAX};
static const size_t expert_ffn_buffers[BUFFERS] = {B(expert_ffn, in), B(expert_ffn, out), B(expert_ffn, expert),
    B(expert_ffn, weight), B(expert_ffn, gate_up_bias), B(expert_ffn, down_bias), B(expert_ffn, table), B(expert_ffn, inner),
    B(expert_ffn, partial), B(expert_ffn, group), B(expert_ffn, operand), B(expert_ffn, ahead),
    SIZE_MAX};

static const size_t activate_buffers[BUFFERS] = {B(activate, in), B(activate, add), B(activate, out), SIZE_MAX};
static const size_t log_add_buffers[BUFFERS] = {B(log_add, in), B(log_add, add), B(log_add, out), SIZE_MAX};
static const size_t blend_buffers[BUFFERS] = {B(blend, in), B(blend, part), B(blend, weight), B(blend, out), SIZE_MAX};
static const size_t blend_weights_buffers[BUFFERS] = {B(blend_weights, logits), B(blend_weights, column),
                                                      B(blend_weights, weight), SIZE_MAX};
static const size_t gated_buffers[BUFFERS] = {B(gated, in), B(gated, gate), B(gated, out), SIZE_MAX};
static const size_t short_conv_buffers[BUFFERS] = {B(short_conv, in), B(short_conv, weight), B(short_conv, bias),
                                                   B(short_conv, cache), B(short_conv, slot), B(short_conv, before),
                                                   B(short_conv, out), SIZE_MAX};
static const size_t delta_keys_buffers[BUFFERS] = {B(delta_keys, x), B(delta_keys, rate), B(delta_keys, step),
    B(delta_keys, neg_a), B(delta_keys, step_bias), B(delta_keys, slot), B(delta_keys, parent), B(delta_keys, key),
    B(delta_keys, decay), B(delta_keys, beta), SIZE_MAX};
static const size_t delta_buffers[BUFFERS] = {B(delta, q), B(delta, v), B(delta, beta), B(delta, skip), B(delta, neg_a),
    B(delta, key), B(delta, decay), B(delta, correction), B(delta, state), B(delta, own), B(delta, before),
    B(delta, path_start), B(delta, path), B(delta, out), SIZE_MAX};
static const size_t top_buffers[BUFFERS] = {B(top, logits), B(top, map), B(top, token), B(top, logp), B(top, log_sum),
                                            B(top, scratch), SIZE_MAX};

static void args_to_device(void *args, const size_t *offset)
{
    for (int i = 0; offset[i] != SIZE_MAX; i++)
        to_device((struct buffer *)(void *)((char *)args + offset[i]));
}

#define MIRROR(op)                                                                   \
    static void mirror_##op(struct queue *queue, const struct op##_args *given)      \
    {                                                                                \
        struct op##_args args = *given;                                              \
        (void)queue;                                                                 \
        args_to_device(&args, op##_buffers);                                         \
        device_ops(device)->op(device_queue(device), &args);                         \
        from_device((struct buffer){0, 0});                                          \
    }
MIRROR(embed)
MIRROR(norm)
MIRROR(clamp)
MIRROR(gather)
MIRROR(linear)
MIRROR(rope)
MIRROR(kv_write)
MIRROR(kv_move)
MIRROR(attention)
MIRROR(route_score)
MIRROR(route_shortlist)
MIRROR(route_select)
MIRROR(activate)
MIRROR(log_add)
MIRROR(blend)
MIRROR(blend_weights)
MIRROR(top)
MIRROR(gated)
MIRROR(short_conv)
MIRROR(delta_keys)
MIRROR(delta)

static void norm_linear_to_device(struct norm_linear_args *args)
{
    if (args->norm.rows)
        args_to_device(&args->norm, norm_buffers);
    args_to_device(&args->linear, linear_buffers);
}

static void mirror_norm_linear(struct queue *queue, const struct norm_linear_args *given)
{
    struct norm_linear_args args = *given;
    (void)queue;
    norm_linear_to_device(&args);
    device_ops(device)->norm_linear(device_queue(device), &args);
    from_device((struct buffer){0, 0});
}

static void mirror_expert_ffn(struct queue *queue, const struct expert_ffn_args *given)
{
    struct expert_ffn_args args = *given;
    (void)queue;
    args_to_device(&args, expert_ffn_buffers);
    table_to_device(given->table);
    device_ops(device)->expert_ffn(device_queue(device), &args);
    from_device(given->table);
}

static void mirror_expert_sum(struct queue *queue, const struct expert_ffn_args *given)
{
    struct expert_ffn_args args = *given;
    (void)queue;
    args_to_device(&args, expert_ffn_buffers);
    device_ops(device)->expert_sum(device_queue(device), &args);
    from_device((struct buffer){0, 0});
}

static void mirror_routed_ffn(struct queue *queue, const struct routed_ffn_args *given)
{
    struct routed_ffn_args args = *given;
    (void)queue;
    norm_linear_to_device(&args.logits);
    args_to_device(&args.score, route_score_buffers);
    args_to_device(&args.select, route_select_buffers);
    args_to_device(&args.ffn, expert_ffn_buffers);
    table_to_device(given->ffn.table);
    device_ops(device)->routed_ffn(device_queue(device), &args);
    from_device(given->ffn.table);
}

const struct device_ops *mirror_ops(void)
{
    static const struct device_ops ops = {
        .embed = mirror_embed, .norm = mirror_norm, .clamp = mirror_clamp, .gather = mirror_gather, .linear = mirror_linear,
        .rope = mirror_rope, .kv_write = mirror_kv_write, .kv_move = mirror_kv_move, .attention = mirror_attention,
        .route_score = mirror_route_score, .route_shortlist = mirror_route_shortlist, .route_select = mirror_route_select,
        .expert_sum = mirror_expert_sum, .expert_ffn = mirror_expert_ffn, .activate = mirror_activate,
        .log_add = mirror_log_add, .blend = mirror_blend, .blend_weights = mirror_blend_weights, .top = mirror_top,
        .gated = mirror_gated, .short_conv = mirror_short_conv, .delta_keys = mirror_delta_keys, .delta = mirror_delta,
        .routed_ffn = mirror_routed_ffn, .norm_linear = mirror_norm_linear,
    };
    opened();
    return &ops;
}

/* ---- training: positions of buffers in an operation's arguments, with all entries of lists ---- */

struct listed {
    size_t offset;
    size_t count;
};
#define L(op, name) \
    {offsetof(struct learn_##op##_args, name), sizeof((struct learn_##op##_args *)0)->name / sizeof(struct buffer)}

static void lists_to_device(void *args, const struct listed *list)
{
    opened();
    for (; list->count; list++)
        for (size_t i = 0; i < list->count; i++)
            to_device((struct buffer *)(void *)((char *)args + list->offset) + i);
}

#define MIRROR_LEARN(op, kind, ...)                                                          \
    static void mirror_learn_##op(struct queue *queue, const struct learn_##kind##_args *given) \
    {                                                                                        \
        static const struct listed list[] = {__VA_ARGS__, {0, 0}};                           \
        struct learn_##kind##_args args = *given;                                            \
        (void)queue;                                                                         \
        lists_to_device(&args, list);                                                        \
        device_learn(device)->op(device_queue(device), &args);                               \
        from_device((struct buffer){0, 0});                                                  \
    }
#define ROWS L(row, in), L(row, out)
#define COPIES L(copy, in), L(copy, out)
#define SELECTS L(select, in), L(select, row), L(select, out)
#define NORMS L(norm, x), L(norm, weight), L(norm, inverse), L(norm, out), L(norm, gradient), L(norm, gradient_to)
#define FUNCTIONS L(function, x), L(function, out), L(function, gradient), L(function, gradient_to)
#define GATES L(gated, x), L(gated, out), L(gated, gradient), L(gated, gradient_to)
#define MIXES L(mix, u), L(mix, router), L(mix, choice), L(mix, place), L(mix, out), L(mix, gradient), L(mix, u_to), \
              L(mix, router_to), L(mix, made), L(mix, made_to)
#define TURNS L(rotate, x), L(rotate, position), L(rotate, rotation), L(rotate, out), L(rotate, gradient), \
              L(rotate, gradient_to)
#define ATTENTIONS L(attention, qkv), L(attention, offset), L(attention, out), L(attention, log_sum), L(attention, scratch), \
                   L(attention, gradient), L(attention, gradient_to)
MIRROR_LEARN(product, product, L(product, a), L(product, b), L(product, c))
MIRROR_LEARN(unpack, unpack, L(unpack, matrix), L(unpack, out))
MIRROR_LEARN(clear, clear, L(clear, out))
MIRROR_LEARN(add, add, L(add, a), L(add, b), L(add, out))
MIRROR_LEARN(copy, copy, COPIES)
MIRROR_LEARN(accumulate, copy, COPIES)
MIRROR_LEARN(add_row, row, ROWS)
MIRROR_LEARN(sum_rows, row, ROWS)
MIRROR_LEARN(select, select, SELECTS)
MIRROR_LEARN(scatter, select, SELECTS)
MIRROR_LEARN(norm, norm, NORMS)
MIRROR_LEARN(norm_back, norm, NORMS)
MIRROR_LEARN(norm_weight_back, norm, NORMS)
MIRROR_LEARN(function, function, FUNCTIONS)
MIRROR_LEARN(function_back, function, FUNCTIONS)
MIRROR_LEARN(gated, gated, GATES)
MIRROR_LEARN(gated_back, gated, GATES)
MIRROR_LEARN(mix, mix, MIXES)
MIRROR_LEARN(mix_back, mix, MIXES)
MIRROR_LEARN(rotate, rotate, TURNS)
MIRROR_LEARN(rotate_back, rotate, TURNS)
MIRROR_LEARN(attention, attention, ATTENTIONS)
MIRROR_LEARN(attention_back, attention, ATTENTIONS)
MIRROR_LEARN(smooth, smooth, L(smooth, x), L(smooth, target), L(smooth, target_row), L(smooth, weight), L(smooth, loss),
             L(smooth, gradient_to))
MIRROR_LEARN(target, target, L(target, logits), L(target, word), L(target, p), L(target, counts))
MIRROR_LEARN(judge, judge, L(judge, logits), L(judge, bias), L(judge, p), L(judge, from), L(judge, label), L(judge, weight),
             L(judge, loss))
MIRROR_LEARN(total, total, L(total, loss), L(total, sum))
MIRROR_LEARN(measure, measure, L(measure, gradient), L(measure, squares), L(measure, outside))
MIRROR_LEARN(adam, adam, L(adam, weight), L(adam, first), L(adam, second), L(adam, gradient))

static size_t mirror_learn_attention_scratch(struct queue *queue, const struct learn_attention_args *args)
{
    (void)queue;
    opened();
    return device_learn(device)->attention_scratch(device_queue(device), args);
}

const struct learn_ops *mirror_learn_ops(void)
{
    static const struct learn_ops ops = {
        mirror_learn_product, mirror_learn_unpack, mirror_learn_clear, mirror_learn_add, mirror_learn_copy,
        mirror_learn_accumulate, mirror_learn_add_row, mirror_learn_sum_rows, mirror_learn_select, mirror_learn_scatter,
        mirror_learn_norm, mirror_learn_norm_back, mirror_learn_norm_weight_back, mirror_learn_function,
        mirror_learn_function_back, mirror_learn_gated, mirror_learn_gated_back, mirror_learn_mix, mirror_learn_mix_back,
        mirror_learn_rotate, mirror_learn_rotate_back, mirror_learn_attention_scratch, mirror_learn_attention,
        mirror_learn_attention_back, mirror_learn_smooth, mirror_learn_target, mirror_learn_judge, mirror_learn_total,
        mirror_learn_measure, mirror_learn_adam,
    };
    opened();
    return &ops;
}
