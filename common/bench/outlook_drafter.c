/* Computes the bytes that a drafter reads for one token, from its settings alone. */
#include "common/bench/outlook.h"

#include <stdlib.h>
#include <string.h>

#include "common/cli/number.h"
#include "common/cli/spec.h"
#include "common/session/session.h"

static void add(struct outlook_bytes *to, const struct outlook_bytes *from, double times)
{
    for (int f = 0; f < FORMAT_COUNT; f++)
        to->of[f] += times * from->of[f];
}

struct reading {
    struct spec *spec;
    const struct outlook_model *target;
    int context, format;
};

static int operations(double layers) { return (int)(OUTLOOK_OPERATIONS_LAYER * layers) + OUTLOOK_OPERATIONS_FORWARD; }

/* Reads "A" or "A/B/C"; the last probability also applies to all deeper levels. */
static int read_accept(struct outlook_drafter *out, struct spec *spec, struct err *err)
{
    const char *text, *at;
    int depth = 0;
    for (int i = 0; i < PLAN_DEPTHS; i++)
        out->accept[i] = OUTLOOK_ACCEPT;
    if (spec_text(spec, "accept", NULL, &text, err))
        return -1;
    for (at = text; at; depth++) {
        char *end;
        double value = strtod(at, &end);
        if (end == at || (*end && *end != '/') || !(value >= 0 && value <= 1) || depth == PLAN_DEPTHS)
            return err_set(err, ERR_INPUT, "%s: accept=%s: expected up to %d probabilities from 0 to 1, separated by slashes, "
                           "as in 0.8/0.7/0.6", spec_kind(spec), text, PLAN_DEPTHS);
        for (int i = depth; i < PLAN_DEPTHS; i++)
            out->accept[i] = value;
        at = *end ? end + 1 : NULL;
    }
    return 0;
}

static int read_lookup(struct outlook_drafter *out, const struct reading *from, struct err *err)
{
    (void)out;
    return spec_end(from->spec, err);
}

static int read_model(struct outlook_drafter *out, const struct reading *from, struct err *err)
{
    struct outlook_formats formats = {-1, -1};
    struct outlook_model draft;
    enum weight_format found;
    const char *file, *dtype;
    if (spec_text(from->spec, "file", NULL, &file, err) || spec_text(from->spec, "dtype", NULL, &dtype, err) ||
        spec_end(from->spec, err))
        return -1;
    if (!file)
        return err_set(err, ERR_INPUT, "model: no draft model is given; write model:file=FILE with a model file or a "
                       "config.json");
    if (dtype && (!format_by_name(dtype, &found) || !format_from_floats(found)))
        return err_set(err, ERR_INPUT, "model: dtype=%s: expected f32, f16, bf16, fp8, q8 or q4", dtype);
    formats.dense = dtype ? (int)found : -1;
    if (outlook_model_read(&draft, file, &formats, err))
        return -1;
    add(&out->step, &draft.dense, 1);
    add(&out->step, &draft.expert, draft.shape.router.top_k);
    out->operations = operations(draft.layers);
    /* Drafters are read before the machines: states are counted without slabs. */
    out->memory = draft.weights + (double)session_kv_bytes(&draft.shape, from->context, (enum cache_format)from->format, false);
    return 0;
}

/* Reads the settings of a drafter that is a part of the target. Parts that are left out are taken from all layers alike. */
static int read_self(struct outlook_drafter *out, const struct reading *from, struct err *err)
{
    const int all = from->target->shape.router.top_k;
    double skip, part;
    int exit, top_k;
    if (spec_int(from->spec, "exit", 0, 1, from->target->layers - 1 ? from->target->layers - 1 : 1, &exit, err) ||
        spec_int(from->spec, "topk", 0, 1, all, &top_k, err) || spec_float(from->spec, "skip", -1, 0, 1, &skip, err) ||
        spec_end(from->spec, err))
        return -1;
    skip = skip >= 0 ? skip : exit || top_k ? 0 : 0.4;
    part = (exit ? (double)exit / from->target->layers : 1) * (1 - skip);
    add(&out->step, &from->target->head, 1 - part);
    add(&out->step, &from->target->dense, part);
    add(&out->step, &from->target->expert, part * (top_k ? top_k : all));
    out->operations = operations(part * from->target->layers);
    return 0;
}

static int read_head(struct outlook_drafter *out, const struct reading *from, struct err *err)
{
    struct outlook_model head;
    const char *file, *size;
    uint64_t bytes = 0;
    if (spec_text(from->spec, "file", NULL, &file, err) || spec_text(from->spec, "bytes", NULL, &size, err) ||
        spec_end(from->spec, err))
        return -1;
    if (!file == !size)
        return err_set(err, ERR_INPUT, "head: expected head:file=FILE with a head file, or head:bytes=SIZE with the bytes "
                       "that the head reads per token, without the model's output head");
    if (size && number_size(size, 1, (uint64_t)1 << 50, &bytes, err))
        return err_at(err, "head: bytes");
    if (file && outlook_model_read_head(&head, file, err))
        return -1;
    if (file)
        add(&out->step, &head.dense, 1);
    else
        out->step.of[FORMAT_BF16] = (double)bytes;
    if (!file || !head.own_head)
        add(&out->step, &from->target->head, 1);
    out->operations = operations(1);
    out->memory = file ? head.weights : (double)bytes;
    return 0;
}

static int read_mtp(struct outlook_drafter *out, const struct reading *from, struct err *err)
{
    if (spec_end(from->spec, err))
        return -1;
    if (!from->target->shape.predictors)
        return err_set(err, ERR_INPUT, "mtp: %s", from->target->file ? "the model has no layers for multi-token prediction; "
                       "leave mtp out"
                       : "a config.json does not show whether the model has layers for multi-token prediction; give a model "
                       "file, or use head:bytes=SIZE");
    add(&out->step, &from->target->predictor, 1);
    if (!from->target->shape.predictor[0].head)
        add(&out->step, &from->target->head, 1);
    out->operations = operations(1);
    return 0;
}

int outlook_drafter_read(struct outlook_drafter *out, const char *text, const struct outlook_model *target, int context,
                         int format, struct err *err)
{
    enum { KINDS = 7 };
    static const char *const names[KINDS] = {"ngram", "pld", "suffix", "model", "self", "head", "mtp"};
    static int (*const read[KINDS])(struct outlook_drafter *, const struct reading *, struct err *) = {
        read_lookup, read_lookup, read_lookup, read_model, read_self, read_head, read_mtp};
    struct outlook_drafter made = {.text = text};
    struct spec *spec = NULL;
    int kind, rc = -1;
    if (!spec_parse(&spec, text, err) && !spec_pick(spec, "a drafter of a plan", names, KINDS, &kind, err) &&
        !read_accept(&made, spec, err))
        rc = read[kind](&made, &(struct reading){spec, target, context, format}, err);
    spec_free(&spec);
    if (!rc)
        *out = made;
    return rc ? err_at(err, "-d") : 0;
}
