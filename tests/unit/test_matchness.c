/* Matchness: what a window counts is what one token after the other gives on the target's keys and values of the prompt. */
#include "common/draft/matchness.h"
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

/* The next token after `token` on the sequence, with these parts left out. */
static int next(struct rig *rig, struct sequence *sequence, int32_t token, const struct forward_part *part)
{
    struct forward forward;
    const struct batch batch = {.rows = 1, .token = &token, .logit_rows = 1, .part = part};
    must(engine_forward(rig->engine, sequence, &batch, &forward, &rig->err), &rig->err);
    return likeliest(&forward, 0);
}

/* A greedy answer to rig->token[0 .. PROMPT); rig->sequence holds all of the text but the last token then. */
static void answer(struct rig *rig, int32_t *text)
{
    int32_t zero = 0;
    struct forward forward;
    memcpy(text, rig->token, PROMPT * sizeof *text);
    must(engine_prompt(rig->engine, rig->sequence, text, PROMPT - 1, NULL, NULL, NULL, &forward, &rig->err), &rig->err);
    for (int at = 0; at < ANSWER; at++) {
        text[PROMPT + at] = next(rig, rig->sequence, text[PROMPT + at - 1], NULL);
        must(sequence_commit(rig->sequence, &zero, 1, &rig->err), &rig->err);
    }
}

/* One token after the other, on the target's prompt. */
static int count_alone(struct rig *rig, const int32_t *text, const struct skip_set *set)
{
    const struct forward_part part = {.skip_attention = set->attention, .skip_ffn = set->ffn};
    struct sequence *sequence = NULL;
    int matches = 0;
    must(sequence_open(&sequence, rig->engine, PROMPT + ANSWER, &rig->err), &rig->err);
    must(sequence_copy(sequence, rig->sequence, PROMPT - 1, &rig->err), &rig->err);
    for (int at = 0; at < ANSWER; at++)
        matches += next(rig, sequence, text[PROMPT + at - 1], &part) == text[PROMPT + at];
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
        answer(&rig, text);
        must(match_window_open(&window, rig.engine, rig.sequence, text, PROMPT, ANSWER, &err), &err);
        assert_int_equal(match_window_tokens(window), ANSWER);
        for (int try = 0; try < 6; try++) {
            struct skip_set set = {.layers = LAYERS};
            int matches = -1;
            for (int part = 0; try && part < skip_parts(LAYERS); part++)
                skip_part_set(&set, part, chance_range(&chance, 0, 3) == 0);
            must(match_window_count(window, &set, &matches, &err), &err);
            assert_int_equal(matches, try ? count_alone(&rig, text, &set) : ANSWER);
            some += try && matches < ANSWER;
            all += try && matches > 0;
        }
        assert_int_equal(sequence_length(rig.sequence), PROMPT + ANSWER - 1);
        assert_int_equal(sequence_pending(rig.sequence), 0);
        match_window_close(&window);
        rig_close(&rig);
    }
    assert_true(some > 10 && all > 10);             /* else nothing was tried */
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_counts_what_tokens_alone_give),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
