#include "cmd/bench-simulate.h"

#include <math.h>

#include "cmd/bench-judge.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/bench/simulate.h"
#include "common/bench/simulate_figure.h"
#include "common/bench/simulated_cache.h"

/* The forecasts of predict/forecast.h that need routes only. */
static const char *const sources[] = {"none", "popular", "last", "table", "utility", NULL};

const struct opt simulate_options[] = {
    OPT_INPUT(0, "machine", struct simulate_args, machine, "simulate the machine and the model described in FILE"),
    OPT_STRINGS(0, "system", struct simulate_args, systems, "NAME[:key=value,...]",
                "simulate this system; may be given several times; all systems if not given"),
    OPT_CHOICE(0, "prefetch", struct simulate_args, prefetch, sources,
               "prefetch the experts that this forecast names; for a link that transfers several experts at once"),
    OPT_STRINGS(0, "cache-policy", struct simulate_args, policies, "NAME[:key=value,...]",
                "simulate only the cache, and report this policy's hit rate; may be given several times"),
    OPT_FLAG(0, "iterations", struct simulate_args, iterations, "write a JSON line for each forward, with --cache-policy"),
    OPT_CHOICE(0, "skew", struct simulate_args, skew, synthesis_skews, "synthetic routes: distribute requests over experts in "
               "this way"),
    OPT_COUNT(0, "texts", struct simulate_args, texts, 1, 1 << 16, "synthetic routes: make N texts"),
    OPT_COUNT('n', "tokens", struct simulate_args, tokens, 1, 1 << 20, "synthetic routes: make N tokens per text"),
    OPT_COUNT('K', "draft-length", struct simulate_args, draft_length, 0, 63,
              "synthetic routes: draft N tokens per iteration; the number in the machine's file if not given"),
    OPT_FLOAT(0, "cached", struct simulate_args, cached, 0, 1, "SHARE",
              "keep this share of the experts in fast memory; the share in the machine's file if not given"),
    OPT_FLOAT(0, "host-cached", struct simulate_args, host_cached, 0, 1, "SHARE",
              "--cache-policy: keep this share of the experts in a second tier, the host's memory"),
    OPT_INPUT(0, "split", struct simulate_args, split,
              "--cache-policy: divide experts between device and host by the thresholds recorded in FILE"),
    OPT_SEED(struct simulate_args, seed),
    OPT_OUTPUT(0, "keep-routes", struct simulate_args, keep, "write the routes to FILE, for moe-coact"),
    OPT_FLAG(0, "forecasts", struct simulate_args, forecasts,
             "report how well each forecast names the experts that the next forward requests"),
    OPT_CHOICE(0, "figure", struct simulate_args, figure, simulated_figures,
               "write this figure of MoE-SpAc instead of the table of systems"),
    OPT_FLAG(0, "svg", struct simulate_args, svg, "write the figure as SVG"),
    OPT_FLAG(0, "markdown", struct simulate_args, markdown, "write the table as Markdown"),
    OPT_FLAG(0, "json", struct simulate_args, json, "write JSON lines with all figures"),
    OPT_OUTPUT('o', "output", struct simulate_args, output, "write to FILE, not standard output"),
    OPT_FLAG(0, "force", struct simulate_args, force, "combine routes of models with another tokenizer or vocabulary"),
    OPT_END };

const struct opt_rule simulate_rules[] = {
    {OPT_EXCLUSIVE, "json|markdown|svg", NULL, NULL}, {OPT_NEEDS, "svg", "figure", "applies to figures"},
    {OPT_EXCLUDES, "figure", "system|prefetch|forecasts|cache-policy|iterations", "a figure has its own systems"},
    {OPT_NEEDS, "prefetch", "system", "applies to named systems"},
    {OPT_EXCLUDES, "forecasts", "system", "forecasts need no system"},
    {OPT_NEEDS, "iterations|host-cached|split", "cache-policy", "applies to cache policies"},
    {OPT_NEEDS, "iterations", "json", "its output is JSON lines"},
    {OPT_EXCLUDES, "cache-policy", "system|forecasts", "compares cache policies only"},
    {OPT_NEEDS, "split", "host-cached", "the host computes the experts in its memory"}, OPT_RULES_END};

const struct operand simulate_operands[] = { OPERAND_ANY("STREAM", struct simulate_args, inputs), OPERAND_END };

const struct simulate_args simulate_defaults = { .output = "-", .texts = 4, .tokens = 512, .draft_length = -1, .cached = -1,
                                                 .host_cached = -1, .seed = 1 };

/* Refuses options for synthetic routes if routes are recorded, because they would have no effect. */
static int check_made(const struct simulate_args *args, struct err *err)
{
    const struct { const char *name; bool given; } made[] = {
        {"--skew", args->skew != simulate_defaults.skew}, {"--texts", args->texts != simulate_defaults.texts},
        {"--tokens", args->tokens != simulate_defaults.tokens}};
    for (size_t i = 0; args->inputs.count && i < sizeof made / sizeof *made; i++)
        if (made[i].given)
            return err_set(err, ERR_INPUT, "%s: applies to synthetic routes only, and %s has recorded routes; leave one of "
                           "the two out", made[i].name,
                           args->inputs.items[0]);
    return 0;
}

static struct simulated_texts texts_of(const struct simulate_args *args, const struct simulated_machine *machine)
{
    return (struct simulated_texts){
        .shape = {machine->layers, machine->experts, machine->top_k, (enum synthesis_skew)args->skew, args->seed},
        .texts = args->texts, .tokens = args->tokens, .draft_length = machine->draft_length,
        .acceptance = machine->acceptance};
}

static int get_routes(struct simulated_routes *out, const struct simulate_args *args, const struct simulated_machine *machine,
                      const struct console *console, struct err *err)
{
    struct text note = {0};
    if (args->inputs.count) {
        int rc = simulated_routes_read(out, &args->inputs, args->policies.count, args->force, &note, err);
        if (!rc && note.length)
            console_note(console, "%s", note.data);
        text_free(&note);
        return rc;
    }
    const struct simulated_texts texts = texts_of(args, machine);
    return simulated_routes_make(out, &texts, err);
}

/* Simulates the requested systems; without a request, all systems that the machine can run. */
static int simulate_all(struct text *body, const struct simulation *simulation, const struct simulate_args *args,
                        struct err *err)
{
    const char *all[64];
    int count = 0;
    for (const struct simulated_system *system = simulated_systems; !args->systems.count && system->name; system++)
        if (!simulate_possible(simulation, system->name, err))
            all[count++] = system->name;
    if (!args->systems.count && !count)
        return -1;                      /* the error of the last attempt */
    err_clear(err);
    struct simulated_table table = {0};
    int rc = simulate_compare(&table, simulation, args->systems.count ? args->systems.items : all,
                              args->systems.count ? args->systems.count : count, err);
    if (!rc)
        rc = args->json ? simulate_json(body, simulation, &table, err)
                        : simulate_text(body, simulation, &table, args->markdown, err);
    simulated_table_free(&table);
    return rc;
}

static int make_figure(struct text *body, const struct simulation *simulation, const struct simulate_args *args,
                       struct err *err)
{
    const struct simulated_texts texts = texts_of(args, simulation->machine);
    const enum simulated_form form = args->json ? SIMULATED_JSON : args->svg ? SIMULATED_SVG
                                   : args->markdown ? SIMULATED_MARKDOWN : SIMULATED_TEXT;
    return simulate_figure(body, simulation, args->inputs.count ? NULL : &texts, (enum simulated_figure)args->figure, form,
                           err);
}

/* Refuses a cache that has no room for one token's experts of a layer. */
static int check_slots(const char *option, double share, int slots, const struct simulated_routes *routes, struct err *err)
{
    const int all = routes->layers * routes->experts;
    return slots >= routes->top_k ? 0
         : err_set(err, ERR_INPUT, "%s %g: fast memory would hold %d of %d experts, but one token uses %d; give at least %.3g",
                   option, share, slots, all, routes->top_k, ceil(1000.0 * routes->top_k / all) / 1000);
}

/* Simulates cache policies only, which requires only the cached share of the machine. */
static int cache_alone(const struct simulate_args *args, const struct console *console, struct err *err)
{
    struct simulated_machine machine = {.cached = args->cached}, host = {.cached = args->host_cached};
    struct simulated_routes routes = {0};
    struct text body = {0};
    int32_t *tau = NULL;
    size_t verifications = 0;
    int slots, host_slots = 0, rc = -1;
    if (!args->inputs.count)
        return err_set(err, ERR_INPUT, "--cache-policy: no routes to simulate; name route streams made by moe-profile");
    if (args->cached < 0 && !args->machine)
        return err_set(err, ERR_INPUT, "--cache-policy: the size of the cache is missing; add --cached SHARE");
    if ((args->machine && simulated_machine_read(&machine, args->machine, err)) ||
        get_routes(&routes, args, &machine, console, err))
        return -1;
    machine.cached = args->cached >= 0 ? args->cached : machine.cached;
    if (args->host_cached >= 0)
        host_slots = simulated_machine_slots(&host, routes.layers, routes.experts);
    slots = simulated_machine_slots(&machine, routes.layers, routes.experts);
    if (check_slots("--cached", machine.cached, slots, &routes, err) ||
        (args->host_cached >= 0 && check_slots("--host-cached", args->host_cached, host_slots, &routes, err)))
        goto done;
    if (args->split && simulated_thresholds_read(&tau, &verifications, args->split, &routes, err))
        goto done;
    const struct simulated_caching caching = {
        .tau = tau, .verifications = verifications, .routes = &routes,
        .slots = slots,
        .draft_length = args->draft_length >= 0 ? args->draft_length : 8,
        .host_slots = host_slots};
    if (!simulate_caches(&body, &caching, args->policies.items, args->policies.count, args->json, args->iterations,
                         args->markdown, err))
        rc = output_whole(args->output, &body, err);
done:
    text_free(&body);
    mem_free(&tau);
    simulated_routes_free(&routes);
    return rc;
}

int bench_simulate(const void *arguments, const struct console *console, struct err *err)
{
    const struct simulate_args *args = arguments;
    struct simulated_machine machine;
    struct simulated_routes drafted = {0}, undrafted = {0};
    struct text body = {0};
    int rc = -1;
    if (args->policies.count)
        return check_made(args, err) ? -1 : cache_alone(args, console, err);
    if (!args->machine)
        return err_set(err, ERR_INPUT, "no machine is given; name a file that describes one with --machine FILE");
    if (check_made(args, err))
        return -1;
    if (simulated_machine_read(&machine, args->machine, err))
        return -1;
    if (args->draft_length >= 0)
        machine.draft_length = args->draft_length;
    if (args->cached >= 0)
        machine.cached = args->cached;
    if (get_routes(&drafted, args, &machine, console, err) || simulated_routes_undrafted(&undrafted, &drafted, err) ||
        (args->keep && simulated_routes_write(&drafted, args->keep, console->argc, console->argv, err)))
        goto done;
    const struct simulation simulation = { .machine = &machine, .drafted = &drafted, .undrafted = &undrafted,
                                           .seed = args->seed,
                                           .prefetch = args->prefetch ? sources[args->prefetch] : NULL };
    if (!(args->figure ? make_figure(&body, &simulation, args, err)
          : args->forecasts ? simulate_forecasts(&body, &simulation, args->json, args->markdown, err)
                            : simulate_all(&body, &simulation, args, err)))
        rc = output_whole(args->output, &body, err);
done:
    text_free(&body);
    simulated_routes_free(&drafted);
    simulated_routes_free(&undrafted);
    return rc;
}
