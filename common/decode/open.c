/* Opens a decoder: chooses its parts by the settings, and refuses settings that exclude each other. */
#include <stdio.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/decode/budgeting.h"
#include "common/decode/divergence.h"
#include "common/decode/forecasting.h"
#include "common/decode/forced.h"
#include "common/decode/internal.h"

/* Returns the shape of drafts: --tree if given; else a chain (NULL), or the drafters' own trees if all drafters build trees
 * and nothing chooses or records lengths. */
static const char *tree_of(const struct decode_settings *settings, const struct policy_class *policy, bool whole)
{
    bool own = settings->draft.count > 0 && !whole && policy == &policy_static;
    for (int i = 0; own && i < settings->draft.count; i++) {
        const struct drafter_class *class = drafter_find(settings->draft.items[i]);
        own = class && class->own_trees;
    }
    return settings->tree || !own ? settings->tree : shape_own.name;
}

/* Opens the shape of drafts. *nodes: max nodes that a forward verifies. whole: drafts are recorded, including dropped nodes;
 * then --tree is recorded for a policy that makes its own trees. */
static int open_shape(struct shape **out, int *nodes, const struct decode_settings *settings, const struct policy_class *policy,
                      bool whole, struct err *err)
{
    const bool apart = whole && settings->tree && policy && policy->trees;
    struct shape *shape = NULL, *recorded = NULL;
    if (shape_open(&shape, apart ? NULL : tree_of(settings, policy, whole), err) ||
        (apart && shape_open(&recorded, settings->tree, err))) {
        shape_close(&shape);
        return err_at(err, "--tree");
    }
    *nodes = whole ? shape->added : shape->nodes;
    if (recorded && recorded->added > *nodes)
        *nodes = recorded->added;
    shape_close(&recorded);
    *out = shape;
    return 0;
}

int decode_rows(const struct decode_settings *settings, bool whole, int *rows, struct err *err)
{
    struct shape *shape = NULL;
    int nodes, riders = 0;
    if (open_shape(&shape, &nodes, settings, policy_find(settings->policy, settings->draft_length), whole, err))
        return -1;
    shape_close(&shape);
    for (int i = 0; i < settings->draft.count; i++) {
        const struct drafter_class *class = drafter_find(settings->draft.items[i]);
        riders += class && class->request_riders ? RIDERS_MAX : 0;
    }
    if (nodes > SHAPE_NODES_MAX)
        return err_set(err, ERR_INPUT, "--tree: this tree has up to %d tokens before it is cut, but at most %d can be "
                       "recorded; choose a smaller depth or topk", nodes, SHAPE_NODES_MAX);
    nodes = riders + (nodes < DRAFT_LENGTH_MAX ? DRAFT_LENGTH_MAX : nodes);
    *rows = nodes < ENGINE_ROWS_MAX ? 1 + nodes : ENGINE_ROWS_MAX;
    return 0;
}

int decode_rows_of_texts(int rows, int texts)
{
    return (int64_t)rows * texts < ENGINE_ROWS_MAX ? rows * texts : ENGINE_ROWS_MAX;
}

/* Returns whether some drafter writes the recorded tokens in place of those that it computes. */
static bool drafts_are_forced(const struct decode_settings *settings)
{
    bool forced = false;
    for (int i = 0; settings->force_accept && i < settings->draft.count; i++) {
        const struct drafter_class *class = drafter_find(settings->draft.items[i]);
        forced |= class && class->draws;
    }
    return forced;
}

int decode_lossless_label(const struct decode_settings *settings, const struct budget *budget,
                          const struct caching_options *caching, const char **key, struct text *why, struct err *err)
{
    const struct acceptance_setup setup = {.vocab = 1, .nodes = 1};
    struct acceptance *acceptance = NULL;
    struct split_rule split;
    if (caching_split(&split, caching, err))
        return -1;
    const bool by_budget = budget && !budget->lossless, by_split = !split_rule_is_lossless(&split);
    bool lossy = by_budget || by_split, drawn = settings->filter.temperature > 0;
    int rc = by_budget ? text_puts(why, budget->label, err) : 0;
    if (!rc && by_split)
        rc = text_printf(why, err, "%s%s split of experts", by_budget ? ", " : "", split_rule_name(&split));
    if (rc)
        return -1;
    if (acceptance_open(&acceptance, settings->accept, &setup, err))
        return err_at(err, "--accept");
    const struct acceptance_class *class = acceptance->class;
    *key = lossy || (drawn && !class->same_distribution) ? "not lossless"
         : drawn && !class->same_text ? "not the same text" : NULL;
    if (!rc && drawn && !class->same_text)
        rc = text_printf(why, err, "%s%s acceptance", lossy ? ", " : "", class->name);
    acceptance_close(&acceptance);
    if (!rc && (settings->force_routes || settings->force_accept)) {
        const char *routes = settings->force_routes, *accept = settings->force_accept;
        const char *taken = drafts_are_forced(settings) ? "text, acceptance and drafts of " : "text and acceptance of ";
        *key = "forced";
        text_clear(why);
        rc = text_printf(why, err, "%s%s%s%s%s", routes ? "routes of " : "", routes ? routes : "", routes && accept ? ", " : "",
                         accept ? taken : "", accept ? accept : "");
    }
    return rc;
}

bool decoder_copies_drafts(const struct decoder_setup *setup)
{
    const struct strings *draft = &setup->settings->draft;
    for (int i = 0; i < draft->count; i++)
        if (!strncmp(draft->items[i], "model:", 6) && !device_info(engine_config(setup->engine)->device)->host_memory)
            return true;
    return false;
}

const char *decoder_alone(const struct decoder_setup *setup)
{
    const struct engine_setup *engine = engine_config(setup->engine);
    return decoder_copies_drafts(setup)
               ? "a draft model would be copied to the device once for each text; choose another drafter"
         : engine->second
               ? "with --split a text depends on which experts are cached, and so on the other texts; leave one of the two out"
         : setup->budget && setup->budget->automatic && !setup->budget->governor.each
               ? "an automatic budget learns from text to text, and so depends on their order; give each text its own with "
                 "--budget auto:each=1" : NULL;
}

static bool ranks_by_path(const struct decoder *decoder)
{
    return decoder->setup.budget && decoder->setup.budget->plan.ranking == PLAN_PATH;
}

/* Rejects a rule that reads the recorded branches of drawn tokens if drafts would have none. */
static int check_branches(const struct decoder *decoder, struct err *err)
{
    const struct decode_settings *settings = decoder->setup.settings;
    const struct policy_class *policy = decoder->policy_class;
    if (!decoder->acceptance->class->wants_branches)
        return 0;
    if (settings->draft.count > 1)
        return err_set(err, ERR_INPUT, "--accept: %s works with one drafter only; leave the others out",
                       decoder->acceptance->class->name);
    if (decoder->shape->trims || (policy && policy->drops))
        return err_set(err, ERR_INPUT, "--accept: %s must see all tokens that were drawn, but this %s drops some of them; use "
                       "a chain or --tree static", decoder->acceptance->class->name, decoder->shape->trims ? "tree" : "policy");
    if (settings->overlap)
        return err_set(err, ERR_INPUT, "--overlap: its bound holds only for rules that preserve the model's distribution; "
                       "leave it out, or choose --accept rejection");
    return 0;
}

/* Sets how drafters pick children. If drafts drop some tokens depending on what was drawn, the remaining tokens have no
 * known distribution. */
static void choose_drafting(const struct decoder *decoder, struct drafter_setup *setup)
{
    const struct acceptance_class *rule = decoder->acceptance->class;
    const struct budget *budget = decoder->setup.budget;
    const struct decode_settings *settings = decoder->setup.settings;
    const struct policy_class *policy = decoder->policy_class;
    bool whole = !decoder->shape->trims && !(policy && policy->drops);
    setup->choice = rule == &acceptance_coupled ? DRAFT_COUPLED : rule->wants_branches ? DRAFT_BRANCHES
                  : rule->wants_proposals && whole ? DRAFT_DRAWN : DRAFT_BEST;
    setup->proposals = whole && (rule->wants_proposals || settings->overlap);
    setup->probabilities = !whole || ranks_by_path(decoder) || (policy && policy->needs_probabilities);
    setup->plan = budget && budget->drafts ? &budget->plan : NULL;
    setup->script = decoder->forced ? forced_script(decoder->forced) : NULL;
}

int decoder_open_drafters(const struct decoder *decoder, bool probabilities, struct drafters *out, struct err *err)
{
    const struct decode_settings *settings = decoder->setup.settings;
    struct drafter_setup setup = decoder->drafting;
    setup.probabilities |= probabilities;
    if (!settings->draft.count && settings->force_accept) {
        struct drafters forced = {.count = 1};
        if (forced_drafter(decoder->forced, &forced.item[0], err))
            return -1;
        *out = forced;
        return 0;
    }
    return drafters_open(out, settings->draft.items, settings->draft.count, &setup, err) ? err_at(err, "--draft") : 0;
}

/* Checks that riders, rows that drafters add for themselves, fit into a forward. Refuses options that would let these rows
 * influence the choice of experts. */
static int check_riders(struct decoder *decoder, struct err *err)
{
    const struct engine_setup *engine = engine_config(decoder->setup.engine);
    const struct budget *budget = decoder->setup.budget;
    decoder->riders = drafters_riders(&decoder->drafters);
    if (!decoder->riders)
        return 0;
    if (engine->max_logit_rows < 1 + decoder->nodes + decoder->riders ||
        engine->max_rows < 1 + decoder->nodes + decoder->riders)
        return err_set(err, ERR_INPUT, "--draft: a verification would need %d drafted tokens and %d further rows for a "
                       "drafter, but a forward has at most %d rows; choose a smaller tree", decoder->nodes, decoder->riders,
                       engine->max_logit_rows);
    if (budget && budget->verifies && budget->plan.ranking != PLAN_STATIC)
        return err_set(err, ERR_INPUT,
                       "--budget: this ranking would count the rows that a drafter adds to verifications, which belong to no "
                       "text; rank by a rank stream, or leave that drafter out");
    if (decoder->setup.settings->reconstruction)
        return err_set(err, ERR_INPUT, "--reconstruction: would measure the rows that a drafter adds to verifications, which "
                       "belong to no text; leave out this option or the drafter");
    return 0;
}

/* Describes the drafters to the policy and to streams, before the first iteration. */
static int describe_drafters(struct decoder *decoder, struct err *err)
{
    const struct strings *names = &decoder->setup.settings->draft;
    json_t *list = json_array();
    for (int i = 0; i < decoder->drafters.count; i++) {
        const struct drafter_class *class = decoder->drafters.item[i]->class;
        decoder->about[i] = (struct policy_drafter){
            .name = names->count ? names->items[i] : class->name, .reviews = class->review != NULL,
            .looks_up = class->looks_up};
        json_array_append_new(list, json_string(decoder->about[i].name));
    }
    if (decoder->drafters.count)
        decoder->named = json_text(list, JSON_COMPACT, err);
    json_decref(list);
    return decoder->drafters.count && !decoder->named ? -1 : 0;
}

static int open_drafting(struct decoder *decoder, struct err *err)
{
    const struct decode_settings *settings = decoder->setup.settings;
    const struct engine_setup *engine = engine_config(decoder->setup.engine);
    decoder->policy_class = policy_find(settings->policy, settings->draft_length);
    if (open_shape(&decoder->shape, &decoder->nodes, settings, decoder->policy_class, decoder->setup.want_drafts, err))
        return -1;
    const bool chains = decoder->shape->class == &shape_chain || decoder->shape->class == &shape_own;
    if (engine->max_logit_rows < 1 + decoder->nodes || engine->max_rows < 1 + decoder->nodes)
        return err_set(err, ERR_INPUT, "--tree: drafts have up to %d tokens, but at most %d fit into a forward; choose a "
                       "smaller tree",
                       decoder->nodes, engine->max_logit_rows - 1);
    const struct acceptance_setup accepting = {decoder->vocab, decoder->nodes, settings->filter};
    if (acceptance_open(&decoder->acceptance, settings->accept, &accepting, err))
        return err_at(err, "--accept");
    decoder->drafting = (struct drafter_setup){
        .vocab = decoder->vocab, .positions = engine_max_positions(decoder->setup.engine), .target = decoder->setup.engine,
        .filter = settings->filter};
    choose_drafting(decoder, &decoder->drafting);
    if (check_branches(decoder, err) || decoder_open_drafters(decoder, false, &decoder->drafters, err) ||
        check_riders(decoder, err) ||
        (decoder->forced && forced_check(decoder->forced, &decoder->drafters, &decoder->drafting, chains, err)) ||
        drafters_features(&decoder->drafters, &decoder->features, err) || describe_drafters(decoder, err))
        return -1;
    if (!decoder->drafters.count && decoder->drafting.plan)
        return err_set(err, ERR_INPUT, "--budget-phase: no drafter is given whose experts could be limited; add --draft "
                       "model:file=FILE");
    const struct hparams *shape = engine_hparams(decoder->setup.engine);
    const struct decoder *like = decoder->setup.like;
    const struct policy_setup policy = {
        .like = like && like->setup.settings == settings ? like->policy : NULL,
        .drafters = decoder->drafters.count, .drafter = decoder->about, .draft_length = settings->draft_length,
        .max_length = DRAFT_LENGTH_MAX, .sampled = settings->filter.temperature > 0,
        .chains = decoder->setup.want_drafts && !settings->tree, .shape = decoder->shape,
        .experts = hparams_moe_layers(shape) ? shape->router.experts : 0,
        .top_k = hparams_moe_layers(shape) ? shape->router.top_k : 0};
    return policy_open(&decoder->policy, settings->policy, &policy, err) ? err_at(err, "--policy") : 0;
}

static int measure_overlap(struct watch *watch, struct decode_iteration *iteration, struct err *err)
{
    struct overlap_watch *mine = (struct overlap_watch *)watch;
    (void)err;
    iteration->record.overlap = overlap_measure(&mine->overlap, iteration->tree, iteration->kept, mine->draws,
                                         iteration->forward->logits);
    return 0;
}

static int open_overlap(struct decoder *decoder, struct err *err)
{
    const struct sample_filter *filter = &decoder->setup.settings->filter;
    static const struct watch_class class = {.after = measure_overlap};
    decoder->overlap.watch = (struct watch){.class = &class, .reads_logits = true};
    for (int i = 0; i < decoder->drafters.count; i++)
        decoder->overlap.draws[i] = decoder->drafters.item[i]->class->draws && decoder->drafting.choice != DRAFT_BEST &&
                                    filter->temperature > 0;
    return overlap_init(&decoder->overlap.overlap, filter, decoder->vocab, decoder->shape->nodes, err);
}

/* Opens the watches that the settings request; forced routes are open already. */
static int open_watches(struct decoder *decoder, struct err *err)
{
    const struct decode_settings *settings = decoder->setup.settings;
    const struct budget *budget = decoder->setup.budget;
    struct engine *engine = decoder->setup.engine;
    struct watch *routes = decoder->forced ? forced_watch(decoder->forced) : NULL;
    if (routes)
        watches_add(&decoder->watches, routes);
    if (budget) {
        if (budgeting_open(&decoder->budgeting, budget, engine, decoder->shape->nodes, decoder->riders, err))
            return -1;
        watches_add(&decoder->watches, budgeting_watch(decoder->budgeting));
    }
    if (forecasting_open(&decoder->forecasting, decoder->setup.caching, engine, decode_gamma(settings), &decoder->notes, err))
        return -1;
    if (decoder->forecasting)
        watches_add(&decoder->watches, forecasting_watch(decoder->forecasting));
    if (settings->forecasts) {
        if (scoring_open(&decoder->scoring, engine, decode_gamma(settings), err))
            return err_at(err, "--forecasts");
        watches_add(&decoder->watches, scoring_watch(decoder->scoring));
    }
    if (settings->overlap) {
        if (open_overlap(decoder, err))
            return -1;
        watches_add(&decoder->watches, &decoder->overlap.watch);
    }
    if (settings->reference) {
        if (divergence_open(&decoder->divergence, settings->reference, engine, 1 + decoder->shape->nodes, err))
            return err_at(err, "--reference");
        watches_add(&decoder->watches, divergence_watch(decoder->divergence));
    }
    return 0;
}

static int open_parts(struct decoder *decoder, struct err *err)
{
    const struct decode_settings *settings = decoder->setup.settings;
    const struct decoder *like = decoder->setup.like;
    if (ending_check(&settings->stop, decoder->setup.tokenizer, err))
        return err_at(err, "--stop");
    bool recorded = !settings->draft.count && settings->force_accept;
    bool length = settings->draft_length > 0 || settings->draft_length == DRAFT_LENGTH_AUTO;
    if (!settings->draft.count && !recorded && (length || settings->tree || settings->policy))
        return err_set(err, ERR_INPUT, "--%s: no drafter is given; add one, such as --draft ngram",
                       settings->tree ? "tree" : length ? "draft-length" : "policy");
    if ((settings->force_routes || settings->force_accept) &&
        forced_open(&decoder->forced, settings->force_routes, settings->force_accept, recorded,
                    engine_hparams(decoder->setup.engine), like ? like->forced : NULL, err))
        return err_at(err, "--force-%s", settings->force_routes ? "routes" : "accept");
    if (open_drafting(decoder, err) ||
        sampler_open(&decoder->sampler, &settings->filter, settings->seed, decoder->vocab, err) ||
        draft_tree_init(&decoder->tree, decoder->shape->room, err))
        return -1;
    if (settings->force_accept && settings->accept)
        return err_set(err, ERR_INPUT, "--accept: has no effect on forced text; leave one of the two out");
    if (decoder->setup.budget && engine_hparams(decoder->setup.engine)->router.zero_experts)
        return err_set(err, ERR_INPUT, "--budget: not supported for models with zero experts; leave the option out");
    if (decoder->forced && decoder->setup.budget)
        return err_set(err, ERR_INPUT, "--budget: has no effect on forced routes or text; leave one of the two out");
    if (settings->reconstruction && (!decoder->setup.budget || !decoder->setup.budget->verifies))
        return err_set(err, ERR_INPUT, "--reconstruction: measures the error of a budget, and none is given; add --budget B");
    if (open_watches(decoder, err))
        return -1;
    decoder->leaf = mem_alloc((size_t)decoder->shape->room + 1, sizeof *decoder->leaf, err);
    return decoder->leaf ? 0 : -1;
}

/* Returns whether the device can choose tokens for the host's loop: no watch reads logits. Iterations with riders still have
 * logits. */
static bool may_choose(const struct decoder *decoder)
{
    const struct decoder_setup *setup = &decoder->setup;
    bool chooses = setup->on_device && engine_chooses(setup->engine) && decoder->acceptance->class->follow &&
                   !setup->settings->force_accept;
    for (int i = 0; i < decoder->watches.count; i++)
        chooses &= !decoder->watches.item[i]->reads_logits;
    return chooses;
}

int decoder_open(struct decoder **out, const struct decoder_setup *setup, struct err *err)
{
    const struct hparams *shape = engine_hparams(setup->engine);
    struct decoder *decoder = mem_alloc(1, sizeof *decoder, err);
    if (!decoder)
        return -1;
    decoder->setup = *setup;
    decoder->vocab = shape->vocab;
    decoder->ending.tokenizer = setup->tokenizer;
    decoder->ending.stop = &setup->settings->stop;
    decoder->ending.eos = shape->eos;
    decoder->ending.eos_count = setup->settings->ignore_eos ? 0 : shape->eos_count;
    if (open_parts(decoder, err)) {
        decoder_close(&decoder);
        return -1;
    }
    decoder->chooses = may_choose(decoder);
    if (setup->on_device && !setup->shares_forwards && device_info(engine_config(setup->engine)->device)->loops) {
        char why[sizeof decoder->loop_device - sizeof "host: "];
        decoder->by_device = !decoder_obstacle(decoder, why, sizeof why);
        snprintf(decoder->loop_device, sizeof decoder->loop_device, decoder->by_device ? "device" : "host: %s", why);
    }
    *out = decoder;
    return 0;
}

void decoder_close(struct decoder **decoder)
{
    struct decoder *d = *decoder;
    if (!d)
        return;
    sequence_close(&d->sequence);
    sampler_close(&d->sampler);
    drafters_close(&d->drafters);
    policy_close(&d->policy);
    shape_close(&d->shape);
    acceptance_close(&d->acceptance);
    overlap_free(&d->overlap.overlap);
    divergence_close(&d->divergence);
    forecasting_close(&d->forecasting);
    scoring_close(&d->scoring);
    text_free(&d->notes);
    budgeting_close(&d->budgeting);
    forced_close(&d->forced);
    draft_tree_free(&d->tree);
    mem_free(&d->leaf);
    mem_free(&d->kept_expert);
    ending_free(&d->ending);
    mem_free(&d->text);
    mem_free(&d->named);
    mem_free(decoder);
}
