/* kernels/learn.h: attention and losses, each compared with the reference. */
#include "tests/kernel/learn.h"

RUN(attention)
RUN(attention_back)
RUN(smooth)
RUN(target)
RUN(judge)
RUN(total)

/* ---- attention ---- */

struct attended {
    int heads, kv_heads, head_dim, steps;
    int text[4];                        /* rows; 0: end of the list */
};

static void check_attention(const struct attended *s)
{
    uint64_t seed = (uint64_t)(s->heads * 64 + s->head_dim * 8 + s->steps);
    const int width = (s->heads + 2 * s->kv_heads) * s->head_dim, out = s->heads * s->head_dim;
    int32_t offset[5] = {0};
    struct learn_attention_args a = {.scale = 1.3f / sqrtf((float)s->head_dim), .heads = s->heads, .kv_heads = s->kv_heads,
                                     .head_dim = s->head_dim, .steps = s->steps};
    for (; a.texts < 4 && s->text[a.texts]; a.texts++) {
        a.rows += s->text[a.texts];
        a.longest = s->text[a.texts] > a.longest ? s->text[a.texts] : a.longest;
        offset[a.texts + 1] = a.rows;
    }
    const size_t count = (size_t)(a.rows * width), each = count * sizeof(float);
    struct arena arena;
    arena_open(&arena);
    const struct buffer qkv = draw_floats(&arena, (size_t)(s->steps + 1) * count, 2, &seed);
    const struct buffer to = draw_ones(&arena, (size_t)(s->steps + 1) * count, &seed);
    for (int step = 0; step <= s->steps; step++) {
        a.qkv[step] = buffer_part(qkv, (size_t)step * each, each);
        a.gradient_to[step] = buffer_part(to, (size_t)step * each, each);
    }
    a.offset = take_integers(&arena, offset, (size_t)a.texts + 1);
    a.out = arena_take(&arena, (size_t)(a.rows * out) * sizeof(float));
    a.log_sum = arena_take(&arena, (size_t)(s->heads * a.rows) * sizeof(float));
    size_t scratch = 0;
    for (int way = 1; way <= POOLS; way++) {
        struct queue queue = queue_of(way);
        const size_t bytes = learn_here()->attention_scratch(&queue, &a);
        scratch = bytes > scratch ? bytes : scratch;
    }
    a.scratch = arena_take(&arena, scratch);
    struct written value[] = {{.name = "attention", .buffer = a.out, .tolerance = TOLERANCE_LEARN_ATTENTION},
                              {.name = "log_sum", .buffer = a.log_sum, .tolerance = TOLERANCE_LEARN_ATTENTION}, {0}};
    agree(&arena, run_attention, &a, value);
    learn_by_ref(&arena, run_attention, &a);
    a.gradient = draw_ones(&arena, (size_t)(a.rows * out), &seed);
    struct written slope[] = {{.name = "attention_back", .buffer = to, .tolerance = TOLERANCE_LEARN_ATTENTION}, {0}};
    agree(&arena, run_attention_back, &a, slope);
    arena_close(&arena);
}

static void attention_agrees_with_the_reference(void **state)
{
    (void)state;
    static const struct attended shapes[] = {
        {1, 1, 2, 0, {1}}, {2, 1, 6, 0, {5, 1, 33}}, {3, 3, 36, 2, {2, 34}}, {4, 2, 8, 3, {70}}, {2, 2, 80, 1, {3}},
        {1, 1, 130, 1, {33, 2}}, {2, 1, 4, LEARN_STEPS_MAX - 1, {4, 3}}, {1, 1, 2, 0, {0}},
    };
    for (int i = 0; i < LENGTH(shapes); i++)
        check_attention(&shapes[i]);
}

/* ---- losses ---- */

static void check_smooth(int rows, int width, bool wanted, uint64_t *seed)
{
    enum { TARGETS = 9 };
    const size_t count = (size_t)(rows * width);
    int32_t row[64];
    struct arena arena;
    arena_open(&arena);
    for (int r = 0; r < rows; r++)
        row[r] = draw_below(seed, TARGETS + 1) - 1;
    struct learn_smooth_args s = {.x = draw_floats(&arena, count, 2, seed),
                                  .target = draw_floats(&arena, (size_t)(TARGETS * width), 2, seed),
                                  .target_row = take_integers(&arena, row, (size_t)rows),
                                  .weight = draw_ones(&arena, (size_t)rows, seed),
                                  .loss = arena_take(&arena, (size_t)rows * sizeof(double)),
                                  .scale = 0.7f, .rows = rows, .width = width};
    struct written written[] = {
        {.name = "smooth", .buffer = s.loss, .number = LEARN_DOUBLES, .tolerance = TOLERANCE_LEARN},
        {.name = "gradient_to", .buffer = draw_ones(&arena, count, seed), .tolerance = TOLERANCE_LEARN}, {0}};
    if (wanted)
        s.gradient_to = written[1].buffer;
    agree(&arena, run_smooth, &s, written);
    arena_close(&arena);
}

static void smooth_losses_agree_with_the_reference(void **state)
{
    (void)state;
    uint64_t seed = 3;
    check_smooth(0, 3, true, &seed);
    check_smooth(1, 1, true, &seed);
    check_smooth(12, 33, true, &seed);
    check_smooth(3, 600, true, &seed);
    check_smooth(5, 7, false, &seed);
}

/* Draws half of a vocabulary, in random order. */
static int draw_words(int vocab, int32_t *word, uint64_t *seed)
{
    int words = 0;
    for (int v = 0; v < vocab; v++)
        if (draw_below(seed, 2) || (v + 1 == vocab && !words)) {
            const int slot = draw_below(seed, words + 1);
            word[words++] = word[slot];
            word[slot] = v;
        }
    return words;
}

static void check_target(int rows, int vocab, uint64_t *seed)
{
    int32_t word[1200];
    struct arena arena;
    arena_open(&arena);
    struct learn_target_args t = {.logits = draw_floats(&arena, (size_t)(rows * vocab), 8, seed), .rows = rows, .vocab = vocab};
    struct written whole[] = {{.name = "target", .buffer = t.logits, .tolerance = TOLERANCE_LEARN_SHARE}, {0}};
    agree(&arena, run_target, &t, whole);
    t.words = draw_words(vocab, word, seed);
    t.word = take_integers(&arena, word, (size_t)t.words);
    for (int r = 1; r < rows && vocab > 2; r++) {            /* twice the largest: the first of the two counts */
        float *logits = (float *)at(t.logits) + r * vocab;
        logits[vocab - 1] = logits[draw_below(seed, vocab - 1)] = 9;
    }
    t.p = arena_take(&arena, (size_t)(rows * t.words) * sizeof(float));
    t.counts = arena_take(&arena, (size_t)rows * sizeof(int32_t));
    struct written some[] = {{.name = "target of words", .buffer = t.p, .tolerance = TOLERANCE_LEARN_SHARE},
                             {.name = "counts", .buffer = t.counts, .number = LEARN_BYTES}, {0}};
    learn_by_ref(&arena, run_target, &t);
    const struct buffer p = arena_copy(&arena, t.p);
    const int32_t *counts = at(t.counts);
    /* In rows that do not count, p is undefined: only the others are compared. */
    struct buffer logits = arena_copy(&arena, t.logits), expected = arena_copy(&arena, t.counts);
    for (int way = 1; way <= POOLS; way++) {
        struct queue queue = queue_of(way);
        poison(t.p);
        poison_integers(t.counts);
        copy_into(t.logits, logits);
        run_target(learn_here(), &queue, &t);
        assert_true(same_bits(t.counts, expected));
        for (int r = 0; r < rows; r++)
            if (counts[r]) {
                const size_t bytes = (size_t)t.words * sizeof(float);
                assert_close(some->name, buffer_part(t.p, (size_t)r * bytes, bytes), buffer_part(p, (size_t)r * bytes, bytes),
                             TOLERANCE_LEARN_SHARE);
            }
    }
    arena_close(&arena);
}

static void targets_agree_with_the_reference(void **state)
{
    (void)state;
    uint64_t seed = 5;
    check_target(0, 5, &seed);
    check_target(1, 1, &seed);
    check_target(9, 7, &seed);
    check_target(2, 1100, &seed);
}

static struct learn_judge_args draw_judge(struct arena *arena, int rows, int words, bool label, bool bias, uint64_t *seed)
{
    enum { TARGETS = 4 };
    int32_t index[32];
    struct learn_judge_args j = {.logits = draw_floats(arena, (size_t)(rows * words), 8, seed), .scale = 0.8f, .rows = rows,
                                 .words = words, .weight = draw_ones(arena, (size_t)rows, seed),
                                 .loss = arena_take(arena, (size_t)rows * sizeof(double))};
    for (int r = 0; r < rows; r++)
        index[r] = draw_below(seed, label ? words : TARGETS);
    for (int w = 0; label && rows && w < words; w++)        /* far below 0: exponents are relative to the largest */
        ((float *)at(j.logits))[w] -= 200;
    if (label) {
        j.label = take_integers(arena, index, (size_t)rows);
    } else {
        j.from = take_integers(arena, index, (size_t)rows);
        struct learn_target_args t = {.logits = draw_floats(arena, (size_t)(TARGETS * words), 4, seed),
                                      .rows = TARGETS, .vocab = words};
        learn_by_ref(arena, run_target, &t);
        j.p = t.logits;
    }
    if (bias)
        j.bias = draw_ones(arena, (size_t)words, seed);
    return j;
}

static void check_judge(int rows, int words, bool label, bool bias, uint64_t *seed)
{
    struct arena arena;
    arena_open(&arena);
    const struct learn_judge_args j = draw_judge(&arena, rows, words, label, bias, seed);
    struct written written[] = {{.name = "judge", .buffer = j.loss, .number = LEARN_DOUBLES, .tolerance = TOLERANCE_LEARN_LOSS},
                                {.name = "logits", .buffer = j.logits, .tolerance = TOLERANCE_LEARN_SHARE}, {0}};
    agree(&arena, run_judge, &j, written);
    arena_close(&arena);
}

static void judgements_agree_with_the_reference(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int label = 0; label < 2; label++) {
        check_judge(0, 5, label, false, &seed);
        check_judge(1, 1, label, label, &seed);
        check_judge(5, 33, label, !label, &seed);
        check_judge(1, 4200, label, label, &seed);
    }
}

/* A loss that is not finite, which ends training, is detected in any position of a row. */
static void odd_numbers_show_in_the_loss(void **state)
{
    (void)state;
    static const float odd[] = {NAN, INFINITY};
    uint64_t seed = 11;
    for (int i = 0; i < 4; i++) {
        struct arena arena;
        arena_open(&arena);
        const struct learn_judge_args j = draw_judge(&arena, 2, 40, i % 2, false, &seed);
        ((float *)at(j.logits))[40 + 35] = odd[i / 2];
        ((float *)at(j.weight))[1] = 1;
        learn_by_device(run_judge, &j);
        assert_true(isfinite(((double *)at(j.loss))[0]));
        assert_false(isfinite(((double *)at(j.loss))[1]));
        int32_t row[] = {0, 0};
        struct learn_smooth_args s = {.x = draw_ones(&arena, 66, &seed), .target = draw_ones(&arena, 33, &seed),
                                      .target_row = take_integers(&arena, row, 2), .weight = j.weight, .loss = j.loss,
                                      .scale = 1, .rows = 2, .width = 33};
        ((float *)at(s.x))[65] = odd[i / 2];
        learn_by_device(run_smooth, &s);
        assert_true(isfinite(((double *)at(j.loss))[0]));
        assert_false(isfinite(((double *)at(j.loss))[1]));
        arena_close(&arena);
    }
}

static void losses_add_up(void **state)
{
    (void)state;
    uint64_t seed = 13;
    for (int rows = 0; rows < 700; rows += 349) {
        struct arena arena;
        arena_open(&arena);
        const struct buffer loss = arena_take(&arena, (size_t)rows * sizeof(double));
        struct learn_total_args t = {loss, arena_take(&arena, sizeof(double)), rows};
        for (int r = 0; r < rows; r++)
            ((double *)at(t.loss))[r] = (double)draw_float(&seed);
        *(double *)at(t.sum) = 0.75;
        struct written written[] = {
            {.name = "total", .buffer = t.sum, .number = LEARN_DOUBLES, .tolerance = {1e-12f, 1e-12f}}, {0}};
        agree(&arena, run_total, &t, written);
        arena_close(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_agrees_with_the_reference),
        cmocka_unit_test(smooth_losses_agree_with_the_reference),
        cmocka_unit_test(targets_agree_with_the_reference),
        cmocka_unit_test(judgements_agree_with_the_reference),
        cmocka_unit_test(odd_numbers_show_in_the_loss),
        cmocka_unit_test(losses_add_up),
    };
    return cmocka_run_group_tests(tests, pools_open, pools_close);
}
