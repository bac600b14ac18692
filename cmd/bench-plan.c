#include "cmd/bench-plan.h"

#include <stdio.h>
#include <string.h>

#include "cmd/bench-judge.h"
#include "common/arch/arch.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/memory_left.h"
#include "common/bench/machine.h"
#include "common/bench/outlook.h"
#include "common/session/session.h"

static const char *const formats[] = {"f32", "f16", "bf16", "fp8", "q8", "q4", NULL};

const struct opt plan_options[] = {
    OPT_GROUP("Options of plan"),
    OPT_STRING_OF('m', "model", struct plan_args, model, "FILE.moe|CONFIG.json|NAME", known_shape_at,
                  "plan for this model: a model file, a config.json or a known shape"),
    OPT_STRINGS(0, "machine", struct plan_args, machines, "FILE|here",
                "plan for the machine described in FILE; may be given several times; if not given, for this machine, which is "
                "then measured"),
    OPT_CHOICE(0, "dtype", struct plan_args, dtype, formats, "config.json: assume matrices in this format"),
    OPT_CHOICE(0, "expert-dtype", struct plan_args, expert_dtype, formats, "config.json: assume routed experts in this format"),
    OPT_STRINGS('d', "draft", struct plan_args, drafters, "KIND[:accept=P,...]",
                "also plan decoding with this drafter; may be given several times"),
    OPT_COUNT('K', "draft-length", struct plan_args, length, 1, OUTLOOK_LENGTH_MAX,
              "draft N tokens per iteration; the fastest number if not given"),
    OPT_COUNT('c', "context", struct plan_args, context, 2, 1 << 24, "limit prompt and answer together to N tokens"),
    OPT_CHOICE(0, "kv-dtype", struct plan_args, kv_format, session_cache_words, "store keys and values in this format"),
    OPT_COUNT(0, "prefix", struct plan_args, prefix, 0, 1 << 24, "after N tokens"),
    OPT_STRING(0, "cache-experts", struct plan_args, cache, "SIZE|N%|auto", "keep this many routed experts in memory"),
    OPT_FLOAT(0, "hits", struct plan_args, hits, 0, 1, "SHARE",
              "assume this hit rate of the expert cache; the rate for uniformly requested experts if not given"),
    OPT_COUNT(0, "parallel", struct plan_args, texts, 1, 1024, "decode N texts at once"),
    OPT_COUNT(0, "ranks", struct plan_args, ranks, 1, 1024, "distribute the experts over N machines of this kind"),
    OPT_FLOAT(0, "latency", struct plan_args, latency, 0, 1e6, "US", "latency of the network between processes, in "
              "microseconds"),
    OPT_FLOAT(0, "bandwidth", struct plan_args, bandwidth, 1, 1e15, "BYTES", "bandwidth of the network between processes, in "
              "bytes/s"),
    OPT_THREADS(struct plan_args, threads),
    OPT_ISA(struct plan_args, isa),
    OPT_FLOAT(0, "seconds", struct plan_args, seconds, 0, 60, "S", "measure this machine for S seconds per weight format"),
    OPT_SIZE(0, "size", struct plan_args, size, 1 << 20, (double)((uint64_t)1 << 40),
             "measure this machine by reading SIZE bytes, and by matrix products with experts of SIZE/4 bytes in all"),
    OPT_GROUP("Other options"),
    OPT_FLAG(0, "json", struct plan_args, json, "write JSON lines with all figures"),
    OPT_OUTPUT('o', "output", struct plan_args, output, "write to FILE, not standard output"),
    OPT_END };

const struct opt_rule plan_rules[] = {{OPT_NEEDS, "draft-length", "draft", "no drafts are planned"}, OPT_RULES_END};

enum { NOT_GIVEN = -1 };
enum { DISK_FILE_MIN = 64 << 20 };      /* weights of the model files whose disk is measured */

const struct plan_args plan_defaults = { .dtype = NOT_GIVEN, .expert_dtype = NOT_GIVEN, .length = NOT_GIVEN, .prefix = 64,
                                         .hits = NOT_GIVEN, .texts = 1, .ranks = 1, .latency = NOT_GIVEN,
                                         .bandwidth = NOT_GIVEN, .seconds = 0.3, .size = ROOFLINE_BYTES, .output = "-" };

/* Measures this machine, with the formats of the model and of the drafters. */
static int measure(struct speeds *out, const struct plan_args *args, const struct outlook_setup *setup, struct err *err)
{
    struct speeds_setup what = {.threads = args->threads, .isa = args->isa, .seconds = args->seconds,
                                .bytes = (size_t)args->size, .hidden = setup->model->shape.hidden,
                                .inner = setup->model->shape.expert_inner};
    struct outlook_place place;
    struct machine machine;
    const int64_t left = memory_left("");
    double memory;
    if (machine_find(&machine, "", err))
        return -1;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        what.format[f] = outlook_multiplies(&setup->model->dense, f) || outlook_multiplies(&setup->model->expert, f);
        for (int d = 0; d < setup->drafters; d++)
            what.format[f] |= outlook_multiplies(&setup->drafter[d].step, f);
    }
    out->memory = memory = (double)(left >= 0 ? left : machine.memory);
    if (outlook_place(&place, setup, args->texts, args->ranks, err))
        return -1;
    if (place.disk > 0 && setup->model->file && setup->model->weights > (double)DISK_FILE_MIN)
        what.disk = args->model;
    if (speeds_measure(out, &what, err))
        return -1;
    out->memory = memory;
    snprintf(out->name, sizeof out->name, "this one, %s, measured", *machine.cpu ? machine.cpu : "unknown processor");
    return 0;
}

/* Sets a default network if the machine's description contains none, as that of this machine; options override it. */
static void set_network(struct speeds *speeds, const struct plan_args *args)
{
    if (!(speeds->network.bytes_per_second > 0))
        speeds->network = (struct transfer_speed){12.5e9, 10e-6};
    if (args->latency >= 0)
        speeds->network.latency_s = 1e-6 * args->latency;
    if (args->bandwidth > 0)
        speeds->network.bytes_per_second = args->bandwidth;
}

static int plan_for(struct text *body, const char *name, const struct plan_args *args, struct outlook_setup *setup,
                    struct err *err)
{
    struct speeds speeds = {.memory = 0};
    struct outlook *outlook = mem_alloc(1, sizeof *outlook, err);
    int rc = -1;
    setup->speeds = &speeds;
    if (outlook && !(strcmp(name, "here") ? speeds_read(&speeds, name, err) : measure(&speeds, args, setup, err))) {
        set_network(&speeds, args);
        rc = outlook_make(outlook, setup, err) || (!args->json && body->length && text_putc(body, '\n', err)) ||
             (args->json ? outlook_json : outlook_text)(body, outlook, setup, err) ? -1 : 0;
    }
    mem_free(&outlook);
    return rc;
}

static int read_model(struct outlook_model *out, const struct plan_args *args, struct err *err)
{
    const struct outlook_formats stored = {args->dtype, args->expert_dtype};
    if (!args->model)
        return err_set(err, ERR_INPUT, "no model is given; name a model file, a config.json or a shape of `moe-convert list` "
                       "with -m");
    if (outlook_model_read(out, args->model, &stored, err))
        return -1;
    return out->moe_layers ? 0 : err_set(err, ERR_INPUT, "%s: is a dense model, and a plan needs routed experts; give a "
                                         "Mixture-of-Experts model with -m, or plan this one as its draft model: -d "
                                         "model:file=%s", args->model,
                                         args->model);
}

/* Refuses options of the measurement if no measured machine is used, because they would have no effect. */
static int check_measured(const struct plan_args *args, struct err *err)
{
    const char *given = args->threads ? "threads" : args->isa ? "isa" : args->seconds != plan_defaults.seconds ? "seconds"
                      : args->size != plan_defaults.size ? "size" : NULL;
    for (int i = 0; i < args->machines.count && given; i++)
        given = strcmp(args->machines.items[i], "here") ? given : NULL;
    return args->machines.count && given ? err_set(err, ERR_INPUT, "--%s: applies to measuring this machine, but the plan is "
                                                   "for other machines; leave it out, or add --machine here", given) : 0;
}

int bench_plan(const void *arguments, const struct console *console, struct err *err)
{
    static const char *here = "here";
    const struct plan_args *args = arguments;
    const struct strings machines = args->machines.count ? args->machines : (struct strings){&here, 1};
    struct outlook_drafter drafter[PLAN_DRAFTERS_MAX];
    struct outlook_model model;
    struct text body = {0};
    int rc = -1;
    (void)console;
    struct outlook_setup setup = {
        .model = &model, .drafter = drafter, .drafters = args->drafters.count, .context = args->context, .prefix = args->prefix,
        .kv_format = args->kv_format, .cache = args->cache, .hits = args->hits, .texts = args->texts, .ranks = args->ranks,
        .length = args->length};
    if (check_measured(args, err) || read_model(&model, args, err))
        goto done;
    if (args->drafters.count > PLAN_DRAFTERS_MAX) {
        err_set(err, ERR_INPUT, "-d: %d drafters are given; a plan compares at most %d, so leave some out",
                args->drafters.count, PLAN_DRAFTERS_MAX);
        goto done;
    }
    for (int d = 0; d < args->drafters.count; d++)
        if (outlook_drafter_read(&drafter[d], args->drafters.items[d], &model, args->context, args->kv_format, err))
            goto done;
    for (int i = 0; i < machines.count; i++)
        if (plan_for(&body, machines.items[i], args, &setup, err))
            goto done;
    rc = output_whole(args->output, &body, err);
done:
    text_free(&body);
    return rc;
}
