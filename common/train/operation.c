#include "common/train/operation.h"

#include <string.h>

static bool wanted(const struct variable *value) { return value && value->gradient.address; }

static size_t elements(const struct variable *value) { return (size_t)value->rows * (size_t)value->width; }

struct variable *op_constant(struct tape *tape, int rows, int width, struct buffer data)
{
    struct variable *value = tape_memory(tape, 1, sizeof *value);
    if (!value || !data.address)
        return NULL;
    *value = (struct variable){.rows = rows, .width = width, .data = data};
    return value;
}

/* Copies the arguments of the backward function into the tape's memory and records them, if `out` has a gradient. */
static struct variable *note_down(struct tape *tape, tape_back *back, const void *what, size_t bytes, struct variable *out)
{
    if (!wanted(out))
        return out;
    void *note = tape_memory(tape, 1, bytes);
    if (note)
        memcpy(note, what, bytes);
    return tape_note(tape, back, note) ? NULL : out;
}

/* ---- linear ---- */

struct linear {
    struct variable *x, *weight, *bias, *out;
};

static void back_linear(struct tape *tape, const void *note)
{
    const struct linear *n = note;
    const struct variable *x = n->x, *weight = n->weight, *out = n->out;
    if (wanted(weight))
        tape_ops(tape)->product(tape_queue(tape), &(struct learn_product_args){
            LEARN_OUTER, out->gradient, x->data, weight->gradient, weight->rows, weight->width, x->rows, out->width, x->width,
            weight->width, true});
    if (wanted(x))
        tape_ops(tape)->product(tape_queue(tape), &(struct learn_product_args){
            LEARN_PLAIN, out->gradient, weight->data, x->gradient, x->rows, x->width, out->width, out->width, weight->width,
            x->width, true});
    if (wanted(n->bias))
        tape_ops(tape)->sum_rows(tape_queue(tape), &(struct learn_row_args){out->gradient, n->bias->gradient, out->rows,
                                                                            out->width});
}

struct variable *op_linear(struct tape *tape, struct variable *x, struct variable *weight, struct variable *bias)
{
    struct variable *out = x ? tape_value(tape, x->rows, weight->rows, wanted(x) || wanted(weight) || wanted(bias)) : NULL;
    if (!out)
        return NULL;
    tape_ops(tape)->product(tape_queue(tape), &(struct learn_product_args){
        LEARN_ROWS, x->data, weight->data, out->data, x->rows, weight->rows, x->width, x->width, weight->width, out->width,
        false});
    if (bias)
        tape_ops(tape)->add_row(tape_queue(tape), &(struct learn_row_args){bias->data, out->data, out->rows, out->width});
    return note_down(tape, back_linear, &(struct linear){x, weight, bias, out}, sizeof(struct linear), out);
}

/* ---- sums, joins, selections ---- */

struct sum {
    struct variable *a, *b, *out;
};

static void back_add(struct tape *tape, const void *note)
{
    const struct sum *n = note;
    const int rows = n->out->rows, width = n->out->width;
    struct learn_copy_args copy = {.in = n->out->gradient, .rows = rows, .width = width, .in_stride = width,
                                   .out_stride = width};
    for (int i = 0; i < 2; i++) {
        const struct variable *to = i ? n->b : n->a;
        copy.out = to->gradient;
        if (wanted(to))
            tape_ops(tape)->accumulate(tape_queue(tape), &copy);
    }
}

struct variable *op_add(struct tape *tape, struct variable *a, struct variable *b)
{
    struct variable *out = a && b ? tape_value(tape, a->rows, a->width, wanted(a) || wanted(b)) : NULL;
    if (!out)
        return NULL;
    tape_ops(tape)->add(tape_queue(tape), &(struct learn_add_args){a->data, b->data, out->data, elements(out)});
    return note_down(tape, back_add, &(struct sum){a, b, out}, sizeof(struct sum), out);
}

struct join {
    struct variable *out, *part[JOIN_MAX];
    int count;
};

/* Returns the matrix from column `column` on; the stride is that of the whole. */
static struct buffer columns_from(struct buffer whole, int column)
{
    const uint64_t offset = (uint64_t)column * sizeof(float);
    return offset < whole.bytes ? buffer_part(whole, offset, whole.bytes - offset) : whole;
}

static void back_join(struct tape *tape, const void *note)
{
    const struct join *join = note;
    const struct variable *out = join->out;
    for (int i = 0, column = 0; i < join->count; column += join->part[i++]->width) {
        const struct variable *part = join->part[i];
        if (wanted(part))
            tape_ops(tape)->accumulate(tape_queue(tape), &(struct learn_copy_args){
                columns_from(out->gradient, column), part->gradient, out->rows, part->width, out->width, part->width});
    }
}

struct variable *op_join(struct tape *tape, struct variable *const *parts, int count)
{
    struct join join = {.count = count};
    bool any = false;
    int width = 0;
    for (int i = 0; i < count; i++) {
        if (!parts[i])
            return NULL;
        join.part[i] = parts[i];
        width += parts[i]->width;
        any |= wanted(parts[i]);
    }
    if (!(join.out = tape_value(tape, parts[0]->rows, width, any)))
        return NULL;
    for (int i = 0, column = 0; i < count; column += parts[i++]->width)
        tape_ops(tape)->copy(tape_queue(tape), &(struct learn_copy_args){
            parts[i]->data, columns_from(join.out->data, column), join.out->rows, parts[i]->width, parts[i]->width, width});
    return note_down(tape, back_join, &join, sizeof join, join.out);
}

static void back_select(struct tape *tape, const void *note) { tape_ops(tape)->scatter(tape_queue(tape), note); }

struct variable *op_select(struct tape *tape, struct variable *x, const int *row, int rows)
{
    struct variable *out = x ? tape_value(tape, rows, x->width, wanted(x)) : NULL;
    struct learn_select_args select = {.row = tape_copy(tape, row, (size_t)rows, sizeof *row), .rows = rows};
    if (!out || !select.row.address)
        return NULL;
    select.width = x->width;
    select.in = x->data;
    select.out = out->data;
    tape_ops(tape)->select(tape_queue(tape), &select);
    select.in = out->gradient;
    select.out = x->gradient;
    return note_down(tape, back_select, &select, sizeof select, out);
}

/* ---- norm ---- */

struct norm {
    struct learn_norm_args args;        /* gradient_to: of x */
    struct buffer weight_to;
};

static void back_norm(struct tape *tape, const void *note)
{
    const struct norm *n = note;
    struct learn_norm_args weight = n->args;
    if (n->args.gradient_to.address)
        tape_ops(tape)->norm_back(tape_queue(tape), &n->args);
    weight.gradient_to = n->weight_to;
    if (weight.gradient_to.address)
        tape_ops(tape)->norm_weight_back(tape_queue(tape), &weight);
}

struct variable *op_norm(struct tape *tape, struct variable *x, struct variable *weight, float epsilon)
{
    struct variable *out = x ? tape_value(tape, x->rows, x->width, wanted(x) || wanted(weight)) : NULL;
    const struct buffer inverse = out ? tape_buffer(tape, (size_t)x->rows, sizeof(float)) : (struct buffer){0, 0};
    if (!inverse.address)
        return NULL;
    const struct norm n = {{x->data, weight->data, inverse, out->data, out->gradient, x->gradient, epsilon, x->rows, x->width},
                           weight->gradient};
    tape_ops(tape)->norm(tape_queue(tape), &n.args);
    return note_down(tape, back_norm, &n, sizeof n, out);
}

/* ---- functions of single numbers ---- */

static void back_function(struct tape *tape, const void *note) { tape_ops(tape)->function_back(tape_queue(tape), note); }

static struct variable *apply(struct tape *tape, struct variable *x, enum learn_function function)
{
    struct variable *out = x ? tape_value(tape, x->rows, x->width, wanted(x)) : NULL;
    if (!out)
        return NULL;
    const struct learn_function_args f = {function, x->data, out->data, out->gradient, x->gradient, elements(x)};
    tape_ops(tape)->function(tape_queue(tape), &f);
    return note_down(tape, back_function, &f, sizeof f, out);
}

struct variable *op_silu(struct tape *tape, struct variable *x) { return apply(tape, x, LEARN_SILU); }

struct variable *op_gelu(struct tape *tape, struct variable *x) { return apply(tape, x, LEARN_GELU); }

static void back_gated(struct tape *tape, const void *note) { tape_ops(tape)->gated_back(tape_queue(tape), note); }

struct variable *op_gated(struct tape *tape, struct variable *x)
{
    struct variable *out = x ? tape_value(tape, x->rows, x->width / 2, wanted(x)) : NULL;
    if (!out)
        return NULL;
    const struct learn_gated_args g = {x->data, out->data, out->gradient, x->gradient, out->rows, out->width};
    tape_ops(tape)->gated(tape_queue(tape), &g);
    return note_down(tape, back_gated, &g, sizeof g, out);
}

/* ---- experts ---- */

static void back_mix(struct tape *tape, const void *note) { tape_ops(tape)->mix_back(tape_queue(tape), note); }

struct variable *op_mix(struct tape *tape, enum learn_mix mix, struct variable *u, struct variable *router, int first, int used,
                        struct variable *const *expert, int experts, const struct mix_choice *choice)
{
    if (!u || !router || !choice)
        return NULL;
    struct learn_mix_args m = {
        .kind = mix, .u = u->data, .router = router->data, .choice = choice->expert, .place = choice->row,
        .u_to = u->gradient, .router_to = router->gradient, .rows = u->rows, .width = u->width,
        .router_width = router->width, .first = first, .experts = experts, .slots = choice->slots, .used = used};
    bool any = wanted(u) || wanted(router);
    for (int e = 0; e < experts; e++) {
        if (!expert[e])
            return NULL;
        m.made[e] = expert[e]->data;
        m.made_to[e] = expert[e]->gradient;
        any = any || wanted(expert[e]);
    }
    struct variable *out = tape_value(tape, u->rows, u->width, any);
    if (!out)
        return NULL;
    m.out = out->data;
    m.gradient = out->gradient;
    tape_ops(tape)->mix(tape_queue(tape), &m);
    return note_down(tape, back_mix, &m, sizeof m, out);
}

/* Chooses the experts with the largest scores in descending order, the lower number first among equals. */
static void choose_row(const float *router, int experts, int slots, int32_t *out)
{
    bool taken[LEARN_EXPERTS_MAX] = {false};
    for (int s = 0; s < slots; s++) {
        int best = -1;
        for (int e = 0; e < experts; e++)
            if (!taken[e] && (best < 0 || router[e] > router[best]))
                best = e;
        taken[best] = true;
        out[s] = best;
    }
}

struct mix_choice *mix_choose(struct tape *tape, const struct variable *router, int experts, int slots)
{
    struct mix_choice *c = router ? tape_memory(tape, 1, sizeof *c) : NULL;
    if (!c)
        return NULL;
    const size_t rows = (size_t)router->rows, all = rows * (size_t)slots;
    int32_t *expert = tape_memory(tape, all, sizeof *expert), *row_of = tape_memory(tape, all, sizeof *row_of);
    const float *scores = tape_download(tape, router->data, elements(router), sizeof *scores);
    *c = (struct mix_choice){.slots = slots, .rows_of = tape_memory(tape, rows * (size_t)experts, sizeof(int))};
    if (!expert || !row_of || !scores || !c->rows_of)
        return NULL;
    for (size_t row = 0; row < rows; row++) {
        int32_t *chosen = expert + row * (size_t)slots;
        choose_row(scores + row * (size_t)router->width, experts, slots, chosen);
        for (int s = 0; s < slots; s++) {
            int *count = &c->count[chosen[s]];
            row_of[row * (size_t)slots + (size_t)s] = *count;
            c->rows_of[(size_t)chosen[s] * rows + (size_t)(*count)++] = (int)row;
        }
    }
    c->expert = tape_constant(tape, expert, all, sizeof *expert);
    c->row = tape_constant(tape, row_of, all, sizeof *row_of);
    return c->expert.address && c->row.address ? c : NULL;
}

/* ---- rotation ---- */

static void back_rotate(struct tape *tape, const void *note) { tape_ops(tape)->rotate_back(tape_queue(tape), note); }

struct variable *op_rotate(struct tape *tape, const struct attention *shape, const struct train_batch *batch,
                           struct variable *qkv, int shift)
{
    struct variable *out = qkv ? tape_value(tape, qkv->rows, qkv->width, wanted(qkv)) : NULL;
    int32_t *position = out ? tape_memory(tape, (size_t)qkv->rows, sizeof *position) : NULL;
    if (!position)
        return NULL;
    for (int text = 0; text < batch->texts; text++)
        for (int row = batch->offset[text]; row < batch->offset[text + 1]; row++)
            position[row] = row - batch->offset[text] + shift;
    const struct learn_rotate_args r = {
        qkv->data, tape_constant(tape, position, (size_t)qkv->rows, sizeof *position), shape->rotations, out->data,
        out->gradient, qkv->gradient, qkv->rows, shape->heads, shape->kv_heads, shape->head_dim, shape->positions};
    if (!r.position.address)
        return NULL;
    tape_ops(tape)->rotate(tape_queue(tape), &r);
    return note_down(tape, back_rotate, &r, sizeof r, out);
}

/* ---- attention ---- */

static void back_attention(struct tape *tape, const void *note) { tape_ops(tape)->attention_back(tape_queue(tape), note); }

struct variable *op_attention(struct tape *tape, const struct attention *shape, const struct train_batch *batch,
                              struct variable *const *qkv, int steps)
{
    struct learn_attention_args a = {
        .offset = tape_copy(tape, batch->offset, (size_t)batch->texts + 1, sizeof *batch->offset), .scale = shape->scale,
        .rows = batch->rows, .texts = batch->texts, .longest = batch->longest, .heads = shape->heads,
        .kv_heads = shape->kv_heads, .head_dim = shape->head_dim, .steps = steps};
    for (int step = 0; step <= steps; step++) {
        if (!qkv[step])
            return NULL;
        a.qkv[step] = qkv[step]->data;
        a.gradient_to[step] = qkv[step]->gradient;
    }
    struct variable *out = tape_value(tape, batch->rows, shape->heads * shape->head_dim, wanted(qkv[0]));
    a.log_sum = tape_buffer(tape, (size_t)shape->heads * (size_t)batch->rows, sizeof(float));
    a.scratch = tape_buffer(tape, tape_ops(tape)->attention_scratch(tape_queue(tape), &a), 1);
    if (!out || !a.offset.address || !a.log_sum.address || !a.scratch.address)
        return NULL;
    a.out = out->data;
    a.gradient = out->gradient;
    tape_ops(tape)->attention(tape_queue(tape), &a);
    return note_down(tape, back_attention, &a, sizeof a, out);
}
