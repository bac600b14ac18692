#include "common/train/loss.h"

#include <string.h>

#include "common/train/stored.h"

/* Limits for the logits in memory at once: LOGITS floats, and rows. Many rows at once are faster, because each chunk reads all
 * weights of the output head. */
enum { LOGITS = 12 << 20, ROWS_MAX = 512, ROWS_MIN = 16 };

/* Returns the rows per chunk if `all` rows are split into chunks of about equal size. */
static int chunk_rows(int vocab, int all)
{
    const int fit = LOGITS / vocab, rows = fit < ROWS_MIN ? ROWS_MIN : fit > ROWS_MAX ? ROWS_MAX : fit;
    const int chunks = (all + rows - 1) / rows;
    return all ? (all + chunks - 1) / chunks : 1;
}

static bool wanted(const struct variable *value) { return value && value->gradient.address; }

/* ---- smooth L1 ---- */

int loss_smooth(struct tape *tape, const struct judged *judged, struct buffer target)
{
    const struct variable *out = judged->out;
    if (!out)
        return -1;
    const size_t rows = (size_t)out->rows;
    const struct learn_smooth_args s = {
        out->data, target, tape_copy(tape, judged->target_row, rows, sizeof *judged->target_row),
        tape_copy(tape, judged->weight, rows, sizeof *judged->weight), tape_buffer(tape, rows, sizeof(double)), out->gradient,
        judged->scale, out->rows, out->width};
    if (!target.address || !s.target_row.address || !s.weight.address || !s.loss.address)
        return -1;
    tape_ops(tape)->smooth(tape_queue(tape), &s);
    tape_ops(tape)->total(tape_queue(tape), &(struct learn_total_args){s.loss, judged->sum, out->rows});
    return 0;
}

/* ---- rows of logits, and what becomes of them ---- */

struct rows {
    struct tape *tape;
    int count;
    int row[ROWS_MAX];          /* row of `out` */
    int target[ROWS_MAX];       /* row of p */
    float weight[ROWS_MAX];
    const int32_t *label;       /* [count]; NULL: compare with p */
    struct buffer p;            /* [..][words] probabilities */
    struct buffer logits;       /* [count][words] logits, then their gradient */
    struct buffer x;            /* [count][width] rows of `out`, then their gradient */
    struct buffer loss;         /* [count] f64 */
    struct buffer at;           /* [count] i32: `row` on the device */
    struct variable *out, *output, *bias;
    float scale;
};

/* Copies rows: to[i] = from[row[i]]. Returns `row` on the device, for the scatter of gradients. */
static struct buffer gather(struct tape *tape, struct buffer to, struct buffer from, const int *row, int count, int width)
{
    const struct buffer at = tape_copy(tape, row, (size_t)count, sizeof *row);
    if (at.address)
        tape_ops(tape)->select(tape_queue(tape), &(struct learn_select_args){from, at, to, count, width});
    return at;
}

/* A request for logits. */
struct wanted_logits {
    struct buffer x;            /* [rows][width of the weights] */
    struct buffer logits;       /* [rows][rows of the weights] */
    int rows;
};

/* Returns the buffer from float number `offset` to its end. */
static struct buffer from_float(struct buffer whole, int offset)
{
    const uint64_t bytes = (uint64_t)offset * sizeof(float);
    return buffer_part(whole, bytes, whole.bytes - bytes);
}

static struct buffer block_of(struct tape *tape, struct variable *w, int first)
{
    return w->data.address ? w->data : stored_block(w->stored, tape_ops(tape), first);
}

/* Computes logits x W^T over the whole vocabulary, for `count` requests. A stored matrix is dequantised block by block; each
 * block serves all requests. */
static void make_logits(struct tape *tape, struct variable *w, const struct wanted_logits *wanted_of, int count)
{
    const int each = w->data.address ? w->rows : stored_rows(w->stored);
    for (int first = 0; first < w->rows; first += each) {
        const int some = w->rows - first < each ? w->rows - first : each;
        const struct buffer block = block_of(tape, w, first);
        for (int i = 0; i < count; i++)
            tape_ops(tape)->product(tape_queue(tape), &(struct learn_product_args){
                LEARN_ROWS, wanted_of[i].x, block, from_float(wanted_of[i].logits, first), wanted_of[i].rows, some, w->width,
                w->width, w->width, w->rows, false});
    }
}

/* Computes to = gradient W, the gradient of x. Iterates over blocks backwards, because make_logits has left the last block
 * dequantised and will need the first one next. */
static void back_logits(struct tape *tape, struct buffer to, struct buffer gradient, int rows, struct variable *w)
{
    const int each = w->data.address ? w->rows : stored_rows(w->stored), last = (w->rows - 1) / each * each;
    for (int first = last; first >= 0; first -= each) {
        const int some = w->rows - first < each ? w->rows - first : each;
        const struct buffer block = block_of(tape, w, first);
        tape_ops(tape)->product(tape_queue(tape), &(struct learn_product_args){
            LEARN_PLAIN, from_float(gradient, first), block, to, rows, w->width, some, w->rows, w->width, w->width,
            first < last});
    }
}

/* Gathers the rows of `out` that count, and returns the request for their logits. */
static struct wanted_logits gather_rows(struct rows *r)
{
    r->at = gather(r->tape, r->x, r->out->data, r->row, r->count, r->out->width);
    return (struct wanted_logits){r->x, r->logits, r->count};
}

/* Computes losses and gradients from the logits. */
static int judge_rows(struct rows *r, struct buffer sum)
{
    struct variable *out = r->out, *output = r->output;
    struct tape *tape = r->tape;
    const size_t count = (size_t)r->count;
    struct learn_judge_args judge = {.logits = r->logits, .weight = tape_copy(tape, r->weight, count, sizeof *r->weight),
                                     .loss = r->loss, .scale = r->scale, .rows = r->count, .words = output->rows};
    if (r->bias)
        judge.bias = r->bias->data;
    if (r->label) {
        judge.label = tape_copy(tape, r->label, count, sizeof *r->label);
    } else {
        judge.p = r->p;
        judge.from = tape_copy(tape, r->target, count, sizeof *r->target);
    }
    if (!r->at.address || !judge.weight.address || !(r->label ? judge.label : judge.from).address)
        return -1;
    tape_ops(tape)->judge(tape_queue(tape), &judge);
    tape_ops(tape)->total(tape_queue(tape), &(struct learn_total_args){r->loss, sum, r->count});
    if (!wanted(out))
        return 0;
    if (wanted(output))
        tape_ops(tape)->product(tape_queue(tape), &(struct learn_product_args){
            LEARN_OUTER, r->logits, r->x, output->gradient, output->rows, out->width, r->count, output->rows, out->width,
            out->width, true});
    if (wanted(r->bias))
        tape_ops(tape)->sum_rows(tape_queue(tape), &(struct learn_row_args){r->logits, r->bias->gradient, r->count,
                                                                            output->rows});
    back_logits(tape, r->x, r->logits, r->count, output);
    tape_ops(tape)->scatter(tape_queue(tape), &(struct learn_select_args){r->x, r->at, out->gradient, r->count, out->width});
    return 0;
}

static int run_rows(struct rows *r, struct buffer sum)
{
    const struct wanted_logits wanted_of = gather_rows(r);
    make_logits(r->tape, r->output, &wanted_of, 1);
    return judge_rows(r, sum);
}

/* Allocates memory for chunks of `room` rows. */
static bool take_room(struct rows *r, int room, int words, int width)
{
    r->logits = tape_buffer(r->tape, (size_t)room * (size_t)words, sizeof(float));
    r->x = tape_buffer(r->tape, (size_t)room * (size_t)width, sizeof(float));
    r->loss = tape_buffer(r->tape, (size_t)room, sizeof(double));
    return r->logits.address && r->x.address && r->loss.address;
}

/* ---- by labels ---- */

int loss_hard(struct tape *tape, struct variable *out, struct variable *output, struct variable *bias, const int32_t *label,
              float weight, struct buffer sum)
{
    struct rows *r = out ? tape_memory(tape, 1, sizeof *r) : NULL;
    if (!r)
        return -1;
    const int room = chunk_rows(output->rows, out->rows);
    *r = (struct rows){.tape = tape, .out = out, .output = output, .bias = bias, .scale = 1};
    if (!take_room(r, room, output->rows, out->width))
        return -1;
    for (int first = 0; first < out->rows; first += room) {
        r->count = out->rows - first < room ? out->rows - first : room;
        r->label = label + first;
        for (int i = 0; i < r->count; i++) {
            r->row[i] = first + i;
            r->weight[i] = weight;
        }
        if (run_rows(r, sum))
            return -1;
    }
    return 0;
}

/* ---- by the target's own distribution ---- */

struct targets {
    const struct soft_target *of;
    struct buffer logits, p;    /* [room][vocab]; [room][words], the same buffer without `word` */
    struct buffer word, known;  /* [words] i32; [room] i32: `counts` on the device */
    struct buffer x;            /* [room][width of states] */
    const int32_t *counts;      /* [count] per row of the chunk: 1 if the row counts; NULL: all count */
};

/* Lists the rows of one judged value that are compared with the target's rows row[0 .. count-1], beginning at its row *next.
 * The target rows of a judged value ascend. */
static void take_rows(struct rows *r, const struct judged *j, const int *row, const struct targets *t, int count, int *next)
{
    int at = 0;
    r->count = 0;
    for (; *next < j->out->rows; (*next)++) {
        const int judge = j->target_row[*next];
        if (judge < 0)
            continue;
        while (at < count && row[at] < judge)
            at++;
        if (at == count)
            return;
        if (t->counts && !t->counts[at])
            continue;
        r->row[r->count] = *next;
        r->weight[r->count] = j->weight[*next];
        r->target[r->count++] = at;
    }
}

/* Lists the rows of the target with which some row is compared, in ascending order. Returns their number. */
static int used_rows(const struct judged *judged, int count, int *out, int rows)
{
    int used = 0;
    memset(out, 0, (size_t)rows * sizeof *out);
    for (int i = 0; i < count; i++)
        for (int row = 0; row < judged[i].out->rows; row++)
            if (judged[i].target_row[row] >= 0)
                out[judged[i].target_row[row]] = 1;
    for (int row = 0; row < rows; row++)
        if (out[row])
            out[used++] = row;
    return used;
}

enum { JUDGED_MAX = 16 };

/* Lists the rows of *judged that are compared with these rows of the target. Returns their number. */
static int choose_rows(struct rows *r, const struct judged *judged, const int *row, const struct targets *t, int count,
                       int *next)
{
    take_rows(r, judged, row, t, count, next);
    r->out = judged->out;
    r->scale = judged->scale;
    return r->count;
}

/* Computes p from the logits of `count` rows. With a restricted vocabulary the host waits for the flags of rows that count. */
static int make_targets(struct tape *tape, struct targets *t, int count)
{
    const struct soft_target *of = t->of;
    tape_ops(tape)->target(tape_queue(tape), &(struct learn_target_args){
        t->logits, t->word, of->word ? t->p : (struct buffer){0, 0}, t->known, count, of->head->rows, of->words});
    return of->word && !(t->counts = tape_download(tape, t->known, (size_t)count, sizeof *t->counts)) ? -1 : 0;
}

/* Runs one chunk of the target's rows and everything compared with them. If q is computed with the same weights as p, the
 * logits of the first judged value are computed together with the target's: stored weights are then dequantised twice, not
 * three times. */
static int run_targets(struct rows *r, struct targets *t, const int *row, int count, const struct judged *judged,
                       int judged_count, int *next)
{
    const struct soft_target *target = t->of;
    const bool beside = target->output == target->head && !target->word;
    struct wanted_logits wanted_of[2] = {{t->x, t->logits, count}};
    if (!gather(r->tape, t->x, target->states, row, count, target->head->width).address)
        return -1;
    t->counts = NULL;
    if (beside && choose_rows(r, judged, row, t, count, next))
        wanted_of[1] = gather_rows(r);
    make_logits(r->tape, target->head, wanted_of, wanted_of[1].rows ? 2 : 1);
    if (make_targets(r->tape, t, count) || (wanted_of[1].rows && judge_rows(r, judged->sum)))
        return -1;
    for (int i = beside; i < judged_count; i++)
        if (choose_rows(r, &judged[i], row, t, count, &next[i]) && run_rows(r, judged[i].sum))
            return -1;
    return 0;
}

static bool take_targets(struct tape *tape, struct targets *t, int room)
{
    const struct soft_target *of = t->of;
    t->logits = tape_buffer(tape, (size_t)room * (size_t)of->head->rows, sizeof(float));
    t->x = tape_buffer(tape, (size_t)room * (size_t)of->head->width, sizeof(float));
    t->p = t->logits;
    if (of->word) {
        t->p = tape_buffer(tape, (size_t)room * (size_t)of->words, sizeof(float));
        t->word = tape_copy(tape, of->word, (size_t)of->words, sizeof *of->word);
        t->known = tape_buffer(tape, (size_t)room, sizeof *t->counts);
    }
    return t->logits.address && t->x.address && t->p.address && (!of->word || (t->word.address && t->known.address));
}

int loss_soft(struct tape *tape, const struct soft_target *target, const struct judged *judged, int count)
{
    struct rows *r = tape_memory(tape, 1, sizeof *r);
    struct targets t = {.of = target};
    int next[JUDGED_MAX] = {0};
    if (!r || !target->states.address)
        return -1;
    for (int i = 0; i < count; i++)
        if (!judged[i].out)
            return -1;
    const int width = judged[0].out->width, rows = judged[0].out->rows;
    int *used = tape_memory(tape, (size_t)rows, sizeof *used);
    const int all = used ? used_rows(judged, count, used, rows) : 0, room = chunk_rows(target->head->rows, all);
    *r = (struct rows){.tape = tape, .output = target->output};
    if (!used || !take_room(r, room, target->words, width) || !take_targets(tape, &t, room))
        return -1;
    r->p = t.p;
    for (int first = 0; first < all; first += room)
        if (run_targets(r, &t, used + first, all - first < room ? all - first : room, judged, count, next))
            return -1;
    return 0;
}
