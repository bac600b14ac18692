/* Jakiro's heads with any number of experts and each kind of second branch, and Jakiro*'s with the branches of the paper's
 * equation 4, compared with an independent program (tests/golden/heads/make-experts.py): states, logits and chains. */
#include "tests/unit/heads.h"

#include <errno.h>
#include <sys/stat.h>

#include "common/head/internal.h"
#include "tests/unit/made_up.h"

enum { ROWS_MAX = 64, CHAIN = 5, EVERY = 32 };

static int32_t token[ROWS_MAX];
static struct buffer states;             /* states of the text, on the device */
static int tokens;
static json_t *golden;

/* Makes up the text and the target's states. */
static int open_text(void **state)
{
    const int rc = heads_make_rig(state), hidden = model_hparams(rig.target)->hidden, vocab = model_hparams(rig.target)->vocab;
    float *made = malloc((size_t)(ROWS_MAX * hidden) * sizeof *made);
    struct err err = {0};
    golden = heads_json(heads_path("golden/heads", "experts.json"));
    tokens = (int)number(golden, "tokens");
    assert_true(tokens <= ROWS_MAX);
    for (int i = 0; i < tokens; i++) {
        const int id = (int)((double)(drawn(900, (uint64_t)i, 1, 0) + 1) / 2 * vocab);
        token[i] = id < vocab ? id : vocab - 1;
    }
    for (int i = 0; i < tokens * hidden; i++)
        made[i] = drawn(1000, (uint64_t)i, 3, 0);
    must(device_alloc(rig.device, (size_t)(tokens * hidden) * sizeof *made, &states, &err), &err);
    queue_upload(rig.device, states, made, (size_t)(tokens * hidden) * sizeof *made);
    must(queue_wait(rig.device, &err), &err);
    free(made);
    return rc;
}

static int close_text(void **state)
{
    device_free(rig.device, &states);
    json_decref(golden);
    return heads_drop_rig(state);
}

static size_t elements(const json_t *shape)
{
    size_t all = 1, i;
    json_t *dim;
    json_array_foreach(shape, i, dim)
        all *= (size_t)json_integer_value(dim);
    return all;
}

/* Writes the weights as safetensors in f32. */
static void write_weights(const json_t *made, const char *path)
{
    json_t *header = json_object(), *one;
    const char *key;
    size_t at = 0;
    json_object_foreach((json_t *)(uintptr_t)made, key, one) {
        const size_t bytes = elements(json_object_get(one, "shape")) * sizeof(float);
        json_object_set_new(header, key, json_pack("{s:s, s:O, s:[I,I]}", "dtype", "F32", "shape",
                                                   json_object_get(one, "shape"), "data_offsets", (json_int_t)at,
                                                   (json_int_t)(at + bytes)));
        at += bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    const uint64_t length = strlen(text);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
    assert_int_equal(fwrite(text, 1, length, file), length);
    json_object_foreach((json_t *)(uintptr_t)made, key, one)
        for (size_t i = 0; i < elements(json_object_get(one, "shape")); i++) {
            const float value = drawn((uint64_t)number(one, "number"), i, number(one, "bound"), number(one, "center"));
            assert_int_equal(fwrite(&value, sizeof value, 1, file), 1);
        }
    assert_int_equal(fclose(file), 0);
    json_decref(header);
    free(text);
}

/* Converts a variant's head from a folder in the published format. */
static struct model *make_head(const json_t *variant)
{
    const struct hparams *target = model_hparams(rig.target);
    const char *folder = unit_path(rig.folder, "made"), *second = json_string_value(json_object_get(variant, "second"));
    const bool star = !strcmp(second, "star");
    char path[1300];
    json_t *config = json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:i, s:i, s:s, s:b}", "model_type", "llama", "hidden_act", "silu",
        "num_hidden_layers", 1, "hidden_size", target->hidden, "vocab_size", target->vocab, "max_position_embeddings", 2048,
        "num_attention_heads", (int)number(golden, "heads"), "num_key_value_heads", (int)number(golden, "kv_heads"),
        "intermediate_size", (int)number(golden, "inner"), "rms_norm_eps", 1e-6,
        "num_local_experts", (int)number(variant, "experts"), "num_experts_per_tok", (int)number(variant, "used"),
        "second_branch", star ? "contrast" : second, "scaled_branches", star);
    assert_non_null(config);
    assert_true(mkdir(folder, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    write_weights(json_object_get(variant, "made"), path);
    json_decref(config);
    return heads_convert(&rig, folder, "head.moe");
}

struct distance { double states, logits, log_probabilities; int chains; };

static double far(const json_t *wanted, const float *found, int step)
{
    double max = 0;
    for (size_t i = 0; i < json_array_size(wanted); i++) {
        const double off = fabs((double)found[i * (size_t)step] - json_number_value(json_array_get(wanted, i)));
        max = isnan(off) ? INFINITY : off > max ? off : max;
    }
    return max;
}

/* Runs rows 0 .. rows - 1 of the text, with the logits of `wanted`. */
static void run_true(struct head *head, int rows, const int32_t *wanted, int count, int branches, struct head_forward *out)
{
    int32_t row[ROWS_MAX];
    struct err err = {0};
    for (int i = 0; i < rows; i++)
        row[i] = i;
    const struct head_batch batch = {.rows = rows, .token = token + 1, .state = states, .state_rows = tokens, .state_row = row,
                                     .logit_row = wanted, .logit_rows = count, .branches = branches};
    must(head_begin(head, ROWS_MAX, &err), &err);
    must(head_run(head, &batch, out, &err), &err);
    must(head_commit(head, row, rows, &err), &err);
}

static void compare_rows(struct head *head, const json_t *variant, struct distance *out)
{
    const json_t *rows = json_object_get(variant, "rows");
    const int hidden = head->shape->hidden, count = (int)json_array_size(rows), branches = head_branches(head);
    float *made = malloc((size_t)(tokens * hidden) * sizeof *made);
    int32_t wanted[ROWS_MAX];
    struct head_forward forward;
    struct err err = {0};
    for (int i = 0; i < count; i++)
        wanted[i] = (int32_t)number(json_array_get(rows, (size_t)i), "row");
    run_true(head, tokens - 1, wanted, count, branches, &forward);
    queue_download(head->device, made, buffer_part(head->made, (uint64_t)hidden * sizeof *made,
                                                   (uint64_t)((tokens - 1) * hidden) * sizeof *made),
                   (size_t)((tokens - 1) * hidden) * sizeof *made);
    must(queue_wait(head->device, &err), &err);
    for (int i = 0; i < count; i++) {
        const json_t *row = json_array_get(rows, (size_t)i), *logits = json_object_get(row, "logits");
        out->states = fmax(out->states, far(json_object_get(row, "made"), made + wanted[i] * hidden, 1));
        assert_int_equal(json_array_size(logits), branches);
        for (int b = 0; b < branches; b++)
            out->logits = fmax(out->logits, far(json_array_get(logits, (size_t)b), forward.logits[b] + i * forward.vocab,
                                                EVERY));
    }
    free(made);
}

static void compare_chain(struct head *head, const json_t *chain, struct distance *out)
{
    const int length = (int)number(chain, "length"), branches = head->params->kind == HEAD_JAKIRO ? head_branches(head) : 0;
    const json_t *said = json_object_get(chain, "logp");
    const int32_t last = length - 2;
    int32_t wanted[CHAIN];
    struct head_forward forward;
    struct err err = {0};
    heads_ints(json_object_get(chain, "tokens"), wanted, CHAIN);
    run_true(head, length - 1, &last, 1, branches, &forward);
    for (int at = 0; at < CHAIN; at++) {
        double logp;
        const int32_t id = heads_best(forward.logits[0], forward.vocab, &logp);
        out->log_probabilities = fmax(out->log_probabilities,
                                      fabs(logp - json_number_value(json_array_get(said, (size_t)at))));
        out->chains += id != wanted[at];
        if (at == CHAIN - 2 && branches > 1) {
            out->chains += heads_best(forward.logits[1], forward.vocab, &logp) != (int)number(chain, "second_token");
            out->log_probabilities = fmax(out->log_probabilities, fabs(logp - number(chain, "second_logp")));
        }
        const struct head_batch batch = {.rows = 1, .token = &id, .parent = at ? NULL : (const int32_t[]){-1}, .logit_rows = 1,
                                         .branches = branches};
        if (id != wanted[at] || at + 1 == CHAIN)
            return;
        must(head_run(head, &batch, &forward, &err), &err);
    }
}

static struct distance measure(const json_t *variant, void (*alter)(struct head_params *, struct hparams *),
                               void (*alter_head)(struct head *))
{
    const json_t *chains = json_object_get(variant, "chains"), *one;
    struct distance out = {0};
    struct head *head = NULL;
    struct err err = {0};
    struct model *model = make_head(variant);
    size_t i;
    if (alter)
        alter((struct head_params *)(uintptr_t)model_head(model), (struct hparams *)(uintptr_t)model_hparams(model));
    const struct head_setup setup = {.model = model, .target = rig.engine, .max_rows = ROWS_MAX, .max_logit_rows = 32};
    must(head_open(&head, &setup, &err), &err);
    if (alter_head)
        alter_head(head);
    compare_rows(head, variant, &out);
    json_array_foreach(chains, i, one)
        compare_chain(head, one, &out);
    head_close(&head);
    model_close(&model);
    return out;
}

static bool same(const struct distance *d)
{
    return d->states < 1e-3 && d->logits < 1e-3 && d->log_probabilities < 1e-3 && !d->chains;
}

static const json_t *variant_of(const char *name)
{
    const json_t *variants = json_object_get(golden, "variants"), *one;
    size_t i;
    json_array_foreach(variants, i, one)
        if (!strcmp(json_string_value(json_object_get(one, "name")), name))
            return one;
    fail_msg("no variant %s", name);
    return NULL;
}

static void all_numbers_of_experts_compute_what_the_paper_says(void **state)
{
    const json_t *variants = json_object_get(golden, "variants"), *one;
    size_t i;
    (void)state;
    assert_int_equal(json_array_size(variants), 7);
    json_array_foreach(variants, i, one) {
        const struct distance off = measure(one, NULL, NULL);
        if (!same(&off))
            fail_msg("%s: states off by %g, logits by %g, log-probabilities by %g, %d tokens are others",
                     json_string_value(json_object_get(one, "name")), off.states, off.logits, off.log_probabilities,
                     off.chains);
    }
}

static struct device_ops other_ops;
static const struct device_ops *real_ops;

static void renormalised(struct queue *queue, const struct route_select_args *args)
{
    struct route_select_args wrong = *args;
    wrong.renormalise = true;
    real_ops->route_select(queue, &wrong);
}

/* Builds the second branch from its first two rows, whichever were chosen. */
static void first_columns(struct queue *queue, const struct blend_weights_args *args)
{
    struct blend_weights_args wrong = *args;
    wrong.column = (struct buffer){0, 0};
    real_ops->blend_weights(queue, &wrong);
}

static void take_ops(struct head *head)
{
    real_ops = head->ops;
    other_ops = *real_ops;
    head->ops = &other_ops;
}

static void renormalise(struct head *head) { take_ops(head); other_ops.route_select = renormalised; }
static void forget_columns(struct head *head) { take_ops(head); other_ops.blend_weights = first_columns; }
static void all_used(struct head_params *p, struct hparams *s) { (void)p; s->router.top_k = s->router.experts; }
static void one_used(struct head_params *p, struct hparams *s) { (void)p; s->router.top_k = 1; }
static void summed(struct head_params *p, struct hparams *s) { (void)s; p->second = HEAD_SECOND_SUM; }
static void contrasted(struct head_params *p, struct hparams *s) { (void)s; p->second = HEAD_SECOND_CONTRAST; }
static void unscaled(struct head_params *p, struct hparams *s) { (void)s; p->scaled = false; }

static void likely_mistakes_are_seen(void **state)
{
    static const struct {
        const char *name, *variant;
        void (*describe)(struct head_params *, struct hparams *);
        void (*alter)(struct head *);
    } mistakes[] = {
        {"weights renormalised", "4-2", NULL, renormalise},
        {"columns of experts that were not chosen", "4-2", NULL, forget_columns},
        {"all experts", "4-2", all_used, NULL}, {"the best alone", "4-2", one_used, NULL}, {"both", "2-1", all_used, NULL},
        {"a sum for the contrast", "4-2", summed, NULL}, {"the contrast for a sum", "5-3", contrasted, NULL},
        {"branches of experts alone", "scaled", unscaled, NULL}, {"all of three", "3-1", all_used, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i += unit_brief() ? 4 : 1) {
        const struct distance off = measure(variant_of(mistakes[i].variant), mistakes[i].describe, mistakes[i].alter);
        if (same(&off))
            fail_msg("%s: %s: not seen", mistakes[i].variant, mistakes[i].name);
    }
}

static int64_t bytes_of(const char *name, int branches)
{
    const int32_t last = 0;
    struct model *model = make_head(variant_of(name));
    const struct head_setup setup = {.model = model, .target = rig.engine, .max_rows = ROWS_MAX, .max_logit_rows = 1};
    struct head *head = NULL;
    struct head_forward forward;
    struct err err = {0};
    must(head_open(&head, &setup, &err), &err);
    run_true(head, 1, &last, 1, branches, &forward);
    head_close(&head);
    model_close(&model);
    return forward.bytes;
}

/* Two of four experts equal two of two, except for further rows of the router; one, and a second for the second branch. */
static void bytes_are_of_the_experts_that_rows_use(void **state)
{
    const int64_t hidden = model_hparams(rig.target)->hidden, expert = 3 * hidden * hidden * 4;
    (void)state;
    const int64_t more = bytes_of("4-2", 2) - bytes_of("2-2", 2);
    assert_true(more >= 0 && more < expert / 10);
    assert_int_equal(bytes_of("4-2", 2), bytes_of("4-2", 1));
    assert_int_equal(bytes_of("2-1", 2) - bytes_of("2-1", 1), expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_numbers_of_experts_compute_what_the_paper_says), cmocka_unit_test(likely_mistakes_are_seen),
        cmocka_unit_test(bytes_are_of_the_experts_that_rows_use),
    };
    return cmocka_run_group_tests(tests, open_text, close_text);
}
