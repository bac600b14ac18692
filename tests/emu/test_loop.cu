/* Decoding by a loop on the device, with a function of position and token as model: the text equals that of decoding token
 * by token, and each record equals the output of kernels/plain on the host. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include "kernels/cuda/cuda.h"

enum { ROWS = 9, LAYERS = 3, EXPERTS = ROUTE_EXPERTS_MAX, FEW = 20, TOP_K = 4, PROMPT = 12, LIMIT = 90, RING = 5,
    SLOTS = 1024 };

template <typename T> static struct buffer take(size_t n)
{
    void *memory = nullptr;
    assert_int_equal(dev_alloc(&memory, n * sizeof(T)), 0);
    return buffer{(uint64_t)(uintptr_t)memory, n * sizeof(T)};
}

template <typename T> static T *at(struct buffer buffer) { return (T *)(uintptr_t)buffer.address; }

static uint32_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* The target's token after a token: mostly the token `period` positions before; -1 at `damaged`. */
struct target {
    uint32_t period, vocab;
    int damaged;
};

static int32_t choose(const struct target *target, int32_t token, int position)
{
    uint64_t seed = (uint64_t)(uint32_t)position % target->period * 977 + (uint32_t)token % 3 * 31 + target->vocab;
    draw(&seed);
    return position + 1 == target->damaged ? -1 : (int32_t)(draw(&seed) % target->vocab);
}

static struct loop_args make_args(int layers)
{
    struct loop_args a = {};
    a.rules = take<struct loop_rules>(1);
    a.state = take<struct loop_state>(1);
    a.rows = take<int32_t>(1);
    a.text = take<int32_t>(PROMPT + LIMIT);
    a.ngram = take<struct ngram_slot>(SLOTS);
    a.earlier = take<int32_t>((PROMPT + LIMIT) * NGRAM_LONGEST);
    struct buffer *rows[] = {&a.token, &a.parent, &a.position, &a.slot, &a.prefix, &a.next_position, &a.choice, &a.path};
    for (struct buffer *one : rows)
        *one = take<int32_t>(ROWS);
    for (int i = 0; i < ROWS; i++)
        at<int32_t>(a.parent)[i] = i - 1;
    a.wanted = take<int32_t>(LAYERS * ROWS * TOP_K);
    a.expert = take<int32_t>(LAYERS * ROWS * TOP_K);
    a.counts = take<int32_t>(2 * LAYERS);
    a.ring = take<char>(RING * (size_t)loop_record_bytes(ROWS, LAYERS));
    a.head = take<int32_t>(1);
    a.more = take<int32_t>(1);
    a.ngram_slots = SLOTS;
    a.rows_max = ROWS;
    a.moe_layers = layers;
    a.experts = EXPERTS;
    a.top_k = TOP_K;
    a.ring_records = RING;
    return a;
}

static void free_args(struct loop_args *a)
{
    struct buffer *all[] = {&a->rules, &a->state, &a->rows, &a->text, &a->ngram, &a->earlier, &a->token, &a->parent,
                            &a->position,
                            &a->slot, &a->prefix, &a->next_position, &a->choice, &a->path, &a->wanted, &a->expert, &a->counts,
                            &a->ring, &a->head, &a->more};
    for (struct buffer *one : all)
        dev_free(at<void>(*one));
}

/* The host's side of a text: the same functions over memory of its own. */
struct twin {
    struct loop_state state;
    int32_t text[PROMPT + LIMIT], earlier[(PROMPT + LIMIT) * NGRAM_LONGEST];
    struct ngram_slot slot[SLOTS];
    struct ngram_index index;
    int32_t token[ROWS], parent[ROWS], choice[ROWS], path[ROWS], emitted[ROWS];
};

static void begin(struct loop_args *a, const struct loop_rules *rules, struct twin *twin)
{
    memset(twin, 0, sizeof *twin);
    twin->index = {twin->slot, SLOTS, 0, twin->earlier};
    for (int i = 0; i < PROMPT; i++) {
        twin->text[i] = i % 5;
        ngram_enter(&twin->index, twin->text, i, rules->shortest, rules->longest);
    }
    memcpy(twin->parent, at<void>(a->parent), sizeof twin->parent);
    loop_begin(rules, &twin->state, PROMPT);
    twin->text[twin->state.length++] = 1;           /* the first token comes from the prompt's logits */
    ngram_enter(&twin->index, twin->text, PROMPT, rules->shortest, rules->longest);
    memcpy(at<void>(a->rules), rules, sizeof *rules);
    memcpy(at<void>(a->state), &twin->state, sizeof twin->state);
    memcpy(at<void>(a->text), twin->text, sizeof twin->text);
    memcpy(at<void>(a->ngram), twin->slot, sizeof twin->slot);
    memcpy(at<void>(a->earlier), twin->earlier, (size_t)(PROMPT + LIMIT) * (size_t)(rules->longest - rules->shortest + 1) * 4);
    *at<int32_t>(a->head) = 0;
}

static int distinct(const int32_t *expert, int positions)
{
    int count = 0;
    for (int i = 0; i < positions; i++) {
        int before = 0;
        while (before < i && expert[before] != expert[i])
            before++;
        count += expert[i] >= 0 && before == i;
    }
    return count;
}

static void route(const struct loop_args *a, uint64_t *seed)
{
    for (int i = 0; i < LAYERS * ROWS * TOP_K; i++) {
        uint32_t experts = i < ROWS * TOP_K ? EXPERTS : FEW;
        at<int32_t>(a->wanted)[i] = (int32_t)(draw(seed) % experts);
        at<int32_t>(a->expert)[i] = (int32_t)(draw(seed) % (experts + 1)) - 1;
    }
}

static void iterate(struct loop_args *a, const struct loop_rules *rules, const struct target *target, struct twin *twin,
                    uint64_t *seed)
{
    struct cuda_context context = {};
    struct queue queue = {&context};
    struct loop_record want = {};
    int number = twin->state.iterations, root = twin->state.length - 1;
    loop_draft(rules, &twin->state, &twin->index, twin->text, twin->token);
    cuda_loop_draft(&queue, a);
    int rows = *at<int32_t>(a->rows);
    assert_int_equal(rows, twin->state.rows);
    assert_memory_equal(at<void>(a->token), twin->token, (size_t)rows * 4);
    for (int row = 0; row < rows; row++) {
        assert_int_equal(at<int32_t>(a->position)[row], root + row);
        assert_int_equal(at<int32_t>(a->slot)[row], root + row);
        assert_int_equal(at<int32_t>(a->prefix)[row], root + row + 1);
        assert_int_equal(at<int32_t>(a->next_position)[row], root + row + 1);
        at<int32_t>(a->choice)[row] = twin->choice[row] = choose(target, twin->token[row], root + row);
    }
    route(a, seed);
    cuda_loop_facts(&queue, a);
    cuda_loop_accept(&queue, a);
    char *position = at<char>(a->ring) + loop_record_bytes(ROWS, a->moe_layers) * (number % RING);
    struct loop_record *got = (struct loop_record *)position;
    loop_accept(rules, &twin->state, &twin->index, twin->text, twin->token, twin->parent, twin->choice, twin->path,
                twin->emitted, &want);
    memcpy(twin->state.part, got->part, sizeof twin->state.part);          /* times are measured by the device */
    twin->state.start = got->start;
    loop_decide(rules, &twin->state, &want);
    assert_memory_equal(got, &want, sizeof want);
    assert_int_equal(*at<int32_t>(a->head), number + 1);
    assert_int_equal(*at<int32_t>(a->more), want.end == LOOP_CONTINUES && (number + 1) % RING != 0);
    assert_memory_equal(loop_record_tokens(got), twin->token, (size_t)rows * 4);
    assert_memory_equal(loop_record_emitted(got, ROWS), twin->emitted, (size_t)want.emitted * 4);
    for (int which = 0; which < 2; which++)
        for (int layer = 0; layer < a->moe_layers; layer++)
            assert_int_equal(loop_record_experts(got, ROWS)[which * a->moe_layers + layer],
                             distinct(at<int32_t>(which ? a->expert : a->wanted) + layer * ROWS * TOP_K, rows * TOP_K));
    assert_memory_equal(at<void>(a->text), twin->text, (size_t)twin->state.length * 4);
    assert_int_equal(at<struct loop_state>(a->state)->K, twin->state.K);
}

static void decode(const struct loop_rules *rules, const struct target *target, int schedule, int *drafted)
{
    struct loop_args a = make_args(schedule % 4 == 3 ? 0 : LAYERS);        /* some models have no experts */
    static struct twin twin;
    uint64_t seed = 5;
    emu_options.schedule = schedule % 3 == 0 ? EMU_FORWARD : schedule % 3 == 1 ? EMU_REVERSE : EMU_RANDOM;
    emu_options.seed = (uint64_t)schedule;
    begin(&a, rules, &twin);
    while (twin.state.end == LOOP_CONTINUES) {
        iterate(&a, rules, target, &twin, &seed);
        *drafted += twin.state.rows - 1;
        assert_true(twin.state.length <= PROMPT + LIMIT);
    }
    /* Token by token. */
    int length = PROMPT + 1, end = LOOP_CONTINUES;
    while (end == LOOP_CONTINUES) {
        int32_t next = choose(target, twin.text[length - 1], length - 1);
        if (next < 0) {
            end = LOOP_DAMAGED;
            break;
        }
        assert_int_equal(next, twin.text[length++]);
        for (int i = 0; i < rules->eos_count; i++)
            end = rules->eos[i] == next ? LOOP_STOP : end;
        end = end == LOOP_CONTINUES && length == PROMPT + rules->limit ? LOOP_LENGTH : end;
    }
    assert_int_equal(end, twin.state.end);
    assert_int_equal(length, twin.state.length);
    free_args(&a);
}

static struct loop_rules rules_of(int longest, int K, int limit)
{
    struct loop_rules rules = {};
    rules.shortest = longest ? 1 : 0;
    rules.longest = longest;
    rules.K = K;
    rules.prompt = PROMPT;
    rules.limit = limit;
    struct cascade_settings *cascade = &rules.cascade;
    cascade->first = 2;
    cascade->max = ROWS - 1;
    cascade->trial = 2;
    cascade->trials = 3;
    cascade->falls = 2;
    cascade->set = 4;
    cascade->backoff = 2;
    cascade->longest = 16;
    cascade->baseline = 2;
    cascade->refresh = 9;
    cascade->memory = 40;
    cascade->close = 0.05;
    return rules;
}

static void the_text_is_that_of_decoding_without_drafts(void **state)
{
    (void)state;
    static const int limits[] = {2, 3, 40, LIMIT};
    int turn = 0, drafted = 0, none = 0;
    for (uint32_t period = 1; period <= 7; period += 3)
        for (int K = 0; K < ROWS; K += 4)
            for (int limit : limits) {
                const struct target target = {period, 13, 0};
                struct loop_rules rules = rules_of(1 + turn % 4, K, limit);
                decode(&rules, &target, turn++, K ? &drafted : &none);
            }
    assert_true(drafted > 100);
    assert_int_equal(none, 0);
    const struct target target = {4, 13, 0};
    struct loop_rules rules = rules_of(0, 8, LIMIT);
    decode(&rules, &target, turn, &none);
    assert_int_equal(none, 0);                      /* without a drafter */
}

static void answers_end_at_end_tokens_and_at_damage(void **state)
{
    (void)state;
    int drafted = 0;
    for (int turn = 0; turn < 12; turn++) {
        const struct target target = {3, 5, turn % 2 ? PROMPT + 20 + turn : 0};
        struct loop_rules rules = rules_of(3, 1 + turn % 8, LIMIT);
        rules.eos_count = turn % 3;
        rules.eos[0] = 99;
        rules.eos[1] = turn % 5;
        decode(&rules, &target, turn, &drafted);
    }
    assert_true(drafted > 20);
}

static void cascade_decides_as_on_the_host(void **state)
{
    (void)state;
    int drafted = 0;
    for (int turn = 0; turn < 4; turn++) {
        const struct target target = {(uint32_t)(1 + 2 * turn), 13, 0};
        struct loop_rules rules = rules_of(3, 0, LIMIT);
        rules.adapts = 1;
        decode(&rules, &target, turn, &drafted);
    }
    assert_true(drafted > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_that_of_decoding_without_drafts),
        cmocka_unit_test(answers_end_at_end_tokens_and_at_damage),
        cmocka_unit_test(cascade_decides_as_on_the_host),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
