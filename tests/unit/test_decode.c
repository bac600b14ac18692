/* The decoding loop on small random models through the real engine: tokens are those of decoding without a draft, whatever
 * is drafted; texts end where they should; reported counts add up. */
#include "tests/unit/unit.h"

#include "common/base/file.h"
#include "common/base/utf8.h"
#include "common/decode/decode.h"
#include "common/decode/ending.h"
#include "common/decode/internal.h"
#include "common/draft/drafter.h"
#include "common/instruments/record.h"
#include "common/predict/calibration.h"
#include "common/sample/sampler.h"
#include "tests/unit/rig.h"

enum { TOKENS = 60, VOCAB_MIN = 20 };

static const char *ngram[] = {"ngram", "ngram:n=2"};

/* Writes the tiny model of this seed, with end token `eos` (-1: none) and a context of `context` positions. */
static void open_rig(struct rig *rig, uint64_t seed, int eos, int context, int threads)
{
    struct chance chance = {seed};
    struct hparams shape = tiny_shape(&chance);
    if (eos >= 0) {
        shape.eos[0] = eos;
        shape.eos_count = 1;
    }
    rig_write(rig, &shape, FORMAT_F32, seed, threads);
    rig_engine(rig, (struct engine_setup){.max_rows = 256, .max_logit_rows = 256, .max_positions = context}, 0);
}

/* Data that the sink received in one run. */
struct seen {
    const struct decode_prompt *prompt;
    int iterations, emitted, drafts, draft_tokens, accepted, begins, prompt_rows;
    int answer_tokens;              /* tokens so far: the expected position of the root */
    double end_us;
    int32_t root;
    bool has_root;
    const struct digest128 *logits;     /* logits at each position of the answer, decoded alone; NULL: unknown */
    struct text text;
};

static int see_prompt(void *context, const struct forward *piece, int position, struct err *err)
{
    struct seen *seen = context;
    (void)err;
    assert_int_equal(position, seen->prompt_rows);
    seen->prompt_rows += piece->rows;
    return 0;
}

static int see_begin(void *context, double prefill_s, struct err *err)
{
    struct seen *seen = context;
    (void)err;
    assert_true(prefill_s > 0);
    assert_int_equal(seen->prompt_rows, seen->prompt->tokens);
    seen->end_us = 1e6 * prefill_s;
    seen->begins++;
    seen->answer_tokens = 1;
    return 0;
}

static int see_text(void *context, const char *bytes, size_t count, struct err *err)
{
    return text_put(&((struct seen *)context)->text, bytes, count, err);
}

static int see_iteration(void *context, const struct decode_iteration *it, struct err *err)
{
    struct seen *seen = context;
    int kept = 0, last = 0;
    (void)err;
    assert_int_equal(it->number, seen->iterations++);
    assert_int_equal(it->position, seen->prompt->tokens + seen->answer_tokens - 1);
    assert_int_equal(it->record.nodes, 1 + it->tree->nodes);
    assert_int_equal(it->forward->rows, it->record.nodes + it->record.riders);
    assert_int_equal(it->forward->logit_rows, it->record.nodes + it->record.riders);
    assert_int_equal(it->record.node_parents[0], -1);
    if (seen->has_root)
        assert_int_equal(it->record.node_tokens[0], seen->root);
    assert_true(draft_tree_depth(it->tree) <= it->record.K);
    for (int row = 0; row < it->record.nodes; row++) {
        if (it->kept[row] && row) {
            assert_int_equal(it->record.node_parents[row], last);
            if (kept <= it->record.emitted)
                assert_int_equal(it->record.node_tokens[row], it->record.tokens[kept - 1]);
            last = row;
        }
        /* The row's logits equal those of its position in the answer, bit by bit. */
        if (it->kept[row] && seen->logits && seen->answer_tokens + kept < TOKENS) {
            struct digest128 digest = hash_xxh3(it->forward->logits + (size_t)row * (size_t)it->forward->vocab,
                                                (size_t)it->forward->vocab * sizeof(float));
            assert_memory_equal(&digest, &seen->logits[seen->answer_tokens + kept], sizeof digest);
        }
        kept += it->kept[row];
    }
    assert_int_equal(kept, 1 + it->record.accepted);
    assert_in_range(it->record.emitted, 1, it->record.accepted + 1);
    assert_true(it->record.t_us > seen->end_us);
    assert_true(it->record.draft_us >= 0 && it->record.verify_us > 0 && it->record.accept_us >= 0 && it->record.other_us >= 0);
    const struct decode_iter *record = &it->record;
    assert_true(record->draft_us + record->verify_us + record->accept_us + record->other_us <=
                record->t_us - seen->end_us + 1e-3);
    assert_int_equal(values_number(&it->record.policy, "K", -1), it->record.K);
    seen->end_us = it->record.t_us;
    seen->emitted += it->record.emitted;
    seen->answer_tokens += it->record.emitted;
    seen->root = it->record.tokens[it->record.emitted - 1];
    seen->has_root = true;
    seen->drafts += it->tree->nodes > 0;
    seen->draft_tokens += it->tree->nodes;
    seen->accepted += it->record.accepted;
    return 0;
}

/* Runs one prompt on a new decoder; writes the answer to token[] and returns its length. */
static int run(struct rig *rig, const struct decode_settings *settings, const struct tokenizer *tokenizer,
               const int32_t *prompt, int tokens, struct decode_result *result, struct seen *seen, int32_t *token)
{
    const struct digest128 *logits = seen ? seen->logits : NULL;
    struct decoder *decoder = NULL;
    struct decoder_setup setup = {.engine = rig->engine, .tokenizer = tokenizer, .settings = settings};
    struct decode_prompt asked = {.token = prompt, .tokens = tokens};
    struct seen mine = {.prompt = &asked, .logits = logits};
    struct decode_sink sink = {&mine, see_prompt, see_begin, see_iteration, see_text};
    must(decoder_open(&decoder, &setup, &rig->err), &rig->err);
    must(decoder_run(decoder, &asked, &sink, result, &rig->err), &rig->err);
    assert_int_equal(mine.begins, 1);
    assert_int_equal(mine.iterations, result->iterations);
    assert_int_equal(mine.emitted, result->tokens - (result->tokens > 0));
    assert_int_equal(mine.drafts, result->drafts);
    assert_int_equal(mine.draft_tokens, result->draft_tokens);
    assert_int_equal(mine.accepted, result->accepted_tokens);
    if (tokenizer) {
        assert_int_equal(mine.text.length, result->text_bytes);
        assert_memory_equal(mine.text.length ? mine.text.data : "", result->text, result->text_bytes);
        result->text = NULL;
    }
    memcpy(token, result->token, (size_t)result->tokens * sizeof *token);
    result->token = NULL;
    if (seen)
        *seen = mine;
    else
        text_free(&mine.text);
    decoder_close(&decoder);
    return result->tokens;
}

static int make_prompt(uint64_t seed, int32_t *prompt)
{
    struct chance chance = {seed + 99};
    int count = chance_range(&chance, 1, 40);
    for (int i = 0; i < count; i++)
        prompt[i] = i > 8 && i % 5 ? prompt[i - 7] : chance_range(&chance, 0, VOCAB_MIN - 1);
    return count;
}

/* Decodes by definition: one token after the other, without the loop of common/decode. */
static void decode_alone(struct rig *rig, const struct decode_settings *settings, const int32_t *prompt, int count,
                         int32_t *token, struct digest128 *logits)
{
    int vocab = engine_hparams(rig->engine)->vocab;
    struct sequence *sequence = NULL;
    struct sampler *sampler = NULL;
    struct forward forward;
    must(sequence_open(&sequence, rig->engine, count + TOKENS, &rig->err), &rig->err);
    must(sampler_open(&sampler, &settings->filter, settings->seed, vocab, &rig->err), &rig->err);
    must(sampler_begin(sampler, prompt, count, 0, &rig->err), &rig->err);
    must(engine_prompt(rig->engine, sequence, prompt, count, NULL, NULL, NULL, &forward, &rig->err), &rig->err);
    for (int i = 0; i < TOKENS; i++) {
        logits[i] = hash_xxh3(forward.logits, (size_t)vocab * sizeof(float));
        token[i] = sampler_choose(sampler, forward.logits, count + i, &rig->err);
        struct batch batch = {.rows = 1, .token = &token[i], .logit_rows = 1};
        must(engine_forward(rig->engine, sequence, &batch, &forward, &rig->err), &rig->err);
        must(sequence_commit(sequence, (const int32_t[]){0}, 1, &rig->err), &rig->err);
    }
    sampler_close(&sampler);
    sequence_close(&sequence);
}

static void tokens_do_not_depend_on_drafts_or_threads(void **state)
{
    static const struct sample_filter samplings[] = {
        {0, 1, 0, 0}, {0.7, 1, 0, 0}, {1, 1, 0, 4}, {0.5, 0.8, 0.02, 0}};
    static const int lengths[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 64};
    int accepted = 0, refused = 0, sampled = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= (unit_brief() ? 1 : 6); seed++)
        for (int threads = 1; threads <= 2; threads++) {
            struct rig rig;
            int32_t prompt[64], token[TOKENS], expected[4][TOKENS];
            struct digest128 logits[TOKENS];
            int count = make_prompt(seed, prompt);
            open_rig(&rig, seed, -1, 0, threads);
            for (size_t s = 0; s < 4; s++)
                for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
                    struct decode_settings settings = DECODE_DEFAULTS;
                    struct decode_result result;
                    settings.filter = samplings[s];
                    settings.max_tokens = TOKENS;
                    settings.seed = seed;
                    settings.draft = (struct strings){ngram, k != 0};
                    settings.draft_length = k ? lengths[k] : DRAFT_LENGTH_NONE;
                    struct seen seen = {.logits = logits};
                    if (!k)
                        decode_alone(&rig, &settings, prompt, count, expected[s], logits);
                    assert_int_equal(run(&rig, &settings, NULL, prompt, count, &result, &seen, token), TOKENS);
                    assert_int_equal(result.finish, FINISH_LENGTH);
                    assert_true(k || result.iterations == TOKENS - 1);
                    assert_memory_equal(token, expected[s], sizeof token);
                    accepted += result.accepted_tokens;
                    refused += result.draft_tokens - result.accepted_tokens;
                }
            sampled += memcmp(expected[0], expected[1], sizeof token) != 0;     /* a model may be certain of every token */
            rig_close(&rig);
        }
    assert_true(unit_brief() || sampled >= 8);
    assert_true(unit_brief() || (accepted > 500 && refused > 500));
}

/* Every drafter that needs no file, in every shape: as chains, as trees by rank and trees of its own, alone and before
 * another one; with rows that join verifications. The context is so short that a window extends beyond its end. */
static void every_drafter_leaves_the_text(void **state)
{
    static const char *trees[] = {NULL, "chain", "dynamic:total=16,depth=3,topk=3", "own:total=20"};
    static const double temperatures[] = {0, 0.8};
    static const int lengths[] = {DRAFT_LENGTH_NONE, 2, 64};
    int drafters = 0;
    (void)state;
    for (const struct drafter_class *const *class = drafter_classes; *class; class++) {
        const char *names[] = {(*class)->name, "ngram"};
        int accepted[4] = {0};                              /* in each shape, without the other drafter */
        if (!(*class)->looks_up && !(*class)->request_riders)
            continue;
        for (int test = 0; test < (unit_brief() ? 6 : 48); test++) {
            struct rig rig;
            struct decode_settings settings = DECODE_DEFAULTS;
            struct decode_result result;
            int32_t prompt[64], token[TOKENS], expected[TOKENS];
            struct digest128 logits[TOKENS];
            uint64_t seed = (uint64_t)(1 + test % 5);
            int count = make_prompt(seed, prompt);
            settings.filter.temperature = temperatures[test % 2];
            settings.max_tokens = TOKENS;
            settings.seed = seed;
            open_rig(&rig, seed, -1, count + TOKENS, 1);
            decode_alone(&rig, &settings, prompt, count, expected, logits);
            settings.draft = (struct strings){names, 1 + test % 7 / 5};
            settings.tree = trees[test % 4];
            settings.draft_length = lengths[test % 3];
            struct seen seen = {.logits = logits};
            assert_int_equal(run(&rig, &settings, NULL, prompt, count, &result, &seen, token), TOKENS);
            assert_memory_equal(token, expected, sizeof token);
            accepted[test % 4] += settings.draft.count == 1 ? result.accepted_tokens : 0;
            rig_close(&rig);
        }
        for (int tree = 0; tree < 4; tree++)
            if (!accepted[tree] && !unit_brief())
                fail_msg("%s, %s: no token was accepted", (*class)->name, trees[tree] ? trees[tree] : "as it is");
        drafters++;
    }
    assert_true(drafters >= 4);
}

static int count_rows(void *context, const struct forward *piece, int position, struct err *err)
{
    (void)position, (void)err;
    *(int *)context += piece->rows;
    return 0;
}

/* A decoder that keeps the KV cache answers prompts that continue its text, or diverge from it, as a decoder that reads them
 * completely. It keeps the common prefix, except for the newest token, which was never read. */
static void a_text_that_goes_on_is_the_one_read_anew(void **state)
{
    enum { TURNS = 5, ROOM = 64 + TURNS * (TOKENS + 8) };
    static const double temperatures[] = {0, 0.8};
    (void)state;
    for (int test = 0; test < (unit_brief() ? 2 : 8); test++) {
        struct chance chance = {(uint64_t)test + 7};
        struct decode_settings settings = DECODE_DEFAULTS;
        struct decoder *decoder = NULL;
        struct rig rig;
        int32_t prompt[ROOM], text[ROOM], expected[TOKENS];
        struct digest128 logits[TOKENS];
        int count = make_prompt((uint64_t)test, prompt), length = 0;
        settings.filter.temperature = temperatures[test % 2];
        settings.max_tokens = TOKENS;
        settings.draft = (struct strings){ngram, test % 4 / 2};
        open_rig(&rig, (uint64_t)test + 1, -1, 0, 1);
        const struct decoder_setup setup = {.engine = rig.engine, .settings = &settings, .keep = true};
        must(decoder_open(&decoder, &setup, &rig.err), &rig.err);
        for (int turn = 0; turn < TURNS; turn++) {
            const struct decode_prompt asked = {.token = prompt, .tokens = count};
            struct decode_result result;
            int read = 0, same = 0;
            const struct decode_sink sink = {.context = &read, .prompt = count_rows};
            while (same < length - 1 && same < count - 1 && prompt[same] == text[same])
                same++;
            decode_alone(&rig, &settings, prompt, count, expected, logits);
            must(decoder_run(decoder, &asked, &sink, &result, &rig.err), &rig.err);
            assert_int_equal(result.tokens, TOKENS);
            assert_memory_equal(result.token, expected, sizeof expected);
            assert_int_equal(result.kept, same);
            assert_int_equal(read, count - same);
            memcpy(text, prompt, (size_t)count * sizeof *text);
            memcpy(text + count, expected, sizeof expected);
            length = count + TOKENS;
            memcpy(prompt, text, (size_t)length * sizeof *text);
            if (turn == 1 || turn == 3)                     /* diverges within the text, or at its first token */
                prompt[turn == 1 ? count + 5 : 0] ^= 1;
            count = turn == 2 ? count : length;             /* the same prompt again, with another sample number */
            for (int more = chance_range(&chance, 1, 8); more; more--)
                prompt[count++] = chance_range(&chance, 0, VOCAB_MIN - 1);
        }
        decoder_close(&decoder);
        rig_close(&rig);
    }
}

/* Limit, end token and context end the text where they would without drafts, also within accepted tokens. */
static void ends_are_where_they_would_be(void **state)
{
    static const uint64_t seeds[] = {1, 4, 5, 10};
    int amid = 0;
    (void)state;
    for (int s = 0; s < (unit_brief() ? 2 : 4); s++) {
        uint64_t seed = seeds[s];
        struct rig rig;
        int32_t prompt[64 + TOKENS], whole[TOKENS], token[TOKENS];
        int count = make_prompt(seed, prompt);
        struct decode_settings settings = DECODE_DEFAULTS;
        struct decode_result result;
        settings.max_tokens = TOKENS;
        settings.filter.temperature = 0.3;
        open_rig(&rig, seed, -1, 0, 1);
        /* The answer becomes part of the prompt, so drafts propose tokens that are still to come. */
        count += run(&rig, &settings, NULL, prompt, count, &result, NULL, prompt + count);
        run(&rig, &settings, NULL, prompt, count, &result, NULL, whole);
        settings.draft = (struct strings){ngram, 1};
        settings.draft_length = 8;
        for (int limit = 0; limit < TOKENS; limit += 1 + limit / 9) {
            settings.max_tokens = limit;
            assert_int_equal(run(&rig, &settings, NULL, prompt, count, &result, NULL, token), limit);
            assert_memory_equal(token, whole, (size_t)limit * sizeof *token);
            assert_int_equal(result.finish, FINISH_LENGTH);
        }
        rig_close(&rig);
        settings.max_tokens = TOKENS;
        for (int context = count + 1; context < count + TOKENS; context += 13) {
            open_rig(&rig, seed, -1, context, 1);
            assert_int_equal(run(&rig, &settings, NULL, prompt, count, &result, NULL, token), context - count);
            assert_memory_equal(token, whole, (size_t)(context - count) * sizeof *token);
            assert_int_equal(result.finish, FINISH_LENGTH);
            rig_close(&rig);
        }
        for (int at = 0; at < TOKENS; at++) {
            int end = 0;
            while (whole[end] != whole[at])
                end++;
            if (end < at)
                continue;
            open_rig(&rig, seed, whole[at], 0, 1);
            settings.ignore_eos = false;
            assert_int_equal(run(&rig, &settings, NULL, prompt, count, &result, NULL, token), end + 1);
            assert_memory_equal(token, whole, (size_t)(end + 1) * sizeof *token);
            assert_int_equal(result.finish, FINISH_STOP);
            amid += result.accepted_tokens + result.iterations > end;       /* tokens after the end were dropped */
            settings.ignore_eos = true;
            assert_int_equal(run(&rig, &settings, NULL, prompt, count, &result, NULL, token), TOKENS);
            assert_memory_equal(token, whole, sizeof token);
            rig_close(&rig);
        }
    }
    assert_true(unit_brief() || amid >= 1);
}

static struct tokenizer *open_tokenizer(void)
{
    struct tokenizer *tokenizer = NULL;
    struct text json = {0};
    struct err err = {0};
    must(file_read(&json, unit_path(unit_models(), "pocket/model/tokenizer.json"), 1 << 24, &err), &err);
    must(tokenizer_new(&tokenizer, json.data, json.length, &err), &err);
    text_free(&json);
    return tokenizer;
}

/* The model's ids are the pocket tokenizer's first tokens: its text ends before a stop string. */
static void stop_strings_cut_the_same_text(void **state)
{
    struct tokenizer *tokenizer = open_tokenizer();
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct rig rig;
        struct seen whole = {0}, seen;
        int32_t prompt[64], token[TOKENS], all[TOKENS];
        int count = make_prompt(seed, prompt);
        struct decode_settings settings = DECODE_DEFAULTS;
        struct decode_result result;
        settings.max_tokens = TOKENS;
        settings.filter.temperature = 0.6;
        open_rig(&rig, seed, -1, 0, 1);
        run(&rig, &settings, tokenizer, prompt, count, &result, &whole, all);
        assert_true(whole.text.length >= TOKENS);
        for (size_t at = 0; at + 3 < whole.text.length; at += 5) {
            char stop[4] = {0};
            const char *none = "\n\n\n\n", *stops[2] = {none, stop};
            memcpy(stop, whole.text.data + at, 3);
            if (utf8_fault(stop, 3) < 3)
                continue;
            size_t cut = (size_t)(strstr(whole.text.data, stop) - whole.text.data);
            int tokens[2];
            for (int drafting = 0; drafting < 2; drafting++) {
                settings.stop = (struct strings){stops, 2};
                settings.draft = (struct strings){ngram + 1, drafting};
                settings.draft_length = drafting ? 6 : DRAFT_LENGTH_NONE;
                seen = (struct seen){0};
                tokens[drafting] = run(&rig, &settings, tokenizer, prompt, count, &result, &seen, token);
                assert_int_equal(result.finish, FINISH_STOP);
                assert_int_equal(seen.text.length, cut);
                assert_memory_equal(cut ? seen.text.data : "", whole.text.data, cut);
                assert_memory_equal(token, all, (size_t)tokens[drafting] * sizeof *token);
                text_free(&seen.text);
            }
            assert_int_equal(tokens[0], tokens[1]);
        }
        text_free(&whole.text);
        rig_close(&rig);
    }
    tokenizer_free(&tokenizer);
}

/* Text is emitted as soon as it is final and never withdrawn; only text that may still become a stop string is held back. */
static void text_is_certain_when_it_is_given(void **state)
{
    static const char *const stops[] = {"aab", "abc abd", "\xe2\x82\xac!"};
    struct tokenizer *tokenizer = open_tokenizer();
    (void)state;
    srand(8);
    for (int round = 0; round < 2000; round++) {
        char text[64] = {0};
        struct strings stop = {(const char **)(uintptr_t)stops, 3};
        struct ending ending = {.tokenizer = tokenizer, .stop = &stop};
        struct tokens tokens = {0};
        struct err err = {0};
        for (int i = 0, n = rand() % 30; i < n; i++)
            strcat(text, (const char *[]){"a", "a", "b", "c", " ", "d", "\xe2\x82\xac", "!"}[rand() % 8]);
        must(tokenizer_encode(tokenizer, text, strlen(text), 0, &tokens, &err), &err);
        ending_begin(&ending, 1000);
        size_t given = 0, cut = strlen(text);
        for (int i = 0; i < 3; i++) {
            const char *found = strstr(text, stops[i]);
            cut = found && (size_t)(found - text) < cut ? (size_t)(found - text) : cut;
        }
        for (int i = 0; i < tokens.n && !ending.ended; i++) {
            must(ending_put(&ending, tokens.ids[i], &err), &err);
            assert_true(ending.certain >= given && ending.certain <= cut);
            given = ending.certain;
            assert_memory_equal(ending.text.data ? ending.text.data : "", text, given);
            for (size_t at = given; !ending.ended && at < ending.text.length; at++)     /* why the rest is held back */
                if (at == given)
                    assert_true(strncmp(stops[0], ending.text.data + at, ending.text.length - at) == 0 ||
                                strncmp(stops[1], ending.text.data + at, ending.text.length - at) == 0 ||
                                strncmp(stops[2], ending.text.data + at, ending.text.length - at) == 0);
        }
        assert_int_equal(ending.ended, cut < strlen(text));
        if (ending.ended) {
            assert_int_equal(ending.reason, FINISH_STOP);
            assert_int_equal(ending.text.length, cut);
        }
        tokens_free(&tokens);
        ending_free(&ending);
    }
    tokenizer_free(&tokenizer);
}

/* A text that ends after a token has all of the token, also an incomplete character; of two stop strings in one token the
 * first one in the text counts. */
static void every_token_can_be_the_last(void **state)
{
    struct tokenizer *tokenizer = open_tokenizer();
    int incomplete = 0, both = 0;
    (void)state;
    for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
        struct strings none = {NULL, 0};
        struct ending ending = {.tokenizer = tokenizer, .stop = &none};
        struct text whole = {0};
        struct err err = {0};
        must(tokenizer_decode(tokenizer, &id, 1, 0, &whole, &err), &err);
        ending_begin(&ending, 1);
        must(ending_put(&ending, id, &err), &err);
        assert_int_equal(ending.text.length, whole.length);
        assert_memory_equal(ending.text.data ? ending.text.data : "", whole.data ? whole.data : "", whole.length);
        incomplete += whole.length == 3 && !memcmp(whole.data, "\xef\xbf\xbd", 3);
        if (whole.length > 1 && whole.data[0] > ' ' && whole.data[1] > ' ' && whole.data[0] != whole.data[1]) {
            const char first[2] = {whole.data[0]}, second[2] = {whole.data[1]}, *stops[] = {second, first};
            struct strings stop = {stops, 2};
            ending.stop = &stop;
            ending_begin(&ending, 2);
            must(ending_put(&ending, id, &err), &err);
            assert_true(ending.ended && !ending.text.length);
            both++;
        }
        text_free(&whole);
        ending_free(&ending);
    }
    assert_true(incomplete > 10 && both > 100);
    tokenizer_free(&tokenizer);
}

static void bad_prompts_and_settings_are_refused(void **state)
{
    static const char *empty[] = {""};
    static const int32_t prompt[] = {1, 2, 10000};
    struct rig rig;
    struct decode_settings settings = DECODE_DEFAULTS;
    struct decoder *decoder = NULL;
    struct decode_sink sink = {0};
    struct decode_result result;
    (void)state;
    open_rig(&rig, 1, -1, 8, 1);
    struct decoder_setup setup = {.engine = rig.engine, .settings = &settings};
    must(decoder_open(&decoder, &setup, &rig.err), &rig.err);
    const struct { struct decode_prompt prompt; const char *part; } wrong[] = {
        {{prompt, 0, 0, 0}, "no tokens"}, {{prompt, 3, 0, 0}, "token 10000"}, {{prompt, 8, 0, 0}, "8 tokens"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err = {0};
        assert_int_equal(decoder_run(decoder, &wrong[i].prompt, &sink, &result, &err), -1);
        assert_non_null(strstr(err.text, wrong[i].part));
    }
    const struct decode_prompt right = {.token = prompt, .tokens = 2};           /* and continues after a refusal */
    must(decoder_run(decoder, &right, &sink, &result, &rig.err), &rig.err);
    assert_int_equal(result.tokens, 6);
    decoder_close(&decoder);

    settings.stop = (struct strings){empty, 1};
    assert_int_equal(decoder_open(&decoder, &setup, &rig.err), -1);
    assert_non_null(strstr(rig.err.text, "tokenizer"));
    err_clear(&rig.err);
    settings.stop.count = 0;
    settings.draft_length = 3;
    assert_int_equal(decoder_open(&decoder, &setup, &rig.err), -1);
    assert_non_null(strstr(rig.err.text, "--draft ngram"));
    rig_close(&rig);
}

static void a_suite_sets_what_a_command_line_sets(void **state)
{
    struct decode_settings settings;
    struct decode_settings_store *store = NULL;
    struct err err = {0};
    json_t *map = json_pack("{s:s, s:i, s:f, s:b, s:b, s:[s, s], s:s}", "draft", "ngram:n=3", "draft-length", 6,
                            "temperature", 0.7, "ignore-eos", 1, "force-nothing", 0, "stop", "a", "b", "budget-mode",
                            "truncate");
    (void)state;
    assert_int_equal(decode_settings_from_json(&settings, &store, map, &err), -1);
    assert_non_null(strstr(err.text, "a setting cannot have the option \"force-nothing\"; "));
    err_clear(&err);
    json_object_del(map, "force-nothing");
    must(decode_settings_from_json(&settings, &store, map, &err), &err);
    json_decref(map);
    assert_int_equal(settings.draft.count, 1);
    assert_string_equal(settings.draft.items[0], "ngram:n=3");
    assert_int_equal(settings.draft_length, 6);
    assert_true(settings.filter.temperature == 0.7 && settings.filter.top_p == 1 && settings.ignore_eos);
    assert_int_equal(settings.stop.count, 2);
    assert_string_equal(settings.stop.items[1], "b");
    assert_int_equal(settings.budget_mode, BUDGET_TRUNCATE);
    assert_int_equal(settings.max_tokens, -1);
    decode_settings_free(&store);
    map = json_pack("{s:b}", "ignore-eos", 0);
    must(decode_settings_from_json(&settings, &store, map, &err), &err);
    assert_false(settings.ignore_eos);
    decode_settings_free(&store);
    json_decref(map);
    map = json_pack("{s:i}", "draft-length", 65);
    assert_int_equal(decode_settings_from_json(&settings, &store, map, &err), -1);
    assert_non_null(strstr(err.text, "draft-length"));
    json_decref(map);
    err_clear(&err);
    map = json_pack("{s:i}", "draft-lenth", 4);
    assert_int_equal(decode_settings_from_json(&settings, &store, map, &err), -1);
    assert_string_equal(err.text, "a setting cannot have the option \"draft-lenth\"; did you mean \"draft-length\"?");
    json_decref(map);
    err_clear(&err);
    map = json_pack("{s:i}", "paralel", 4);
    assert_int_equal(decode_settings_from_json(&settings, &store, map, &err), -1);
    assert_string_equal(err.text, "a setting cannot have the option \"paralel\"; did you mean \"parallel\"?");
    json_decref(map);
}

/* Concurrent texts of one task share an estimator, which counts once in the calibration, whatever the order of the texts. */
static void a_shared_estimator_counts_once(void **state)
{
    static const char *const task[3] = {"a", "b", "a"};
    static const double seen[3] = {10, 40, 10};
    struct rig rig;
    struct decode_settings settings = DECODE_DEFAULTS;
    struct decoder *decoder[3] = {NULL};
    struct estimator got;
    const struct calibration_entry entry = {"ngram", &got};
    (void)state;
    settings.draft = (struct strings){ngram, 1};
    settings.policy = "cascade-cost";
    open_rig(&rig, 1, -1, 0, 1);
    const char *path = unit_path(rig.folder, "calibration.json");
    for (int i = 0; i < 3; i++) {
        const struct decoder_setup setup = {.engine = rig.engine, .settings = &settings, .like = decoder[0]};
        const struct policy_text text = {.task = task[i]};
        must(decoder_open(&decoder[i], &setup, &rig.err), &rig.err);
        struct policy *policy = decoder[i]->policy;
        policy->class->begin(policy, &text);
        policy->class->estimator(policy, 0)->seen = seen[i];
    }
    must(decoders_write_calibration(decoder, 3, path, "", &rig.err), &rig.err);
    must(calibration_read(path, "", &entry, 1, &rig.err), &rig.err);
    assert_true(fabs(got.seen - 25) < 1e-6);
    for (int i = 2; i >= 0; i--)
        decoder_close(&decoder[i]);
    rig_close(&rig);
}

static void a_suite_with_a_value_of_another_type_is_refused(void **state)
{
    static const char *const whole = "expected a whole number; one above 9223372036854775807 must be written in quotes";
    static const char *const lists = "expected one value, not a list; \"vary\" makes a setting of each value of a list";
    static const struct { const char *json, *prefix, *text; } bad[] = {
        {"{\"ignore-eos\": \"yes\"}", "", "--ignore-eos: expected true or false, without quotes"},
        {"{\"ignore-eos\": [true]}", "", "--ignore-eos: expected true or false, without quotes"},
        {"{\"draft-length\": true}", "--draft-length: ", "expected a number or a text"},
        {"{\"temperature\": null}", "--temperature: ", "expected a number or a text"},
        {"{\"draft-length\": [1, 2]}", "--draft-length: ", lists},
        {"{\"budget\": [8, 8]}", "--budget: ", lists},
        {"{\"draft\": true}", "--draft: ", "expected a text or a list of texts"},
        {"{\"stop\": [[\"a\"]]}", "--stop: ", "expected a text or a list of texts"},
        {"{\"seed\": 1e30}", "--seed: ", whole},
        {"{\"seed\": 1.5}", "--seed: ", whole},
        {"{\"K\": 4}", "", "a setting cannot have the option \"K\"; did you mean \"draft-length\"?"},
        {"{\"q\": 4}", "", "a setting cannot have the option \"q\"; it can have those of moe-decode for tokens, drafts and "
         "budgets, and others apply to the whole run: see moe-bench(1)"}};
    struct decode_settings settings;
    struct decode_settings_store *store = NULL;
    struct err err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *map = json_loads(bad[i].json, 0, NULL);
        char expected[256];
        snprintf(expected, sizeof expected, "%s%s", bad[i].prefix, bad[i].text);
        assert_int_equal(decode_settings_from_json(&settings, &store, map, &err), -1);
        assert_string_equal(err.text, expected);
        err_clear(&err);
        json_decref(map);
    }
    json_t *map = json_pack("{s:s}", "seed", "18446744073709551615");
    must(decode_settings_from_json(&settings, &store, map, &err), &err);
    assert_true(settings.seed == UINT64_MAX);
    decode_settings_free(&store);
    json_decref(map);
}

static void a_record_has_no_nul(void **state)
{
    (void)state;
    struct text room = {0};
    const char *text;
    const struct decode_result plain = {.text = "ab", .text_bytes = 2}, none = {0}, holed = {.text = "a\0\0b", .text_bytes = 4};
    assert_int_equal(decode_record_text(&text, &room, &plain, NULL), 0);
    assert_ptr_equal(text, plain.text);
    assert_int_equal(decode_record_text(&text, &room, &none, NULL), 0);
    assert_null(text);
    assert_int_equal(decode_record_text(&text, &room, &holed, NULL), 0);
    assert_string_equal(text, "a\xef\xbf\xbd\xef\xbf\xbd" "b");
    text_free(&room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_do_not_depend_on_drafts_or_threads),
        cmocka_unit_test(every_drafter_leaves_the_text),
        cmocka_unit_test(a_text_that_goes_on_is_the_one_read_anew),
        cmocka_unit_test(ends_are_where_they_would_be),
        cmocka_unit_test(stop_strings_cut_the_same_text),
        cmocka_unit_test(text_is_certain_when_it_is_given),
        cmocka_unit_test(every_token_can_be_the_last),
        cmocka_unit_test(bad_prompts_and_settings_are_refused),
        cmocka_unit_test(a_suite_sets_what_a_command_line_sets),
        cmocka_unit_test(a_shared_estimator_counts_once),
        cmocka_unit_test(a_suite_with_a_value_of_another_type_is_refused),
        cmocka_unit_test(a_record_has_no_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
