/* Matchness: the count of a window equals that of decoding token by token on the target's keys and values of the prompt; and
 * the search that uses matchness while a target drafts. */
#include "common/draft/matchness.h"
#include "common/draft/self_search.h"
#include "common/draft/skip_file.h"
#include "tests/unit/rig.h"

enum { PROMPT = 9, ANSWER = 13, LAYERS = 5 };

static int likeliest(const struct forward *forward, int row)
{
    const float *logits = forward->logits + (size_t)row * (size_t)forward->vocab;
    int best = 0;
    for (int token = 1; token < forward->vocab; token++)
        if (logits[token] > logits[best])
            best = token;
    return best;
}

/* Returns the token after `token` on the sequence, without the parts left out. */
static int next(struct rig *rig, struct sequence *sequence, int32_t token, const struct forward_part *part)
{
    struct forward forward;
    const struct batch batch = {.rows = 1, .token = &token, .logit_rows = 1, .part = part};
    must(engine_forward(rig->engine, sequence, &batch, &forward, &rig->err), &rig->err);
    return likeliest(&forward, 0);
}

/* Decodes a greedy answer to rig->token[0 .. PROMPT); rig->sequence then holds all of the text but its last token. */
static void answer(struct rig *rig, int prompt, int32_t *text)
{
    must(sequence_truncate(rig->sequence, 0, &rig->err), &rig->err);
    int32_t zero = 0;
    struct forward forward;
    memcpy(text, rig->token, (size_t)prompt * sizeof *text);
    must(engine_prompt(rig->engine, rig->sequence, text, prompt - 1, NULL, NULL, NULL, &forward, &rig->err), &rig->err);
    for (int at = 0; at < ANSWER; at++) {
        text[prompt + at] = next(rig, rig->sequence, text[prompt + at - 1], NULL);
        must(sequence_commit(rig->sequence, &zero, 1, &rig->err), &rig->err);
    }
}

/* Counts matches one token after the other, on the target's prompt. */
static int count_alone(struct rig *rig, int prompt, const int32_t *text, const struct forward_part *part, int tokens)
{
    struct sequence *sequence = NULL;
    int matches = 0;
    must(sequence_open(&sequence, rig->engine, PROMPT + ANSWER, &rig->err), &rig->err);
    must(sequence_copy(sequence, rig->sequence, prompt - 1, &rig->err), &rig->err);
    for (int at = 0; at < tokens; at++)
        matches += next(rig, sequence, text[prompt + at - 1], part) == text[prompt + at];
    sequence_close(&sequence);
    return matches;
}

static void a_window_counts_what_tokens_alone_give(void **state)
{
    (void)state;
    struct chance chance = {4};
    char *folder = unit_folder();
    const char *path = unit_path(folder, "m.moe");
    int some = 0, all = 0;
    for (int round = 0; round < 12; round++) {
        struct rig rig;
        struct err err = {0};
        struct match_window *window = NULL;
        struct hparams shape = tiny_shape(&chance);
        int32_t text[PROMPT + ANSWER];
        for (int layer = shape.layers; layer < LAYERS; layer++)
            shape.layer[layer] = shape.layer[layer - 1];
        shape.layers = LAYERS;
        shape.predictors = 0;
        must(tiny_write(path, &shape, FORMAT_F32, 100 + (uint64_t)round, &err), &err);
        rig_open(&rig, path, device_name("host"));
        rig_engine(&rig, (struct engine_setup){.max_rows = 16, .max_logit_rows = round % 2 ? 16 : 5}, PROMPT + ANSWER);
        answer(&rig, PROMPT, text);
        must(match_window_open(&window, rig.engine, rig.sequence, text, PROMPT, ANSWER, &err), &err);
        for (int try = 0; try < 6; try++) {
            struct skip_set set = {.layers = LAYERS};
            const struct forward_part left_out = {.skip_attention = set.attention, .skip_ffn = set.ffn};
            int64_t before = match_window_bytes(window);
            int matches = -1;
            for (int part = 0; try && part < skip_parts(LAYERS); part++)
                skip_part_set(&set, part, chance_range(&chance, 0, 3) == 0);
            must(match_window_count(window, &left_out, &matches, &err), &err);
            assert_int_equal(matches, try ? count_alone(&rig, PROMPT, text, &left_out, ANSWER) : ANSWER);
            assert_true(match_window_bytes(window) > before);
            some += try && matches < ANSWER;
            all += try && matches > 0;
        }
        assert_int_equal(sequence_length(rig.sequence), PROMPT + ANSWER - 1);
        assert_int_equal(sequence_pending(rig.sequence), 0);
        match_window_close(&window);
        rig_close(&rig);
    }
    assert_true(some > 10 && all > 10);             /* otherwise no candidate was tried */
    unit_remove(folder);
}

static struct rig *deep_rig(struct rig *rig, const char *path)
{
    struct chance chance = {9};
    struct err err = {0};
    struct hparams shape = tiny_shape(&chance);
    while (!hparams_moe_layers(&shape) || shape.router.top_k < 2)
        shape = tiny_shape(&chance);
    for (int layer = shape.layers; layer < LAYERS; layer++)
        shape.layer[layer] = shape.layer[layer - 1];
    shape.layers = LAYERS;
    shape.predictors = 0;
    must(tiny_write(path, &shape, FORMAT_F32, 5, &err), &err);
    rig_open(rig, path, device_name("host"));
    rig_engine(rig, (struct engine_setup){.max_rows = 16, .max_logit_rows = 16}, PROMPT + ANSWER);
    return rig;
}

/* Four texts, a trial every second draft: the sets in use equal those of a search that gets counts of single tokens, on the
 * text's first WINDOW tokens. No set is scored before there is one more token, and the best set is kept from text to text. */
static void a_target_searches_while_it_drafts(void **state)
{
    enum { WINDOW = 8, INTERVAL = 2 };
    (void)state;
    char *folder = unit_folder();
    struct rig rig_room, *rig = deep_rig(&rig_room, unit_path(folder, "m.moe"));
    struct err err = {0};
    const struct skip_search_setup setup = SKIP_SEARCH_SWIFT;
    const struct forward_part part = {.top_k = 1};
    struct self_search *search = NULL;
    struct skip_search *expected = NULL;
    struct skip_set first, in_use;
    int scored = 0, changes = 0;
    must(skip_set_first(&first, LAYERS, 0.2, &err), &err);
    must(self_search_open(&search, &setup, &first, &part, rig->engine, WINDOW, INTERVAL, &err), &err);
    must(skip_search_open(&expected, &setup, &first, &err), &err);
    in_use = first;
    for (int round = 0; round < 4; round++) {
        int32_t text[PROMPT + ANSWER];
        int drafts = 0, prompt = PROMPT - 2 * round;
        answer(rig, prompt, text);
        self_search_begin(search);
        must(self_search_commit(search, text, prompt, &err), &err);
        for (int at = 0; at <= ANSWER; at++) {
            struct skip_set candidate;
            bool better;
            int64_t bytes = 0;
            must(self_search_step(search, rig->sequence, &in_use, &better, &bytes, &err), &err);
            changes += better;
            if (at > WINDOW && drafts++ % INTERVAL == 0) {
                assert_int_equal(skip_search_next(expected, &candidate, &err), 1);
                const struct forward_part left_out = {
                    .skip_attention = candidate.attention, .skip_ffn = candidate.ffn, .top_k = 1};
                int matches = count_alone(rig, prompt, text, &left_out, WINDOW);
                must(skip_search_score(expected, (double)matches / WINDOW, &err), &err);
                scored++;
            }
            assert_int_equal(bytes > 0, at > WINDOW && (drafts - 1) % INTERVAL == 0);
            assert_memory_equal(&in_use, skip_search_best(expected), sizeof in_use);
            if (at < ANSWER)
                must(self_search_commit(search, text + prompt + at, 1, &err), &err);
        }
    }
    assert_int_equal(scored, 12);
    assert_true(changes > 0);
    self_search_close(&search);
    skip_search_close(&expected);
    rig_close(rig);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_counts_what_tokens_alone_give),
        cmocka_unit_test(a_target_searches_while_it_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
