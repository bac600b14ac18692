/* Training steps compared with those of an independent program from the same heads over the same texts (tests/golden/train,
 * from PyTorch): losses, gradients and updated weights of every kind. The long check (MOE_LONG) runs more steps. */
#include <math.h>

#include "common/train/network.h"
#include "common/train/optimiser.h"
#include "common/train/start.h"
#include "tests/unit/made_up.h"
#include "tests/unit/train.h"

enum { TEXTS = 32, BATCH = 4, LONGEST = 128, BRIEF = 12 };
static const double LOSS_NEAR = 1e-4, NEAR = 1e-3;
/* At token 48 of this text the fourth and the fifth expert of layer 2 have the same score to the last bit of f32, so
 * rounding decides between them. The reference device, whose sums are exact, decides like the other program. */
enum { TIED_TEXT = 19 };

static struct train_rig rig;
static struct device *learning;         /* device on which heads are trained */

/* ---- published names ---- */

struct slice { enum tensor_role role; enum weight_part part; int layer, stage, row, rows; };

static bool ends(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

static struct slice attention_of(const struct hparams *s, int which)
{
    const int q = s->attention.heads * s->attention.head_dim, kv = s->attention.kv_heads * s->attention.head_dim;
    return (struct slice){ROLE_QKV, WEIGHT_WHOLE, 0, 0, which == 0 ? 0 : which == 1 ? q : q + kv, which == 0 ? q : kv};
}

/* hydra_mlp.I.B.{linear,res_connection}, hydra_lm_head.I; with a prefix, B is 1, 3, ... */
static bool hydra_slice(const struct weights *w, const char *name, struct slice *out)
{
    const bool output = strncmp(name, "hydra_lm_head", 13) == 0, bias = ends(name, ".bias");
    const bool residual = strstr(name, "res_connection") != NULL;
    int number = 0, block = 0;
    if (sscanf(name, "hydra_mlp.%d.%d.", &number, &block) != 2 && sscanf(name, "hydra_lm_head.%d.", &number) != 1)
        return false;
    const int stage = output ? bias ? 0 : w->head.blocks : w->head.prefix ? block / 2 : block;
    *out = (struct slice){output ? bias ? ROLE_OUTPUT_BIAS : ROLE_OUTPUT : residual ? bias ? ROLE_RESIDUAL_BIAS : ROLE_RESIDUAL
                          : bias ? ROLE_BLOCK_BIAS : ROLE_BLOCK, WEIGHT_WHOLE, number, stage, 0, 0};
    return true;
}

/* Returns the slice of the library's weights for a published tensor name; rows 0: the whole weight. */
static struct slice slice_of(const struct weights *w, const char *name)
{
    const bool eagle3 = w->head.kind == HEAD_EAGLE3;
    struct slice found;
    const char *expert = strstr(name, "experts.");
    const int e = expert ? atoi(expert + 8) : 0, inner = expert ? w->shape.expert_inner : w->shape.dense_inner;
    const enum tensor_role feed = expert ? ROLE_EXPERTS : ROLE_DENSE;
    static const struct { const char *end; enum tensor_role role; int layer; } plain[] = {
        {"fc.weight", ROLE_JOINT, -1}, {"fc.bias", ROLE_JOINT_BIAS, -1}, {"o_proj.weight", ROLE_OUT, 0},
        {"post_attention_layernorm.weight", ROLE_FFN_NORM, 0}, {"hidden_norm.weight", ROLE_HIDDEN_NORM, -1},
        {"mlp_moe.gate.weight", ROLE_ROUTER, 0}};
    int number = 0, block = 0;
    if (w->head.kind == HEAD_MEDUSA && sscanf(name, "%d.%d.", &number, &block) == 2)
        return (struct slice){ends(name, "linear.weight") ? ROLE_BLOCK : ends(name, "linear.bias") ? ROLE_BLOCK_BIAS
                              : ROLE_OUTPUT, WEIGHT_WHOLE, number, block, 0, 0};
    if (w->head.kind == HEAD_HYDRA && hydra_slice(w, name, &found))
        return found;
    if (w->head.kind == HEAD_JAKIRO_STAR && expert)
        return (struct slice){ends(name, "fc.weight") ? ROLE_BRANCH_UP : ROLE_BRANCH_DOWN, WEIGHT_WHOLE, 0, e, 0, 0};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (ends(name, plain[i].end))
            return (struct slice){plain[i].role, WEIGHT_WHOLE, plain[i].layer, 0, 0, 0};
    if (ends(name, "q_proj.weight") || ends(name, "k_proj.weight") || ends(name, "v_proj.weight"))
        return attention_of(&w->shape, strstr(name, ".q_") ? 0 : strstr(name, ".k_") ? 1 : 2);
    if (ends(name, "gate_proj.weight"))
        return (struct slice){feed, WEIGHT_GATE_UP, 0, e, 0, inner};
    if (ends(name, "up_proj.weight"))
        return (struct slice){feed, WEIGHT_GATE_UP, 0, e, inner, inner};
    if (ends(name, "down_proj.weight"))
        return (struct slice){feed, WEIGHT_DOWN, 0, e, 0, 0};
    if (ends(name, "input_layernorm.weight"))
        return (struct slice){eagle3 ? ROLE_EMBED_NORM : ROLE_ATTENTION_NORM, WEIGHT_WHOLE, eagle3 ? -1 : 0, 0, 0, 0};
    if (strcmp(name, "lm_head.weight") == 0)
        return (struct slice){ROLE_HEAD, WEIGHT_WHOLE, -1, 0, 0, 0};
    assert_true(strcmp(name, "norm.weight") == 0 || strcmp(name, "prefix_embeding_layer.norm.weight") == 0);
    return (struct slice){ROLE_FINAL_NORM, WEIGHT_WHOLE, -1, 0, 0, 0};
}

struct named { const float *data, *gradient; size_t count, width; };

static struct named part_of(struct weights *w, const char *name)
{
    const struct slice p = slice_of(w, name);
    const struct weight *weight = weights_find(w, p.role, p.part, p.layer, p.stage);
    if (!weight)
        fail_msg("no weight for %s", name);
    const size_t width = (size_t)weight->value.width, first = (size_t)p.row * width;
    return (struct named){weight->data + first, w->gradient ? w->gradient + (weight->data - w->data) + first : NULL,
                         (size_t)(p.rows ? p.rows : weight->value.rows) * width, width};
}

/* ---- gradients of the first step ---- */

static void near(double found, double wanted, double scale, double max, const char *what, const char *name)
{
    if (!(fabs(found - wanted) <= max * scale))
        fail_msg("%s of %s is %.9g, not %.9g", what, name, found, wanted);
}

static double norm_of(const float *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void check_gradient(struct weights *w, const char *name, const float *wanted, size_t count)
{
    const struct named part = part_of(w, name);
    double off = 0;
    assert_true(count <= part.count);
    for (size_t i = 0; i < count; i++)
        off += pow((double)part.gradient[i] - (double)wanted[i], 2);
    if (!(sqrt(off) <= NEAR * norm_of(wanted, count)))
        fail_msg("the gradient of %s is off by %.3g of its norm %.3g", name, sqrt(off), norm_of(wanted, count));
}

/* Writes a file of safetensors: length of the header, the header, the data. */
static void check_gradients(struct weights *w, const char *arch, const json_t *golden)
{
    struct err err = {0};
    struct text file = {0};
    const char *key;
    json_t *norms = json_object_get(golden, "gradient_norms_step0"), *one;
    uint64_t header;
    size_t found = 0;
    json_object_foreach(norms, key, one) {
        const struct named part = part_of(w, key);
        near(norm_of(part.gradient, part.count), json_number_value(one), json_number_value(one), NEAR, "gradient norm", key);
    }
    must(file_read(&file, train_golden("train/gradients-step0.safetensors"), 1 << 24, &err), &err);
    memcpy(&header, file.data, sizeof header);
    json_t *root = json_loadb(file.data + 8, (size_t)header, 0, NULL);
    json_object_foreach(root, key, one) {
        const json_t *offsets = json_object_get(one, "data_offsets");
        const size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
        const size_t end = (size_t)json_integer_value(json_array_get(offsets, 1)), prefix = strlen(arch);
        float wanted[8192];
        if (strncmp(key, arch, prefix) || key[prefix] != '.')
            continue;
        assert_true(end - begin <= sizeof wanted);
        memcpy(wanted, file.data + 8 + header + begin, end - begin);
        check_gradient(w, key + prefix + 1, wanted, (end - begin) / sizeof *wanted);
        found++;
    }
    assert_true(found == json_object_size(norms));
    json_decref(root);
    text_free(&file);
}

static void check_weights(struct weights *w, const json_t *golden, const float *before)
{
    const char *key;
    json_t *one, *all = json_object_get(golden, "weights_after");
    json_object_foreach(all, key, one) {
        const struct named part = part_of(w, key);
        const double norm = number(one, "norm"), typical = norm / sqrt((double)part.count), moved = number(one, "moved");
        const size_t at = (size_t)(part.data - w->data);
        double distance = 0;
        near(norm_of(part.data, part.count), norm, norm, NEAR, "norm", key);
        for (size_t i = 0; i < 8; i++)
            near((double)part.data[i * (part.count / 8)], json_number_value(json_array_get(json_object_get(one, "samples"), i)),
                 typical, NEAR, "a sample", key);
        for (size_t i = 0; i < part.count; i++)
            distance += pow((double)part.data[i] - (double)before[at + i], 2);
        near(sqrt(distance), moved, moved, NEAR, "way", key);
    }
}

/* ---- steps ---- */

static struct optimiser_settings settings_of(const json_t *golden)
{
    const char *schedule = json_string_value(json_object_get(golden, "schedule"));
    const json_t *clip = json_object_get(golden, "clip"), *betas = json_object_get(golden, "betas");
    return (struct optimiser_settings){
        .rate = number(golden, "lr"), .beta1 = json_number_value(json_array_get(betas, 0)),
        .beta2 = json_number_value(json_array_get(betas, 1)), .epsilon = 1e-8, .decay = number(golden, "wd"),
        .clipping = strcmp(json_string_value(json_array_get(clip, 0)), "norm") ? CLIP_ELEMENT : CLIP_NORM,
        .bound = json_number_value(json_array_get(clip, 1)),
        .schedule = strcmp(schedule, "linear") ? SCHEDULE_COSINE : SCHEDULE_LINEAR,
        .warmup = (int64_t)number(golden, "warmup"), .steps = (int64_t)number(golden, "steps")};
}

static void check_step(const json_t *log, const struct losses *losses, const struct optimiser_report *report)
{
    char step[32];
    snprintf(step, sizeof step, "step %d", (int)number(log, "step"));
    near(losses->total, number(log, "loss"), fabs(number(log, "loss")), LOSS_NEAR, "the loss", step);
    for (int i = 0; i < losses->count; i++)
        near(losses->part[i].value, number(log, losses->part[i].name), fabs(number(log, losses->part[i].name)), LOSS_NEAR,
             losses->part[i].name, step);
    near(report->norm, number(log, "grad_norm"), number(log, "grad_norm"), NEAR, "the gradient's norm", step);
    near(report->rate, number(log, "lr"), number(log, "lr"), 1e-6, "the rate", step);
    if (json_object_get(log, "clipped"))
        near((double)report->clipped, number(log, "clipped"), 1 + number(log, "clipped"), 2e-3, "what is clipped", step);
}

/* Reads all texts with all states that the heads of the goldens use. */
static const struct head_states all_points = {5, {0, 1, 2, 4, 6}};
static struct train_batch kept[TEXTS];

static void keep_text(struct train_source *source, int index)
{
    struct err err = {0};
    struct train_text text;
    assert_int_equal(source->read(source->self, index, LONGEST, &text, &err), 1);
    train_batch_clear(&kept[index], &all_points, model_hparams(rig.target)->hidden);
    must(train_batch_add(&kept[index], &text, &err), &err);
}

static int open_rig(void **state)
{
    (void)state;
    struct train_source source;
    train_rig_open(&rig, 1);
    train_texts_golden(&source, &rig, &all_points);
    assert_int_equal(source.texts, TEXTS);
    for (int i = 0; i < TEXTS; i++)
        keep_text(&source, i);
    train_source_close(&source);
    train_rig_engine(&rig, "ref");
    train_texts_golden(&source, &rig, &all_points);
    keep_text(&source, TIED_TEXT);
    train_source_close(&source);
    return device_open(&learning, &(struct device_setup){"host", 1, NULL, false}, NULL);
}

static int close_rig(void **state)
{
    (void)state;
    for (int i = 0; i < TEXTS; i++)
        train_batch_free(&kept[i]);
    device_close(&learning);
    train_rig_close(&rig);
    return 0;
}

/* Makes batches of `each` texts. */
static void read_batches(struct train_batch *batches, int each, const struct head_states *points)
{
    struct err err = {0};
    for (int i = 0; i < TEXTS; i++) {
        const struct train_batch *from = &kept[i];
        struct train_text text = {.tokens = from->rows, .token = from->token, .mask = from->mask};
        for (int p = 0; p < points->count; p++)
            for (int k = 0; k < all_points.count; k++)
                if (all_points.state[k] == points->state[p])
                    text.state[p] = from->state[k];
        if (i % each == 0)
            train_batch_clear(&batches[i / each], points, from->hidden);
        must(train_batch_add(&batches[i / each], &text, &err), &err);
    }
}

/* Returns the divisor of the step's loss, computed anew from the definition in network.h. */
static struct train_whole count_step(int first)
{
    struct train_whole whole = {.texts = BATCH};
    for (int i = first; i < first + BATCH; i++) {
        const struct train_batch *text = &kept[i];
        whole.longest = text->rows > whole.longest ? text->rows : whole.longest;
        for (int shift = 0; shift < SHIFTS_MAX; shift++)
            for (int row = 0; row + shift < text->rows; row++) {
                whole.answered[shift] += text->mask[row + shift];
                whole.judged[shift] += text->mask[row + shift] && row + shift != text->rows - 1;
            }
    }
    return whole;
}

/* Computes the gradients of a step from batches of `each` texts. */
static void make_gradients(struct network *network, struct tape *tape, struct train_batch *batches, int each, int step,
                           struct losses *sum)
{
    struct err err = {0};
    const struct train_whole whole = count_step(step % (TEXTS / BATCH) * BATCH);
    for (int part = 0; part < BATCH / each; part++) {
        struct losses losses;
        struct train_batch *batch = &batches[step % (TEXTS / BATCH) * (BATCH / each) + part];
        batch->whole = each < BATCH ? &whole : NULL;
        tape_begin(tape);
        must(network_loss(network, tape, batch, &losses, &err), &err);
        tape_backward(tape);
        if (!part)
            *sum = losses;
        else
            sum->total += losses.total;
        for (int i = 0; part && i < losses.count; i++)
            sum->part[i].value += losses.part[i].value;
    }
}

/* Compares at most `steps` of the golden's steps, each from batches of `each` texts. */
static void run_golden_by(const char *name, int steps, int each)
{
    struct err err = {0};
    char file[64];
    snprintf(file, sizeof file, "train/%s.json", name);
    json_t *golden = train_json(file);
    const char *initial = json_string_value(json_object_get(golden, "initial_weights"));
    const struct optimiser_settings settings = settings_of(golden);
    struct model *head = train_head(&rig, initial);
    struct weights *weights = NULL;
    struct network *network = NULL;
    struct tape *tape = NULL;
    struct head_states points;
    static struct train_batch batches[TEXTS];
    head_states_of(&points, model_head(head));
    read_batches(batches, each, &points);
    must(weights_make(&weights, model_head(head), model_hparams(head), &err), &err);
    weights_read(weights, head);
    float *before = malloc(weights->floats * sizeof *before);
    memcpy(before, weights->data, weights->floats * sizeof *before);
    must(weights_place(weights, learning, &err), &err);
    must(network_open(&network, weights, rig.target, NULL, &loss_defaults, LONGEST, &err), &err);
    must(tape_new(&tape, learning, &err), &err);
    for (int step = 0; step < settings.steps && step < steps; step++) {
        struct losses losses;
        struct optimiser_report report;
        make_gradients(network, tape, batches, each, step, &losses);
        if (step == 0 && strcmp(name, initial) == 0)
            check_gradients(weights, name, golden);
        must(optimiser_step(&settings, weights, step, &report, &err), &err);
        check_step(json_array_get(json_object_get(golden, "steps_log"), (size_t)step), &losses, &report);
    }
    if (steps >= settings.steps)
        check_weights(weights, golden, before);
    for (int i = 0; i < TEXTS; i++)
        train_batch_free(&batches[i]);
    tape_free(&tape);
    network_close(&network);
    weights_free(&weights);
    model_close(&head);
    json_decref(golden);
    free(before);
}

static void run_golden(const char *name, int steps) { run_golden_by(name, steps, BATCH); }

/* ---- synthetic heads, texts and states: tests/golden/train/make.py ---- */

static void draw_weights(struct weights *w, const json_t *golden)
{
    const char *key;
    json_t *one, *made = json_object_get(golden, "made");
    json_object_foreach(made, key, one) {
        const struct named part = part_of(w, key);
        for (size_t i = 0; i < part.count; i++)
            w->data[(size_t)(part.data - w->data) + i] =
                drawn((uint64_t)number(one, "number"), i, number(one, "bound"), number(one, "center"));
    }
}

static void draw_batch(struct train_batch *batch, const json_t *golden, int step)
{
    const struct head_states points = {1, {6}};
    const json_t *lengths = json_object_get(golden, "lengths");
    const int hidden = model_hparams(rig.target)->hidden, vocab = model_hparams(rig.target)->vocab;
    struct err err = {0};
    train_batch_clear(batch, &points, hidden);
    for (int k = 0; k < BATCH; k++) {
        const size_t i = (size_t)(step * BATCH + k) % json_array_size(lengths);
        const int length = (int)json_integer_value(json_array_get(lengths, i));
        int32_t token[64];
        uint8_t mask[64];
        float *f = malloc((size_t)(length * hidden) * sizeof *f);
        for (int at = 0; at < length; at++) {
            const int id = (int)((double)(drawn(900 + i, (uint64_t)at, 1, 0) + 1) / 2 * vocab);
            token[at] = id < vocab ? id : vocab - 1;
            mask[at] = at >= 3 + (int)i % 4;
        }
        for (int at = 0; at < length * hidden; at++)
            f[at] = drawn(1000 + i, (uint64_t)at, 3, 0);
        must(train_batch_add(batch, &(struct train_text){length, token, mask, {f}, NULL}, &err), &err);
        free(f);
    }
}

static void check_first_gradients(struct weights *w, const json_t *golden)
{
    const char *key;
    json_t *one, *norms = json_object_get(golden, "gradient_norms_step0"), *all = json_object_get(golden, "gradients_step0");
    json_object_foreach(norms, key, one) {
        const struct named part = part_of(w, key);
        near(norm_of(part.gradient, part.count), json_number_value(one), json_number_value(one), NEAR, "gradient norm", key);
    }
    json_object_foreach(all, key, one) {
        float wanted[16];
        for (size_t i = 0; i < 16; i++)
            wanted[i] = (float)json_number_value(json_array_get(one, i));
        check_gradient(w, key, wanted, 16);
    }
}

static void run_made_up(const char *name, const struct start_options *options)
{
    struct err err = {0};
    char file[64];
    snprintf(file, sizeof file, "train/%s.json", name);
    json_t *golden = train_json(file);
    const struct optimiser_settings settings = settings_of(golden);
    struct head_reading reading = {0};
    struct weights *weights = NULL;
    struct network *network = NULL;
    struct tape *tape = NULL;
    struct train_batch batch = {0};
    must(start_head(&reading, options, rig.target, &err), &err);
    must(weights_make(&weights, &reading.head, &reading.shape, &err), &err);
    draw_weights(weights, golden);
    float *before = malloc(weights->floats * sizeof *before);
    memcpy(before, weights->data, weights->floats * sizeof *before);
    must(weights_place(weights, learning, &err), &err);
    must(network_open(&network, weights, rig.target, NULL, &loss_defaults, LONGEST, &err), &err);
    must(tape_new(&tape, learning, &err), &err);
    for (int step = 0; step < settings.steps; step++) {
        struct losses losses;
        struct optimiser_report report;
        draw_batch(&batch, golden, step);
        tape_begin(tape);
        must(network_loss(network, tape, &batch, &losses, &err), &err);
        tape_backward(tape);
        if (step == 0)
            check_first_gradients(weights, golden);
        must(optimiser_step(&settings, weights, step, &report, &err), &err);
        check_step(json_array_get(json_object_get(golden, "steps_log"), (size_t)step), &losses, &report);
    }
    check_weights(weights, golden, before);
    train_batch_free(&batch);
    tape_free(&tape);
    network_close(&network);
    weights_free(&weights);
    head_reading_free(&reading);
    json_decref(golden);
    free(before);
}

static void jakiro_star_goes_the_same_way(void **state)
{
    struct start_options options = start_defaults;
    (void)state;
    options.kind = HEAD_JAKIRO_STAR;
    options.inner = 64;
    options.heads = 6;
    options.kv_heads = 3;
    run_made_up("jakiro_star", &options);
}

static void hydra_with_a_prefix_goes_the_same_way(void **state)
{
    struct start_options options = start_defaults;
    (void)state;
    options.kind = HEAD_HYDRA;
    options.inner = 64;
    options.heads = 6;
    options.kv_heads = 3;
    options.guesses = options.blocks = 2;
    options.prefix = true;
    run_made_up("hydra_prefix", &options);
}

/* Jakiro with other numbers of experts, and with each kind of second branch. */
static void jakiros_experts_and_branches_go_the_same_way(void **state)
{
    static const char *const names[] = {"jakiro_4_2", "jakiro_2_1", "jakiro_sum", "jakiro_next", "jakiro_none"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i += unit_brief() ? 3 : 1) {
        struct start_options options = start_defaults;
        char file[64];
        snprintf(file, sizeof file, "train/%s.json", names[i]);
        json_t *golden = train_json(file);
        options.kind = HEAD_JAKIRO;
        options.heads = 6;
        options.kv_heads = 3;
        options.experts = (int)number(golden, "experts");
        options.used = (int)number(golden, "used");
        options.ahead = (int)number(golden, "ahead");
        assert_true(head_second_by_name(json_string_value(json_object_get(golden, "second")), &options.second));
        if (options.second == HEAD_SECOND_NONE)
            options.ahead = start_defaults.ahead;
        run_made_up(names[i], &options);
        json_decref(golden);
    }
}

static int steps_here(int brief) { return getenv("MOE_LONG") ? 1000 : unit_brief() ? 2 : brief; }

static void eagle1_goes_the_same_way(void **state)
{
    (void)state;
    run_golden("eagle1", unit_brief() ? 2 : 60);
}

static void eagle1_clips_the_same(void **state)
{
    (void)state;
    run_golden("eagle1_clip", steps_here(12));
}

static void eagle3_goes_the_same_way(void **state)
{
    (void)state;
    run_golden("eagle3", steps_here(BRIEF));
}

static void jakiro_goes_the_same_way(void **state)
{
    (void)state;
    run_golden("jakiro", steps_here(BRIEF));
}

static void kangaroo_goes_the_same_way(void **state)
{
    (void)state;
    run_golden("kangaroo", steps_here(BRIEF));
}

static void medusa_goes_the_same_way(void **state)
{
    (void)state;
    run_golden("medusa", steps_here(BRIEF));
}

static void hydra_goes_the_same_way(void **state)
{
    (void)state;
    run_golden("hydra", steps_here(BRIEF));
}

/* A step in smaller batches, of one text and of two, equals the step that the other program computed in one. */
static void smaller_batches_go_the_same_way(void **state)
{
    static const char *const names[] = {"eagle1", "eagle3", "jakiro", "kangaroo", "medusa", "hydra"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i += unit_brief() ? 3 : 1)
        run_golden_by(names[i], steps_here(3), 1 + (int)i % 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eagle1_goes_the_same_way), cmocka_unit_test(eagle1_clips_the_same),
        cmocka_unit_test(eagle3_goes_the_same_way), cmocka_unit_test(jakiro_goes_the_same_way),
        cmocka_unit_test(kangaroo_goes_the_same_way), cmocka_unit_test(medusa_goes_the_same_way),
        cmocka_unit_test(hydra_goes_the_same_way), cmocka_unit_test(jakiro_star_goes_the_same_way),
        cmocka_unit_test(jakiros_experts_and_branches_go_the_same_way),
        cmocka_unit_test(hydra_with_a_prefix_goes_the_same_way), cmocka_unit_test(smaller_batches_go_the_same_way),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
