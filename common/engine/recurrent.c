#include "common/engine/recurrent.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/engine/engine.h"

/* Value of recurrent_node.own and .after: no state. */
enum { NOT_MADE = -2 };

/* FIRST_SLOTS: max slots of tokens, those of `held` included. PROMPT_STATES: max states while a prompt is read, likewise. */
enum { FIRST_SLOTS = 2 * RECURRENT_TAIL, DOUBLED_SLOTS = FIRST_SLOTS + ENGINE_ROWS_MAX, FIRST_STATES = 4, PROMPT_STATES = 6 };

/* ---- memory ---- */

/* Floats per slot in each buffer, and per state. */
struct widths {
    int64_t conv, key, decay, correction, state;
};

static struct widths widths_of(const struct hparams *shape)
{
    const struct delta_shape *d = &shape->delta;
    const struct delta_widths w = hparams_delta_widths(shape);
    const int64_t values = d->kind == RECURRENCE_NONE ? 0 : w.values;
    return (struct widths){w.conv, w.keys, w.steps, values, values * d->key_dim};
}

uint64_t recurrent_bytes(const struct hparams *shape, int nodes)
{
    const struct widths w = widths_of(shape);
    const uint64_t slots = (uint64_t)(FIRST_SLOTS + nodes);
    return (uint64_t)hparams_state_layers(shape) * sizeof(float) *
           (slots * (uint64_t)(w.conv + w.key + w.decay + w.correction) + PROMPT_STATES * (uint64_t)w.state);
}

/* Replaces a buffer of `old` rows by one of `rows` rows and copies the old rows. */
static int grow(struct recurrent *r, struct buffer *buffer, int64_t width, int old, int rows, struct err *err)
{
    const uint64_t row = (uint64_t)width * sizeof(float), bytes = (uint64_t)old * row;
    struct buffer larger;
    void *room = NULL;
    int rc = -1;
    if (!width)                                      /* the short convolution alone has no such buffer */
        return 0;
    if (device_alloc(r->device, (uint64_t)rows * row, &larger, err))
        return err_at(err, "states of a text");
    if (bytes && !(room = mem_alloc(bytes, 1, err)))
        goto done;
    if (bytes)
        queue_download(r->device, room, *buffer, bytes);
    if (queue_wait(r->device, err))
        goto done;
    if (bytes)
        queue_upload(r->device, larger, room, bytes);
    device_free(r->device, buffer);
    *buffer = larger;
    larger = (struct buffer){0, 0};
    rc = 0;
done:
    device_free(r->device, &larger);
    mem_free(&room);
    return rc;
}

static int grow_used(bool **used, int old, int count, struct err *err)
{
    bool *larger = mem_alloc((size_t)count, sizeof *larger, err);
    if (!larger)
        return -1;
    if (old)
        memcpy(larger, *used, (size_t)old * sizeof *larger);
    mem_free(used);
    *used = larger;
    return 0;
}

static int grow_slots(struct recurrent *r, int slots, struct err *err)
{
    const struct widths w = widths_of(r->shape);
    if (grow_used(&r->slot_used, r->slots, slots, err))
        return -1;
    for (int n = 0; n < r->shape->layers; n++) {
        struct recurrent_layer *at = &r->layer[n];
        if (r->shape->layer[n].state &&
            (grow(r, &at->conv, w.conv, r->slots, slots, err) || grow(r, &at->key, w.key, r->slots, slots, err) ||
             grow(r, &at->decay, w.decay, r->slots, slots, err) ||
             grow(r, &at->correction, w.correction, r->slots, slots, err)))
            return -1;
    }
    r->slots = slots;
    return 0;
}

static int grow_states(struct recurrent *r, int states, struct err *err)
{
    const struct widths w = widths_of(r->shape);
    if (grow_used(&r->state_used, r->states, states, err))
        return -1;
    for (int n = 0; n < r->shape->layers; n++)
        if (r->shape->layer[n].state && grow(r, &r->layer[n].state, w.state, r->states, states, err))
            return -1;
    r->states = states;
    return 0;
}

static int take(bool *used, int count)
{
    for (int i = 0; i < count; i++)
        if (!used[i]) {
            used[i] = true;
            return i;
        }
    return -1;
}

/* Makes room for `rows` more nodes: exactly as much as recurrent_bytes counts, but small capacities are doubled, because nodes
 * may come one by one. */
static int reserve_slots(struct recurrent *r, int rows, struct err *err)
{
    const int doubled = 2 * r->slots < DOUBLED_SLOTS ? 2 * r->slots : DOUBLED_SLOTS;
    const int wanted = FIRST_SLOTS + r->now.pending + rows;
    int used = 0;
    for (int i = 0; i < r->slots; i++)
        used += r->slot_used[i];
    return r->slots - used < rows ? grow_slots(r, wanted > doubled ? wanted : doubled, err) : 0;
}

static int take_state(struct recurrent *r, int32_t *state, struct err *err)
{
    if ((*state = take(r->state_used, r->states)) >= 0)
        return 0;
    if (grow_states(r, r->states + 2, err))
        return -1;
    *state = take(r->state_used, r->states);
    return 0;
}

int recurrent_open(struct recurrent *r, struct device *device, const struct hparams *shape, struct err *err)
{
    *r = (struct recurrent){.device = device, .shape = shape, .layers = hparams_state_layers(shape), .held.length = -1};
    if (!r->layers)
        return 0;
    r->layer = mem_alloc((size_t)shape->layers, sizeof *r->layer, err);
    return !r->layer || grow_slots(r, FIRST_SLOTS, err) || grow_states(r, FIRST_STATES, err) ? -1 : 0;
}

void recurrent_close(struct recurrent *r)
{
    for (int n = 0; r->layer && n < r->shape->layers; n++) {
        struct recurrent_layer *at = &r->layer[n];
        struct buffer *all[] = {&at->conv, &at->key, &at->decay, &at->correction, &at->state};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            device_free(r->device, all[i]);
    }
    mem_free(&r->layer);
    mem_free(&r->node);
    mem_free(&r->slot_used);
    mem_free(&r->state_used);
    mem_free(&r->made);
}

/* ---- slots and states in use ---- */

static void mark(struct recurrent *r, const struct recurrent_node *node, int count)
{
    for (int i = 0; i < count; i++) {
        if (node[i].slot >= 0)
            r->slot_used[node[i].slot] = true;
        if (node[i].own >= 0)
            r->state_used[node[i].own] = true;
        if (node[i].after >= 0)
            r->state_used[node[i].after] = true;
    }
}

static void mark_all(struct recurrent *r)
{
    memset(r->slot_used, 0, (size_t)r->slots * sizeof *r->slot_used);
    memset(r->state_used, 0, (size_t)r->states * sizeof *r->state_used);
    mark(r, r->now.tail, r->now.tail_count);
    mark(r, r->node, r->now.pending);
    if (r->held.length >= 0)
        mark(r, r->held.tail, r->held.tail_count);
}

/* Returns a pending node, or a token by its negative index from the end (-1: the last). NULL: not kept, or none. */
static struct recurrent_node *at(struct recurrent *r, int number)
{
    if (number >= 0)
        return &r->node[number];
    return -number <= r->now.tail_count ? &r->now.tail[r->now.tail_count + number] : NULL;
}

static int before_of(const struct kv *kv, int number) { return number >= 0 ? kv->parent[number] : number - 1; }

/* ---- rows ---- */

int recurrent_table_open(struct recurrent_table *table, struct device *device, int max_rows, const struct hparams *shape,
                         struct err *err)
{
    struct recurrent_rows *rows = &table->at;
    const size_t each = (size_t)max_rows * sizeof(int32_t);
    *table = (struct recurrent_table){.device = device};
    if (!hparams_state_layers(shape))
        return 0;
    return device_alloc(device, each, &rows->slot, err) || device_alloc(device, each, &rows->parent, err) ||
           device_alloc(device, each, &rows->own, err) || device_alloc(device, each, &rows->before, err) ||
           device_alloc(device, each * CONV_TAPS_MAX, &rows->past, err) ||
           device_alloc(device, 2 * each, &rows->path_start, err) ||
           device_alloc(device, each * 2 * DELTA_BORDER, &rows->path, err) ? -1 : 0;
}

void recurrent_table_close(struct recurrent_table *table)
{
    struct recurrent_rows *rows = &table->at;
    struct buffer *all[] = {&rows->slot, &rows->parent, &rows->own, &rows->before, &rows->past, &rows->path_start, &rows->path};
    for (size_t i = 0; table->device && i < sizeof all / sizeof *all; i++)
        device_free(table->device, all[i]);
    mem_free(&table->value);
}

/* Returns the part of a buffer of i32 from number `first` on. */
static struct buffer numbers_from(struct buffer all, int64_t first)
{
    const uint64_t offset = (uint64_t)first * sizeof(int32_t);
    return buffer_part(all, offset, all.bytes - offset);
}

/* Returns the part of the table for a text's rows. Paths count from the beginning of this part, so there is one more path
 * start per text than rows. */
struct recurrent_rows recurrent_table_part(const struct recurrent_table *table, const struct hparams *shape, int first,
                                           int text)
{
    const struct recurrent_rows *all = &table->at;
    if (!first || !all->slot.address)
        return *all;
    return (struct recurrent_rows){
        .slot = numbers_from(all->slot, first), .parent = numbers_from(all->parent, first),
        .own = numbers_from(all->own, first), .before = numbers_from(all->before, first),
        .past = numbers_from(all->past, (int64_t)first * (shape->delta.taps - 1)),
        .path_start = numbers_from(all->path_start, first + text),
        .path = numbers_from(all->path, (int64_t)first * 2 * DELTA_BORDER)};
}

/* The host's copies of the arguments of a call, in one scratch array of the table. */
struct arrays {
    int32_t *slot, *parent, *own, *before, *past, *start, *path;
    int used;                                        /* elements of path in use */
};

static int make_arrays(struct recurrent_table *table, int rows, struct arrays *out, struct err *err)
{
    const size_t n = (size_t)rows, count = n * (5 + CONV_TAPS_MAX + 2 * DELTA_BORDER) + 1;
    if (mem_grow(&table->value, &table->value_room, count, sizeof *table->value, err))
        return -1;
    int32_t *v = table->value;
    *out = (struct arrays){v, v + n, v + 2 * n, v + 3 * n, v + 4 * n, v + (4 + CONV_TAPS_MAX) * n,
                           v + (5 + CONV_TAPS_MAX) * n + 1, 0};
    return 0;
}

static void upload_arrays(struct device *device, const struct recurrent_rows *at, const struct arrays *a, int rows, int past)
{
    const size_t each = (size_t)rows * sizeof(int32_t);
    queue_upload(device, at->slot, a->slot, each);
    queue_upload(device, at->parent, a->parent, each);
    queue_upload(device, at->own, a->own, each);
    queue_upload(device, at->before, a->before, each);
    queue_upload(device, at->past, a->past, each * (size_t)past);
    queue_upload(device, at->path_start, a->start, each + sizeof(int32_t));
    queue_upload(device, at->path, a->path, (size_t)a->used * sizeof(int32_t));
}

/* Returns in *own the state at the beginning of a segment. last: the last token of the segment before. *before: the state
 * from which the call computes it, or DELTA_KEPT if it exists already. */
static int enter_segment(struct recurrent *r, int last, int32_t *own, int32_t *before, struct err *err)
{
    struct recurrent_node *end = at(r, last);
    int32_t state;
    *before = DELTA_KEPT;
    if (end->after == NOT_MADE) {
        if (mem_grow(&r->made, &r->made_room, (size_t)r->made_count + 1, sizeof *r->made, err) || take_state(r, &state, err))
            return -1;
        r->made[r->made_count++] = last;
        *before = end->own;
        end->after = state;
    }
    *own = end->after;
    return 0;
}

/* Assigns the slot and the states of a node and fills in the arguments of its row. */
static int fill_row(struct recurrent *r, const struct kv *kv, int node, int row, struct arrays *a, struct err *err)
{
    const int past = r->shape->delta.taps - 1, position = kv->length + kv->depth[node], inside = position % DELTA_BORDER;
    const int parent = kv->parent[node], segment = position - inside;
    struct recurrent_node *self = &r->node[node];
    int32_t before = DELTA_KEPT;
    int last = parent;
    self->slot = take(r->slot_used, r->slots);
    self->after = NOT_MADE;
    self->own = inside ? at(r, parent)->own : DELTA_ZERO;
    if (!inside && segment && enter_segment(r, parent, &self->own, &before, err))
        return -1;
    a->slot[row] = self->slot;
    a->parent[row] = inside ? at(r, parent)->slot : -1;
    a->own[row] = self->own;
    a->before[row] = before;
    for (int t = past - 1, i = position - 1; t >= 0; t--, i--) {
        a->past[row * past + t] = i >= 0 ? at(r, last)->slot : -1;
        last = i >= 0 ? before_of(kv, last) : last;
    }
    const int steps = inside + 1 + (before == DELTA_KEPT ? 0 : DELTA_BORDER);
    a->start[row] = a->used;
    last = node;
    for (int i = steps - 1; i >= 0; i--, last = i >= 0 ? before_of(kv, last) : last)
        a->path[a->used + i] = at(r, last)->slot;
    a->used += steps;
    return 0;
}

/* Frees the states of a chain that no later row needs: all but those of the row's segment and the one before. */
static void forget_states(struct recurrent *r, int first, int node)
{
    const int32_t own = r->node[node].own;
    int end = node;
    while (end >= first && r->node[end].own == own)
        end--;
    const int32_t last = end >= first ? r->node[end].own : own;
    bool any = false;
    for (int i = first; i <= end; i++) {
        struct recurrent_node *at_node = &r->node[i];
        any |= at_node->own != last && at_node->own >= 0;
        if (at_node->own != last)
            at_node->own = NOT_MADE;
        if (at_node->after != last && at_node->after != own)
            at_node->after = NOT_MADE;
    }
    if (any)
        mark_all(r);
}

int recurrent_fill(struct recurrent *r, struct recurrent_table *table, const struct recurrent_rows *to, const struct kv *kv,
                   const int32_t *node, int rows, bool chain, struct err *err)
{
    const int first = r->now.pending;
    struct arrays a;
    r->made_count = 0;
    if (make_arrays(table, rows, &a, err) || reserve_slots(r, rows, err) ||
        mem_grow(&r->node, &r->node_room, (size_t)(first + rows), sizeof *r->node, err))
        return -1;
    for (int row = 0; row < rows; row++) {
        r->node[node[row]] = (struct recurrent_node){-1, NOT_MADE, NOT_MADE};
        r->now.pending = node[row] + 1;
        if (fill_row(r, kv, node[row], row, &a, err))
            return -1;
        if (chain && (kv->length + kv->depth[node[row]]) % DELTA_BORDER == 0)
            forget_states(r, first, node[row]);
    }
    a.start[rows] = a.used;
    upload_arrays(table->device, to, &a, rows, r->shape->delta.taps - 1);
    return 0;
}

void recurrent_forget_made(struct recurrent *r)
{
    for (int i = 0; i < r->made_count; i++)
        if (r->made[i] < 0)
            at(r, r->made[i])->after = NOT_MADE;
}

void recurrent_drop(struct recurrent *r, int pending, bool failed)
{
    if (!r->layers)
        return;
    r->now.pending = pending < r->now.pending ? pending : r->now.pending;
    for (int i = 0; failed && i < r->made_count; i++)
        if (r->made[i] < r->now.pending)
            at(r, r->made[i])->after = NOT_MADE;
    r->made_count = 0;
    mark_all(r);
}

/* ---- the text ---- */

/* Drops tokens from the tail that no later token needs. */
static void trim(struct recurrent_plan *plan, int past)
{
    const int first = plan->length - plan->length % DELTA_BORDER - DELTA_BORDER;     /* states are kept from this position on */
    const int keep = first - past > 0 ? plan->length - (first - past) : plan->length;
    if (plan->tail_count > keep) {
        memmove(plan->tail, plan->tail + (plan->tail_count - keep), (size_t)keep * sizeof *plan->tail);
        plan->tail_count = keep;
    }
    for (int i = 0, position = plan->length - plan->tail_count; i < plan->tail_count; i++, position++)
        if (position < first) {
            plan->tail[i].own = NOT_MADE;
            plan->tail[i].after = position + 1 == first ? plan->tail[i].after : NOT_MADE;
        }
}

void recurrent_commit(struct recurrent *r, const int32_t *node, int count)
{
    struct recurrent_plan *plan = &r->now;
    if (!r->layers)
        return;
    for (int i = 0; i < count; i++) {
        if (plan->tail_count == RECURRENT_TAIL)
            memmove(plan->tail, plan->tail + 1, (size_t)--plan->tail_count * sizeof *plan->tail);
        plan->tail[plan->tail_count++] = r->node[node[i]];
    }
    plan->length += count;
    plan->pending = 0;
    trim(plan, r->shape->delta.taps - 1);
    mark_all(r);
}

/* Returns whether a token could follow if only the first `length` tokens were kept. */
static bool can_follow(const struct recurrent *r, int length)
{
    const struct recurrent_plan *plan = &r->now;
    const int first = plan->length - plan->tail_count, past = r->shape->delta.taps - 1, inside = length % DELTA_BORDER;
    if (!length || length == plan->length)
        return true;
    if (length <= first || (first && length - past < first))
        return false;
    const struct recurrent_node *last = &plan->tail[length - 1 - first];
    if (!inside && last->after != NOT_MADE)
        return true;
    return last->own != NOT_MADE && length - (inside ? inside : DELTA_BORDER) >= first;
}

int recurrent_keeps(const struct recurrent *r, int length)
{
    const int first = r->now.length - r->now.tail_count;
    if (!r->layers)
        return length;
    while (length > first && !can_follow(r, length))
        length--;
    return length > first ? length : 0;
}

void recurrent_truncate(struct recurrent *r, int length)
{
    struct recurrent_plan *plan = &r->now;
    if (!r->layers)
        return;
    const int cut = plan->length - length;
    plan->tail_count = cut < plan->tail_count ? plan->tail_count - cut : 0;
    plan->length = length;
    plan->pending = 0;
    mark_all(r);
}

void recurrent_hold(struct recurrent *r) { r->held = r->now; }

void recurrent_rewind(struct recurrent *r)
{
    if (!r->layers)
        return;
    r->now = r->held;
    mark_all(r);
}

void recurrent_release(struct recurrent *r)
{
    r->held.length = -1;
    if (r->layers)
        mark_all(r);
}

static int copy_buffer(struct recurrent *to, struct buffer into, const struct buffer *from, void *room, struct err *err)
{
    if (!from->bytes)
        return 0;
    queue_download(to->device, room, *from, from->bytes);
    if (queue_wait(to->device, err))
        return -1;
    queue_upload(to->device, into, room, from->bytes);
    return 0;
}

int recurrent_copy(struct recurrent *to, const struct recurrent *from, struct err *err)
{
    const struct widths w = widths_of(from->shape);
    void *room = NULL;
    int rc = 0;
    if (!to->layers)
        return 0;
    if ((to->slots < from->slots && grow_slots(to, from->slots, err)) ||
        (to->states < from->states && grow_states(to, from->states, err)))
        return -1;
    const size_t slots = (size_t)from->slots * (size_t)w.conv, states = (size_t)from->states * (size_t)w.state;
    room = mem_alloc((slots > states ? slots : states) + (size_t)from->slots * (size_t)(w.key + w.decay + w.correction),
                     sizeof(float), err);
    rc = room ? 0 : -1;
    for (int n = 0; !rc && n < from->shape->layers; n++) {
        const struct recurrent_layer *f = &from->layer[n], *t = &to->layer[n];
        if (from->shape->layer[n].state)
            rc = copy_buffer(to, t->conv, &f->conv, room, err) || copy_buffer(to, t->key, &f->key, room, err) ||
                 copy_buffer(to, t->decay, &f->decay, room, err) ||
                 copy_buffer(to, t->correction, &f->correction, room, err) ||
                 copy_buffer(to, t->state, &f->state, room, err) ? -1 : 0;
    }
    mem_free(&room);
    if (rc)
        return -1;
    to->now = from->now;
    to->now.pending = 0;
    mark_all(to);
    return 0;
}
