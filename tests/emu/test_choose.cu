/* Choosing tokens on the device: compared with kernels/plain, over shapes, filters and schedules. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include "kernels/cuda/cuda.h"

template <typename T> static T *take(size_t n)
{
    void *memory = nullptr;
    assert_int_equal(dev_alloc(&memory, n * sizeof(T)), 0);
    return (T *)memory;
}

/* With scratch for two rows or three at a time. */
static struct cuda_context context_of(size_t scratch)
{
    struct cuda_context made = {};
    made.scratch = {(uint64_t)(uintptr_t)take<char>(scratch), scratch};
    made.tickets = take<unsigned>(CONTEXT_TICKETS);
    memset(made.tickets, 0, CONTEXT_TICKETS * sizeof *made.tickets);
    return made;
}

static void context_end(struct cuda_context *context)
{
    for (int i = 0; i < CONTEXT_TICKETS; i++)
        assert_int_equal(context->tickets[i], 0);
    dev_free((void *)(uintptr_t)context->scratch.address);
    dev_free(context->tickets);
}

static struct buffer buffer_of(void *memory, size_t bytes) { return buffer{(uint64_t)(uintptr_t)memory, bytes}; }

static uint32_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static void way(int n)
{
    emu_options.schedule = n % 3 == 0 ? EMU_FORWARD : n % 3 == 1 ? EMU_REVERSE : EMU_RANDOM;
    emu_options.seed = (uint64_t)n;
}

static const struct sample_filter FILTERS[] = {
    {0, 1, 0, 0}, {0.8, 1, 0, 0}, {1, 1, 0, 5}, {0.7, 0.9, 0, 0}, {1.3, 1, 0.2, 0}, {1, 0.5, 0.01, 20}, {0.05, 0.99, 0, 1},
    {2, 1e-9, 0, 0}, {100, 0.999, 0, 100000}, {1, 0.3, 0, 3}, {0.5, 1, 1, 0},
};
static const int FILTER_COUNT = (int)(sizeof FILTERS / sizeof *FILTERS);

/* Rows with many ties, with NaNs and infinities, and plain ones. */
static void fill(float *logit, int vocab, int kind, uint64_t *seed)
{
    for (int i = 0; i < vocab; i++) {
        float x = (float)((double)draw(seed) / 0x1p31 * 8 - 4);
        logit[i] = kind == 1 ? (float)(draw(seed) % 3) - 1 : x;
        if (kind == 2 && draw(seed) % 4 == 0)
            logit[i] = draw(seed) % 2 ? NAN : -INFINITY;
        if (kind == 3)
            logit[i] = draw(seed) % 2 ? -0.0f : 0.0f;
        if (kind == 4)
            logit[i] = i % 2 ? NAN : INFINITY;
        if (kind == 5)
            logit[i] = NAN;
    }
}

static void choices_are_those_of_the_specification(void **state)
{
    (void)state;
    static const int vocabs[] = {1, 7, 256, 2049, 4200};
    enum { ROWS = 6 };
    struct cuda_context context = context_of(80 << 10);
    struct queue queue = {&context};
    uint64_t seed = 1;
    int turn = 0;
    for (int vocab : vocabs)
        for (int f = 0; f < FILTER_COUNT; f++, turn++) {
            float *logits = take<float>((size_t)(ROWS * vocab));
            int32_t *position = take<int32_t>(ROWS), *choice = take<int32_t>(ROWS), *kept = take<int32_t>((size_t)vocab);
            for (int r = 0; r < ROWS; r++) {
                fill(logits + r * vocab, vocab, r, &seed);
                position[r] = (int32_t)(draw(&seed) % 5000);
            }
            struct choose_args args = {};
            args.logits = buffer_of(logits, (size_t)(ROWS * vocab) * 4);
            args.position = buffer_of(position, ROWS * 4);
            args.choice = buffer_of(choice, ROWS * 4);
            args.filter = FILTERS[f];
            args.key = 0x123456789abcdefu + (uint64_t)turn;
            args.ordinal = 3;
            args.sample = 1;
            args.rows = ROWS;
            args.vocab = vocab;
            way(turn);
            cuda_choose(&queue, &args);
            for (int r = 0; r < ROWS; r++) {
                struct sample_draw one = {args.key, (uint32_t)position[r], args.ordinal, args.sample};
                int32_t want = sample_token(logits + r * vocab, vocab, &args.filter, &one, kept);
                if (choice[r] != want)
                    fail_msg("vocabulary of %d, filter %d, row %d: %d, not %d", vocab, f, r, choice[r], want);
            }
            void *all[] = {logits, position, choice, kept};
            for (void *memory : all)
                dev_free(memory);
        }
    context_end(&context);
}

/* A filter keeps exactly the specification's tokens: over many draws both give each kept token, and no other. */
static void draws_cover_what_is_kept(void **state)
{
    (void)state;
    enum { VOCAB = 12, ROWS = 120 };
    static const int top_ks[] = {1, 4, 11, VOCAB};
    struct cuda_context context = context_of(4 << 20);
    struct queue queue = {&context};
    float *logits = take<float>(VOCAB * ROWS);
    int32_t *position = take<int32_t>(ROWS), *choice = take<int32_t>(ROWS), kept[VOCAB];
    uint64_t seed = 9;
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)(draw(&seed) % 4);
    for (int r = 0; r < ROWS; r++) {
        memcpy(logits + r * VOCAB, logits, VOCAB * sizeof *logits);
        position[r] = r;
    }
    for (int top_k : top_ks) {
        struct choose_args args = {};
        args.logits = buffer_of(logits, VOCAB * ROWS * 4);
        args.position = buffer_of(position, ROWS * 4);
        args.choice = buffer_of(choice, ROWS * 4);
        args.filter = {5, 1, 0, top_k};
        args.key = 7;
        args.rows = ROWS;
        args.vocab = VOCAB;
        way(top_k);
        cuda_choose(&queue, &args);
        int count = sample_keep(logits, VOCAB, sample_best(logits, VOCAB), &args.filter, kept);
        assert_int_equal(count, top_k);
        for (int at = 0; at < count; at++) {
            int seen = 0;
            for (int r = 0; r < ROWS; r++)
                seen += choice[r] == kept[at];
            assert_true(seen > 0);
        }
        for (int r = 0; r < ROWS; r++) {
            int among = 0;
            for (int at = 0; at < count; at++)
                among += choice[r] == kept[at];
            assert_int_equal(among, 1);
        }
    }
    dev_free(logits);
    dev_free(position);
    dev_free(choice);
    context_end(&context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_those_of_the_specification),
        cmocka_unit_test(draws_cover_what_is_kept),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
