#include "common/arch/arch.h"

#include <string.h>

/* Writes `pattern` with {n}, {e}, {h} and {o} replaced. Patterns are constants of this program and fit. */
static void fill_name(char *out, size_t room, const char *pattern, int layer, int expert)
{
    size_t used = 0;
    for (; *pattern && used + 16 < room; pattern++) {
        const int number = pattern[0] != '{' || !pattern[1] || pattern[2] != '}' ? -1
                         : pattern[1] == 'n' ? layer : pattern[1] == 'e' ? expert
                         : pattern[1] == 'h' ? layer / 2 : pattern[1] == 'o' ? layer % 2 : -1;
        if (number >= 0) {
            used += (size_t)snprintf(out + used, room - used, "%d", number);
            pattern += 2;
        } else {
            out[used++] = *pattern;
        }
    }
    out[used] = '\0';
}

static struct part matrix_part(const struct naming *naming, enum source_slot slot, int layer, int expert, enum part_role role,
                               int first, int rows, int columns)
{
    struct part part = {.dims = {rows, columns}, .dim_count = 2, .role = role, .first = first, .rows = rows,
                        .columns = columns};
    fill_name(part.name, sizeof part.name, naming->slot[slot], layer, expert);
    return part;
}

static struct part vector_part(const struct naming *naming, enum source_slot slot, int layer, int first, int rows)
{
    struct part part = matrix_part(naming, slot, layer, 0, PART_ROWS, first, rows, 1);
    part.dim_count = 1;
    return part;
}

/* Returns the part of a tensor of all experts that `role` selects. */
static struct part fused_part(const struct naming *naming, const struct hparams *s, int layer, int expert,
                              enum part_role role)
{
    int64_t inner = s->expert_inner, hidden = s->hidden;
    bool down = role == PART_DOWN;
    int64_t outputs = down ? hidden : 2 * inner, inputs = down ? inner : hidden;
    int64_t first = role != PART_UP ? 0 : naming->alternating ? 1 : inner;         /* first source row within the expert */
    struct part part = {.dim_count = 3, .role = role, .rows = down ? s->hidden : s->expert_inner, .columns = (int)inputs};
    part.dims[0] = s->router.experts;
    part.dims[1] = naming->transposed ? inputs : outputs;
    part.dims[2] = naming->transposed ? outputs : inputs;
    part.across = naming->transposed ? (int)outputs : 0;
    part.skip = expert * outputs * inputs + first * (naming->transposed ? 1 : inputs);
    if (naming->alternating && !down) {
        part.run = part.rows;
        part.from_step = 2;
    }
    fill_name(part.name, sizeof part.name, naming->slot[down ? SLOT_EXPERTS_DOWN : SLOT_EXPERTS_GATE_UP], layer, expert);
    return part;
}

/* Returns an expert's part of a tensor that contains all gates, all ups, or all downs. */
static struct part gathered_part(const struct naming *naming, enum source_slot slot, const struct hparams *s, int layer,
                                 int expert, enum part_role role)
{
    bool down = role == PART_DOWN;
    int rows = down ? s->hidden : s->expert_inner, columns = down ? s->expert_inner : s->hidden;
    struct part part = {.dims = {s->router.experts, rows, columns}, .dim_count = 3, .role = role, .rows = rows,
                        .columns = columns, .skip = (int64_t)expert * rows * columns};
    fill_name(part.name, sizeof part.name, naming->slot[slot], layer, expert);
    return part;
}

/* Fills parts[] for the biases of all experts: of gates and ups, which may alternate in the source or be two tensors; or of
 * downs. Returns the number of parts. */
static int expert_bias_parts(const struct naming *naming, const struct hparams *s, const struct tensor *t, struct part *parts)
{
    bool down = t->role == ROLE_EXPERTS_DOWN_BIAS;
    int experts = s->router.experts, inner = s->expert_inner, width = down ? s->hidden : 2 * inner;
    for (int up = 0; up < 2 && !down && naming->slot[SLOT_EXPERTS_GATE_BIAS]; up++) {
        parts[up] = (struct part){.dims = {experts, inner}, .dim_count = 2, .role = PART_ROWS, .first = up * inner,
                                  .rows = experts * inner, .columns = 1, .run = inner, .from_group = inner, .from_step = 1,
                                  .to_group = width};
        fill_name(parts[up].name, sizeof parts[up].name,
                  naming->slot[up ? SLOT_EXPERTS_UP_BIAS : SLOT_EXPERTS_GATE_BIAS], t->layer, 0);
    }
    if (!down && naming->slot[SLOT_EXPERTS_GATE_BIAS])
        return 2;
    struct part whole = {.dims = {experts, width}, .dim_count = 2, .role = PART_ROWS, .rows = experts * width, .columns = 1};
    fill_name(whole.name, sizeof whole.name, naming->slot[down ? SLOT_EXPERTS_DOWN_BIAS : SLOT_EXPERTS_GATE_UP_BIAS], t->layer,
              0);
    parts[0] = whole;
    if (down || !naming->alternating)
        return 1;
    for (int up = 0; up < 2; up++) {
        parts[up] = whole;
        parts[up].skip = up;
        parts[up].first = up * inner;
        parts[up].rows = experts * inner;
        parts[up].run = inner;
        parts[up].from_group = parts[up].to_group = width;
        parts[up].from_step = 2;
    }
    return 2;
}

/* Returns `part` with its rows in runs. */
static struct part in_runs(struct part part, int columns, int from_row, int run, int from_group, int from_step, int to_group)
{
    part.skip = (int64_t)from_row * columns;
    part.run = run;
    part.from_group = from_group;
    part.from_step = from_step;
    part.to_group = to_group;
    return part;
}

/* Fills parts[] for heads of a tensor [heads * head_dim][columns]. RoPE rotates the last `rotary` rows of each head in
 * neighbouring pairs. These rows are moved to the front of the head, the first row of all pairs before the second ones, so
 * that RoPE rotates halves. Products of queries and keys do not change. */
static int turning_parts(struct part whole, int heads, int head_dim, int rotary, int columns, struct part *parts)
{
    int rest = head_dim - rotary, half = rotary / 2;
    parts[0] = in_runs(whole, columns, rest, half, head_dim, 2, head_dim);
    parts[1] = in_runs(whole, columns, rest + 1, half, head_dim, 2, head_dim);
    parts[2] = in_runs(whole, columns, 0, rest, head_dim, 1, head_dim);
    parts[1].first = half;
    parts[2].first = rotary;
    parts[0].rows = parts[1].rows = heads * half;
    parts[2].rows = heads * rest;
    return 3;
}

/* Fills parts[] likewise for an indexer, whose heads begin with the rotated rows. */
static int index_parts(const struct naming *n, const struct hparams *s, const struct tensor *t, enum source_slot slot,
                       int heads, struct part *parts)
{
    const int dim = s->index.dim, half = s->rope.rotary / 2, rest = dim - 2 * half;
    const int columns = t->kind == TENSOR_VECTOR ? 1 : t->inputs;
    const struct part whole = t->kind == TENSOR_VECTOR ? vector_part(n, slot, t->layer, 0, t->outputs)
                                                       : matrix_part(n, slot, t->layer, 0, PART_ROWS, 0, t->outputs, columns);
    parts[0] = whole;
    if (!n->index_paired)
        return 1;
    for (int i = 0; i < 2; i++) {
        parts[i] = in_runs(whole, columns, i, half, dim, 2, dim);
        parts[i].first = i * half;
        parts[i].rows = heads * half;
    }
    parts[2] = in_runs(whole, columns, 2 * half, rest, dim, 1, dim);
    parts[2].first = 2 * half;
    parts[2].rows = heads * rest;
    return rest ? 3 : 2;
}

/* Fills parts[] for q or k, from row whole.first on. If the rows of a head's halves alternate, the first half is moved to
 * the front. */
static int half_parts(const struct naming *naming, struct part whole, int head_dim, int columns, struct part *parts)
{
    int half = head_dim / 2;
    parts[0] = whole;
    if (!naming->paired)
        return 1;
    for (int i = 0; i < 2; i++) {
        parts[i] = in_runs(whole, columns, i, half, head_dim, 2, head_dim);
        parts[i].first = whole.first + i * half;
        parts[i].rows = whole.rows / 2;
    }
    return 2;
}

/* Fills parts[] for a latent and the key after it, whose rows are reordered as in turning_parts. */
static int latent_parts(struct part whole, int rank, int rotary, int columns, struct part *parts)
{
    int half = rotary / 2;
    parts[0] = whole;
    parts[0].rows = rank;
    parts[1] = in_runs(whole, columns, rank, half, rotary, 2, rotary);
    parts[2] = in_runs(whole, columns, rank + 1, half, rotary, 2, rotary);
    parts[1].first = rank;
    parts[2].first = rank + half;
    parts[1].rows = parts[2].rows = half;
    return 3;
}

/* Fills parts[] for a matrix with each head's key, then its value: the keys of all heads are moved to the front. */
static int spread_parts(struct part whole, int heads, int own, int value_dim, int columns, struct part *parts)
{
    parts[0] = in_runs(whole, columns, 0, own, own + value_dim, 1, own);
    parts[1] = in_runs(whole, columns, own, value_dim, own + value_dim, 1, value_dim);
    parts[1].first = heads * own;
    parts[0].rows = heads * own;
    parts[1].rows = heads * value_dim;
    return 2;
}

/* Fills parts[] as spread_parts, from two tensors; the first one stores each head's rows as columns. */
static int cut_parts(const struct naming *n, const struct hparams *s, int layer, struct part *parts)
{
    int heads = s->attention.heads, own = s->attention.head_dim - s->rope.rotary, width = s->attention.value_dim;
    int rank = s->attention.kv_rank;
    parts[0] = (struct part){.dims = {heads, rank, own}, .dim_count = 3, .role = PART_ROWS, .rows = heads * own,
                             .columns = rank, .across = own, .run = own, .from_group = rank * own, .from_step = 1,
                             .to_group = own};
    parts[1] = (struct part){.dims = {heads, width, rank}, .dim_count = 3, .role = PART_ROWS, .first = heads * own,
                             .rows = heads * width, .columns = rank};
    fill_name(parts[0].name, sizeof parts[0].name, n->slot[SLOT_K_B], layer, 0);
    fill_name(parts[1].name, sizeof parts[1].name, n->slot[SLOT_V_B], layer, 0);
    return 2;
}

/* Removes the first part, the gate, if the network has no gate. Returns the number of parts left. */
static int without_gate(const struct tensor *t, struct part *parts, int count)
{
    if (!t->ungated)
        return count;
    memmove(parts, parts + 1, (size_t)(count - 1) * sizeof *parts);
    return count - 1;
}

static int expert_parts(const struct naming *n, const struct hparams *s, const struct tensor *t, int expert, struct part *parts)
{
    const bool gated = !t->ungated;
    if (n->slot[SLOT_EXPERTS_GATE_UP]) {
        parts[0] = fused_part(n, s, t->layer, expert, PART_GATE);
        parts[1] = fused_part(n, s, t->layer, expert, PART_UP);
        parts[2] = fused_part(n, s, t->layer, expert, PART_DOWN);
    } else if (n->slot[SLOT_EXPERTS_UP]) {
        parts[0] = gathered_part(n, gated ? SLOT_EXPERTS_GATE : SLOT_EXPERTS_UP, s, t->layer, expert, PART_GATE);
        parts[1] = gathered_part(n, SLOT_EXPERTS_UP, s, t->layer, expert, PART_UP);
        parts[2] = gathered_part(n, SLOT_EXPERTS_DOWN, s, t->layer, expert, PART_DOWN);
    } else {
        parts[0] = matrix_part(n, gated ? SLOT_EXPERT_GATE : SLOT_EXPERT_UP, t->layer, expert, PART_GATE, 0, s->expert_inner,
                               s->hidden);
        parts[1] = matrix_part(n, SLOT_EXPERT_UP, t->layer, expert, PART_UP, 0, s->expert_inner, s->hidden);
        parts[2] = matrix_part(n, SLOT_EXPERT_DOWN, t->layer, expert, PART_DOWN, 0, s->hidden, s->expert_inner);
    }
    return without_gate(t, parts, 3);
}

/* Returns `rows` rows of `whole` from `from_row` on, as a part that begins at row `first` of the tensor. */
static struct part some_rows(struct part whole, int columns, int from_row, int rows, int first)
{
    whole.skip = (int64_t)from_row * columns;
    whole.rows = rows;
    whole.first = first;
    return whole;
}

/* Fills parts[] for a dense network or for shared experts. gate: slot of the gate; the slots of up and down follow it.
 * joint: slot of gate and up in one tensor. */
static int block_parts(const struct naming *n, const struct tensor *t, enum source_slot gate, enum source_slot joint,
                       struct part *parts)
{
    int hidden = t->outputs, inner = t->inputs;
    if (n->slot[joint]) {
        const struct part both = matrix_part(n, joint, t->layer, 0, PART_GATE, 0, 2 * inner, hidden);
        parts[0] = some_rows(both, hidden, 0, inner, 0);
        parts[1] = some_rows(both, hidden, inner, inner, 0);
        parts[1].role = PART_UP;
        parts[2] = matrix_part(n, (enum source_slot)(gate + 2), t->layer, 0, PART_DOWN, 0, hidden, inner);
        return 3;
    }
    parts[0] = matrix_part(n, t->ungated ? (enum source_slot)(gate + 1) : gate, t->layer, 0, PART_GATE, 0, inner, hidden);
    parts[1] = matrix_part(n, (enum source_slot)(gate + 1), t->layer, 0, PART_UP, 0, inner, hidden);
    parts[2] = matrix_part(n, (enum source_slot)(gate + 2), t->layer, 0, PART_DOWN, 0, hidden, inner);
    return without_gate(t, parts, 3);
}

/* Returns the query rows of all heads in a gated SLOT_Q (from_row 0), or their gate rows (from_row head_dim). */
static struct part gated_q_part(const struct naming *n, const struct hparams *s, const struct tensor *t, int from_row)
{
    const int width = s->attention.head_dim, rows = s->attention.heads * width;
    struct part part = in_runs(matrix_part(n, SLOT_Q, t->layer, 0, PART_ROWS, 0, 2 * rows, t->inputs), t->inputs, from_row,
                               width, 2 * width, 1, width);
    part.rows = rows;
    return part;
}

static int qkv_parts(const struct naming *n, const struct hparams *s, const struct tensor *t, struct part *parts)
{
    const struct layer_attention own = hparams_attention(s, t->layer);
    int width = own.head_dim, q = s->attention.heads * width, k = own.kv_heads * width, v = own.kv_heads * own.value_dim, count;
    const int inputs = t->inputs;
    if (t->kind == TENSOR_VECTOR) {
        count = half_parts(n, vector_part(n, SLOT_Q_BIAS, t->layer, 0, q), width, 1, parts);
        count += half_parts(n, vector_part(n, SLOT_K_BIAS, t->layer, q, k), width, 1, parts + count);
        parts[count] = vector_part(n, SLOT_V_BIAS, t->layer, q + k, v);
        return count + 1;
    }
    if (n->gated_q) {
        parts[0] = gated_q_part(n, s, t, 0);
        count = 1;
    } else {
        count = half_parts(n, matrix_part(n, SLOT_Q, t->layer, 0, PART_ROWS, 0, q, inputs), width, inputs, parts);
    }
    count += half_parts(n, matrix_part(n, SLOT_K, t->layer, 0, PART_ROWS, q, k, inputs), width, inputs, parts + count);
    parts[count] = matrix_part(n, own.value_is_key ? SLOT_K : SLOT_V, t->layer, 0, PART_ROWS, q + k, v, inputs);
    return count + 1;
}

/* Returns the part with `run` rows of each key head's group of `group` rows, from row `from_row` of the group on. */
static struct part grouped(struct part whole, int columns, int from_row, int run, int group, int groups, int first)
{
    struct part part = in_runs(whole, columns, from_row, run, group, 1, run);
    part.first = first;
    part.rows = groups * run;
    return part;
}

/* Fills parts[] for delta.in and delta.gates from SLOT_DELTA_ALL, whose rows have another order (arch.h). */
static int delta_all_parts(const struct naming *n, const struct hparams *s, const struct tensor *t, struct part *parts)
{
    const struct delta_widths w = hparams_delta_widths(s);
    const int columns = t->inputs, k = w.keys, v = w.values;
    const struct part whole = matrix_part(n, SLOT_DELTA_ALL, t->layer, 0, PART_ROWS, 0, w.in + w.gates, columns);
    if (t->role == ROLE_DELTA_GATES) {
        parts[0] = some_rows(whole, columns, w.in, w.gates, 0);
        return 1;
    }
    if (s->delta.kind == RECURRENCE_NONE) {
        parts[0] = some_rows(whole, columns, 2 * v, v, 0);
        parts[1] = some_rows(whole, columns, v, v, v);
        parts[2] = some_rows(whole, columns, 0, v, 2 * v);
        return 3;
    }
    parts[0] = some_rows(whole, columns, 2 * v + k, k, 0);
    parts[1] = some_rows(whole, columns, 2 * v, k, k);
    parts[2] = some_rows(whole, columns, v, v, 2 * k);
    parts[3] = some_rows(whole, columns, 0, v, w.conv);
    return 4;
}

static int delta_in_parts(const struct naming *n, const struct hparams *s, const struct tensor *t, struct part *parts)
{
    const struct delta_shape *d = &s->delta;
    const int keys = d->key_heads * d->key_dim, values = d->value_heads * d->value_dim;
    const int each = d->key_heads ? values / d->key_heads : 0;
    const int group = 2 * d->key_dim + 2 * each, columns = t->inputs;
    if (d->kind == RECURRENCE_SCAN) {
        parts[0] = matrix_part(n, SLOT_DELTA_ALL, t->layer, 0, PART_ROWS, 0, t->outputs, columns);
        return 1;
    }
    if (n->slot[SLOT_DELTA_ALL])
        return delta_all_parts(n, s, t, parts);
    if (d->kind == RECURRENCE_CHANNEL) {
        const int rows[] = {keys, keys, values, d->gate_rank ? d->gate_rank : values, d->gate_rank};
        const enum source_slot slots[] = {SLOT_DELTA_Q, SLOT_DELTA_K, SLOT_DELTA_V,
                                          d->gate_rank ? SLOT_DELTA_GATE_A : SLOT_DELTA_Z, SLOT_DELTA_STEP_A};
        const int count = d->gate_rank ? 5 : 4;
        for (int i = 0, first = 0; i < count; first += rows[i++])
            parts[i] = matrix_part(n, slots[i], t->layer, 0, PART_ROWS, first, rows[i], columns);
        return count;
    }
    if (!n->slot[SLOT_DELTA_QKVZ]) {
        parts[0] = matrix_part(n, SLOT_DELTA_QKV, t->layer, 0, PART_ROWS, 0, 2 * keys + values, columns);
        parts[1] = matrix_part(n, SLOT_DELTA_Z, t->layer, 0, PART_ROWS, 2 * keys + values, values, columns);
        return 2;
    }
    const struct part whole = matrix_part(n, SLOT_DELTA_QKVZ, t->layer, 0, PART_ROWS, 0, t->outputs, columns);
    parts[0] = grouped(whole, columns, 0, d->key_dim, group, d->key_heads, 0);
    parts[1] = grouped(whole, columns, d->key_dim, d->key_dim, group, d->key_heads, keys);
    parts[2] = grouped(whole, columns, 2 * d->key_dim, each, group, d->key_heads, 2 * keys);
    parts[3] = grouped(whole, columns, 2 * d->key_dim + each, each, group, d->key_heads, 2 * keys + values);
    return 4;
}

/* Fills parts[] for delta.gates and delta.norm with RECURRENCE_SCAN: q, k and the latent of the steps. */
static int scan_parts(const struct naming *n, const struct hparams *s, const struct tensor *t, struct part *parts)
{
    const int keys = s->delta.key_dim, rank = s->delta.gate_rank, columns = t->inputs;
    if (t->kind == TENSOR_VECTOR) {
        parts[0] = vector_part(n, SLOT_DELTA_Q_NORM, t->layer, 0, keys);
        parts[1] = vector_part(n, SLOT_DELTA_K_NORM, t->layer, keys, keys);
        parts[2] = vector_part(n, SLOT_DELTA_STEP_NORM, t->layer, 2 * keys, rank);
        return 3;
    }
    const struct part whole = matrix_part(n, SLOT_DELTA_STEP_A, t->layer, 0, PART_ROWS, 0, t->outputs, columns);
    parts[0] = some_rows(whole, columns, rank + keys, keys, 0);
    parts[1] = some_rows(whole, columns, rank, keys, keys);
    parts[2] = some_rows(whole, columns, 0, rank, 2 * keys);
    return 3;
}

/* Returns the part of delta.neg_a with RECURRENCE_SCAN, whose source stores the floats of one value channel together. */
static struct part scan_slopes(const struct naming *n, const struct hparams *s, const struct tensor *t)
{
    const struct delta_shape *d = &s->delta;
    struct part part = matrix_part(n, SLOT_DELTA_A_LOG, t->layer, 0, PART_ROWS, 0, d->value_heads * d->key_dim, d->value_dim);
    part.dims[0] = d->value_heads * d->value_dim;
    part.dims[1] = part.across = part.run = part.to_group = d->key_dim;
    part.from_group = d->value_dim * d->key_dim;
    part.from_step = 1;
    return part;
}

static int delta_gate_parts(const struct naming *n, const struct hparams *s, const struct tensor *t, struct part *parts)
{
    if (s->delta.kind == RECURRENCE_SCAN)
        return scan_parts(n, s, t, parts);
    const int heads = s->delta.value_heads, groups = s->delta.key_heads, each = heads / groups, columns = t->inputs;
    if (n->slot[SLOT_DELTA_ALL])
        return delta_all_parts(n, s, t, parts);
    if (!n->slot[SLOT_DELTA_BA]) {
        parts[0] = matrix_part(n, SLOT_DELTA_B, t->layer, 0, PART_ROWS, 0, heads, columns);
        if (s->delta.gate_rank)
            return 1;
        parts[1] = matrix_part(n, SLOT_DELTA_A, t->layer, 0, PART_ROWS, heads, t->outputs - heads, columns);
        return 2;
    }
    const struct part whole = matrix_part(n, SLOT_DELTA_BA, t->layer, 0, PART_ROWS, 0, 2 * heads, columns);
    parts[0] = grouped(whole, columns, 0, each, 2 * each, groups, 0);
    parts[1] = grouped(whole, columns, each, each, 2 * each, groups, heads);
    return 2;
}

/* Fills parts[] for the weights of the convolution, or its bias. In the source the taps of a channel are contiguous. In
 * Mamba-2 the channels of v come first, then those of k, then those of q; Kimi Delta Attention uses one tensor for each of
 * the three. */
static int conv_parts(const struct naming *n, const struct hparams *s, const struct tensor *t, struct part *parts)
{
    const struct delta_widths w = hparams_delta_widths(s);
    const bool turned = s->delta.kind == RECURRENCE_SPACE, bias = t->role == ROLE_DELTA_CONV_BIAS;
    const int taps = bias ? 1 : s->delta.taps, width = w.conv;
    const int begin[] = {0, turned ? w.values : width, w.values + w.keys, width};
    const int first[] = {turned ? 2 * w.keys : 0, w.keys, 0};
    const int count = turned ? 3 : 1;
    for (int i = 0; i < 3 && s->delta.kind == RECURRENCE_CHANNEL; i++) {
        const int channels = i < 2 ? w.keys : w.values;
        parts[i] = in_runs(vector_part(n, (enum source_slot)(SLOT_DELTA_CONV_Q + i), t->layer, i * w.keys, channels * taps),
                           taps, 0, channels, 1, taps, width);
        parts[i].dims[0] = channels;
        parts[i].dims[1] = taps;
        parts[i].dim_count = 2;
    }
    if (s->delta.kind == RECURRENCE_CHANNEL)
        return 3;
    for (int i = 0; i < count; i++) {
        const int channels = begin[i + 1] - begin[i];
        const struct part whole = vector_part(n, bias ? SLOT_DELTA_CONV_BIAS : SLOT_DELTA_CONV, t->layer, first[i], t->outputs);
        struct part part = in_runs(whole, taps, begin[i], channels, 1, taps, width);
        part.rows = channels * taps;
        part.dims[0] = width;
        part.dims[1] = n->prepared_states ? taps : 1;
        part.dims[2] = taps;
        part.dim_count = bias ? 1 : n->prepared_states ? 2 : 3;
        parts[i] = part;
    }
    return count;
}

static bool is_centred(const struct naming *n, enum tensor_role role)
{
    return n->centred && (role == ROLE_FINAL_NORM || role == ROLE_ATTENTION_NORM || role == ROLE_FFN_NORM ||
                          role == ROLE_Q_NORM || role == ROLE_K_NORM || role == ROLE_PREDICT_NORM ||
                          role == ROLE_PREDICT_EMBED_NORM || role == ROLE_PREDICT_HIDDEN_NORM);
}

/* Slots of tensors that are made from one whole source tensor. */
static const enum source_slot SINGLE[] = {
    [ROLE_EMBED] = SLOT_EMBED, [ROLE_HEAD] = SLOT_HEAD, [ROLE_FINAL_NORM] = SLOT_FINAL_NORM,
    [ROLE_ATTENTION_NORM] = SLOT_ATTENTION_NORM, [ROLE_Q_NORM] = SLOT_Q_NORM, [ROLE_K_NORM] = SLOT_K_NORM,
    [ROLE_SHARED_GATE] = SLOT_SHARED_WEIGHT, [ROLE_OUT] = SLOT_OUT, [ROLE_OUT_BIAS] = SLOT_OUT_BIAS,
    [ROLE_FFN_NORM] = SLOT_FFN_NORM, [ROLE_ROUTER] = SLOT_ROUTER,
    [ROLE_ROUTER_CORRECTION] = SLOT_ROUTER_CORRECTION, [ROLE_HEAD_BIAS] = SLOT_HEAD_BIAS,
    [ROLE_FINAL_NORM_BIAS] = SLOT_FINAL_NORM_BIAS, [ROLE_ATTENTION_NORM_BIAS] = SLOT_ATTENTION_NORM_BIAS,
    [ROLE_FFN_NORM_BIAS] = SLOT_FFN_NORM_BIAS, [ROLE_Q_A] = SLOT_Q_A, [ROLE_Q_A_BIAS] = SLOT_Q_A_BIAS,
    [ROLE_Q_A_NORM] = SLOT_Q_A_NORM, [ROLE_KV_A_NORM] = SLOT_KV_A_NORM, [ROLE_SINKS] = SLOT_SINKS,
    [ROLE_INDEX_WEIGHT] = SLOT_INDEX_WEIGHT,
    [ROLE_ATTENTION_GATE] = SLOT_ATTENTION_GATE, [ROLE_ATTENTION_OUT_NORM] = SLOT_ATTENTION_OUT_NORM,
    [ROLE_FFN_OUT_NORM] = SLOT_FFN_OUT_NORM, [ROLE_EXPERTS_NORM] = SLOT_EXPERTS_NORM,
    [ROLE_EXPERTS_OUT_NORM] = SLOT_EXPERTS_OUT_NORM, [ROLE_SHARED_OUT_NORM] = SLOT_SHARED_OUT_NORM,
    [ROLE_LAYER_SCALE] = SLOT_LAYER_SCALE, [ROLE_ROUTER_NORM] = SLOT_ROUTER_NORM, [ROLE_EXPERT_SCALE] = SLOT_EXPERT_SCALE,
    [ROLE_DELTA_NEG_A] = SLOT_DELTA_A_LOG, [ROLE_DELTA_STEP_BIAS] = SLOT_DELTA_STEP_BIAS,
    [ROLE_DELTA_GATE] = SLOT_DELTA_GATE_B, [ROLE_DELTA_STEPS] = SLOT_DELTA_STEP_B,
    [ROLE_DELTA_SKIP] = SLOT_DELTA_SKIP, [ROLE_DELTA_NORM] = SLOT_DELTA_NORM, [ROLE_DELTA_OUT] = SLOT_DELTA_OUT,
    [ROLE_ROUTER_BIAS] = SLOT_ROUTER_BIAS, [ROLE_PREDICT_EMBED] = SLOT_PREDICT_EMBED,
    [ROLE_PREDICT_HEAD] = SLOT_PREDICT_HEAD, [ROLE_PREDICT_NORM] = SLOT_PREDICT_NORM,
    [ROLE_PREDICT_EMBED_NORM] = SLOT_PREDICT_EMBED_NORM, [ROLE_PREDICT_HIDDEN_NORM] = SLOT_PREDICT_HIDDEN_NORM,
    [ROLE_PREDICT_JOINT] = SLOT_PREDICT_JOINT, [ROLE_JOINT] = SLOT_JOINT, [ROLE_JOINT_BIAS] = SLOT_JOINT_BIAS,
    [ROLE_STATES_NORM] = SLOT_STATES_NORM, [ROLE_STATE_NORM] = SLOT_STATE_NORM, [ROLE_EMBED_NORM] = SLOT_EMBED_NORM,
    [ROLE_HIDDEN_NORM] = SLOT_HIDDEN_NORM, [ROLE_BRANCH_UP] = SLOT_BRANCH_UP, [ROLE_BRANCH_DOWN] = SLOT_BRANCH_DOWN,
    [ROLE_BLOCK] = SLOT_BLOCK, [ROLE_BLOCK_BIAS] = SLOT_BLOCK_BIAS, [ROLE_RESIDUAL] = SLOT_RESIDUAL,
    [ROLE_RESIDUAL_BIAS] = SLOT_RESIDUAL_BIAS, [ROLE_OUTPUT] = SLOT_OUTPUT, [ROLE_OUTPUT_BIAS] = SLOT_OUTPUT_BIAS,
};

static enum source_slot single_slot(const struct naming *n, const struct hparams *s, const struct tensor *t)
{
    const bool ahead = t->role == ROLE_FFN_NORM && t->layer >= s->layers && n->slot[SLOT_PREDICT_FFN_NORM];
    return ahead ? SLOT_PREDICT_FFN_NORM : SINGLE[t->role];
}

static int tensor_parts(const struct naming *n, const struct hparams *s, const struct tensor *t, int block,
                        struct part parts[PARTS_MAX])
{
    const int stage = n->spaced ? 2 * t->stage + 1 : t->stage;
    switch (t->role) {
    case ROLE_QKV:
    case ROLE_QKV_BIAS:
        return qkv_parts(n, s, t, parts);
    case ROLE_Q:
        return turning_parts(matrix_part(n, s->attention.q_rank ? SLOT_Q_B : SLOT_Q, t->layer, 0, PART_ROWS, 0, t->outputs,
                                         t->inputs),
                             s->attention.heads, s->attention.head_dim, s->rope.rotary, t->inputs, parts);
    case ROLE_KV_A:
        return latent_parts(matrix_part(n, SLOT_KV_A, t->layer, 0, PART_ROWS, 0, t->outputs, t->inputs),
                            s->attention.kv_rank, s->rope.rotary, t->inputs, parts);
    case ROLE_KV_A_BIAS:
        return latent_parts(vector_part(n, SLOT_KV_A_BIAS, t->layer, 0, t->outputs), s->attention.kv_rank, s->rope.rotary, 1,
                            parts);
    case ROLE_KV_B:
        if (n->slot[SLOT_K_B])
            return cut_parts(n, s, t->layer, parts);
        return spread_parts(matrix_part(n, SLOT_KV_B, t->layer, 0, PART_ROWS, 0, t->outputs, t->inputs), s->attention.heads,
                            s->attention.head_dim - s->rope.rotary, s->attention.value_dim, t->inputs, parts);
    case ROLE_INDEX_Q:
        return index_parts(n, s, t, SLOT_INDEX_Q, s->index.heads, parts);
    case ROLE_INDEX_K:
        return index_parts(n, s, t, SLOT_INDEX_K, 1, parts);
    case ROLE_INDEX_K_NORM:
        return index_parts(n, s, t, SLOT_INDEX_K_NORM, 1, parts);
    case ROLE_INDEX_K_NORM_BIAS:
        return index_parts(n, s, t, SLOT_INDEX_K_NORM_BIAS, 1, parts);
    case ROLE_EXPERTS_GATE_UP_BIAS:
    case ROLE_EXPERTS_DOWN_BIAS:
        return expert_bias_parts(n, s, t, parts);
    case ROLE_EXPERTS:
        return expert_parts(n, s, t, block, parts);
    case ROLE_DENSE:
        return block_parts(n, t, SLOT_DENSE_GATE, SLOT_DENSE_GATE_UP, parts);
    case ROLE_SHARED:
        return block_parts(n, t, SLOT_SHARED_GATE, SLOT_SHARED_GATE_UP, parts);
    case ROLE_DELTA_IN:
        return delta_in_parts(n, s, t, parts);
    case ROLE_DELTA_GATES:
        return delta_gate_parts(n, s, t, parts);
    case ROLE_DELTA_CONV:
    case ROLE_DELTA_CONV_BIAS:
        return conv_parts(n, s, t, parts);
    case ROLE_ATTENTION_GATE:
        parts[0] = n->gated_q ? gated_q_part(n, s, t, s->attention.head_dim)
                              : matrix_part(n, SLOT_ATTENTION_GATE, t->layer, 0, PART_ROWS, 0, t->outputs, t->inputs);
        return 1;
    default:
        if (t->role == ROLE_DELTA_NORM && s->delta.kind == RECURRENCE_SCAN)
            return scan_parts(n, s, t, parts);
        parts[0] = matrix_part(n, single_slot(n, s, t), t->layer, stage, PART_ROWS, 0, t->outputs, t->inputs);
        if (t->kind == TENSOR_VECTOR)
            parts[0].dim_count = 1;
        if (t->role == ROLE_DELTA_NEG_A && s->delta.kind == RECURRENCE_SCAN)
            parts[0] = scan_slopes(n, s, t);
        parts[0].value = t->role == ROLE_DELTA_NEG_A && !n->prepared_states ? VALUE_NEG_EXP
                         : is_centred(n, t->role) ? VALUE_PLUS_ONE : VALUE_SAME;
        if (t->role == ROLE_DELTA_NORM && n->prepared_states && s->delta.norm_groups) {
            parts[0].dims[0] = s->delta.norm_groups;
            parts[0].dims[1] = t->outputs / s->delta.norm_groups;
            parts[0].dim_count = 2;
        }
        if (t->role == ROLE_ROUTER_CORRECTION && n->correction_row) {
            parts[0].dims[0] = 1;
            parts[0].dims[1] = t->outputs;
            parts[0].dim_count = 2;
        }
        return 1;
    }
}

/* Renames a tensor of a predictor's layer: the prefix becomes naming->ahead, and layers count from the first predictor. */
static void rename_ahead(const struct naming *n, const struct hparams *s, int layer, char *name, size_t room)
{
    char old[128];
    snprintf(old, sizeof old, "%s", name);
    const char *rest = n->ahead && layer >= s->layers ? strstr(old, "layers.") : NULL;
    if (!rest)
        return;
    rest += strlen("layers.");
    rest += strspn(rest, "0123456789");
    snprintf(name, room, "%slayers.%d%s", n->ahead, layer - s->layers, rest);
}

int arch_parts(const struct naming *n, const struct hparams *s, const struct tensor *t, int block, struct part parts[PARTS_MAX])
{
    const int count = tensor_parts(n, s, t, block, parts);
    for (int i = 0; i < count; i++)
        rename_ahead(n, s, t->layer, parts[i].name, sizeof parts[i].name);
    return count;
}

struct lookup {
    const struct naming *naming;
    const struct hparams *shape;
    bool (*has)(const void *context, const char *name);
    const void *context;
};

static bool has_tensor(const struct lookup *lookup, enum source_slot slot, int layer)
{
    char name[128];
    if (!lookup->naming->slot[slot])
        return false;
    fill_name(name, sizeof name, lookup->naming->slot[slot], layer, 0);
    rename_ahead(lookup->naming, lookup->shape, layer, name, sizeof name);
    return lookup->has(lookup->context, name);
}

static bool has_experts(const struct lookup *lookup, int layer)
{
    const char *const *slot = lookup->naming->slot;
    return has_tensor(lookup, slot[SLOT_EXPERTS_GATE_UP] ? SLOT_EXPERTS_GATE_UP
                      : slot[SLOT_EXPERTS_UP] ? SLOT_EXPERTS_UP : SLOT_EXPERT_UP, layer);
}

/* Returns whether the first layer with a state has an output tensor of this naming; true if no layer has a state. */
static bool has_states(const struct lookup *lookup)
{
    int layer = 0;
    while (layer < lookup->shape->layers && !lookup->shape->layer[layer].state)
        layer++;
    return layer == lookup->shape->layers || has_tensor(lookup, SLOT_DELTA_OUT, layer);
}

const struct naming *arch_naming(const struct arch *arch, const struct hparams *shape,
                                 bool (*has)(const void *context, const char *name), const void *context)
{
    const struct naming *gguf = arch_naming_gguf(arch, has, context), *found = NULL;
    int layer = 0, dense = 0;
    if (gguf)
        return gguf;
    while (layer < shape->layers && shape->layer[layer].ffn != FFN_EXPERTS)
        layer++;
    while (dense < shape->layers && shape->layer[dense].ffn != FFN_DENSE)
        dense++;
    for (int i = 0; i < 3 && arch->naming[i] && layer < shape->layers; i++) {
        const struct lookup lookup = {arch->naming[i], shape, has, context};
        if (!has_experts(&lookup, layer))
            continue;
        if ((dense == shape->layers || has_tensor(&lookup, SLOT_DENSE_DOWN, dense)) && has_states(&lookup))
            return arch->naming[i];
        found = found ? found : arch->naming[i];
    }
    return found ? found : arch->naming[0];
}

int arch_state_layers(const json_t *config, const struct arch *arch, const struct naming *naming, struct hparams *shape,
                      bool (*has)(const void *context, const char *name), const void *context, struct err *err)
{
    const char *const kinds[] = {arch->layer_types[0] ? arch->layer_types[0] : "full_attention",
                                 arch->layer_types[1] ? arch->layer_types[1] : "linear_attention"};
    const struct lookup lookup = {naming, shape, has, context};
    const json_t *text = arch_text_config(config);
    const char *key = config_get(text, "layer_types") ? "layer_types" : "full_attention_interval";
    for (int i = 0; i < shape->layers && arch->states; i++) {
        char name[128];
        /* With latents, q and the output can have the same names in layers with and without a state. */
        const enum source_slot one = arch->latent ? SLOT_KV_A : SLOT_Q;
        const enum source_slot other = arch->latent ? SLOT_DELTA_A_LOG : SLOT_DELTA_OUT;
        const bool attention = has_tensor(&lookup, one, i), state = has_tensor(&lookup, other, i);
        fill_name(name, sizeof name, naming->slot[state ? other : one], i, 0);
        if (attention && state)
            return err_set(err, ERR_INPUT, "layer %d has tensors of attention and of a recurrent state, such as %s; a layer "
                           "has only one of the two, so remove the tensors of the other", i, name);
        if (attention == state || state == shape->layer[i].state)
            continue;
        if (config_get(text, key))
            return err_set(err, ERR_INPUT, "config.json: by %s layer %d is %s, but the weights contain %s; correct config.json",
                           key, i, kinds[!state], name);
        shape->layer[i].state = state;
    }
    if (!hparams_state_layers(shape))
        shape->delta = (struct delta_shape){0};
    return 0;
}

static bool has_predictor(const struct lookup *lookup, int layer)
{
    return has_tensor(lookup, SLOT_PREDICT_JOINT, layer) &&
           (!lookup->naming->ahead || has_tensor(lookup, SLOT_ATTENTION_NORM, layer));
}

int arch_predictors(const struct naming *naming, struct hparams *shape, bool (*has)(const void *context, const char *name),
                    const void *context, struct err *err)
{
    const struct lookup lookup = {naming, shape, has, context};
    int count = 0;
    for (int layer; has_predictor(&lookup, layer = shape->layers + count); count++) {
        if (count == PREDICTORS_MAX || layer == LAYERS_MAX)
            return err_set(err, ERR_INPUT, "has too many multi-token prediction layers, from layer %d on; at most %d, and up "
                           "to layer %d, are supported", shape->layers, PREDICTORS_MAX, LAYERS_MAX - 1);
        bool dense = !shape->router.experts || (shape->dense_inner && has_tensor(&lookup, SLOT_DENSE_GATE, layer));
        shape->layer[layer].ffn = dense ? FFN_DENSE : FFN_EXPERTS;
        shape->predictor[count].embed = has_tensor(&lookup, SLOT_PREDICT_EMBED, layer);
        shape->predictor[count].head = has_tensor(&lookup, SLOT_PREDICT_HEAD, layer);
    }
    shape->predictors = count;
    for (int layer = shape->layers + count; layer < shape->layers + PREDICTORS_MAX && layer < LAYERS_MAX; layer++)
        shape->layer[layer] = (struct layer_shape){0};
    return hparams_check(shape, err);
}

const struct naming *arch_naming_ahead(const struct arch *arch, const struct naming *naming, const struct hparams *shape,
                                       bool (*has)(const void *context, const char *name), const void *context)
{
    int i = 0;
    while (i < 3 && arch->naming[i] != naming)
        i++;
    for (int k = 0; k < 3 && i < 3 && arch->naming[k]; k++)
        if (has_experts(&(struct lookup){arch->naming[k], shape, has, context}, shape->layers))
            return arch->naming[k];
    return naming;
}
