#include "common/stream/coact.h"

static const struct field coverage_fields[] = {
    FIELD(coact_coverage, layer, false, "layer among those with a router, from 0"),
    FIELD(coact_coverage, method, false, "method that ordered the experts: frequency, mass, ..."),
    FIELD(coact_coverage, tokens, false, "tokens that were counted"),
    FIELD(coact_coverage, points, false, "budgets that were tried"),
    FIELD_ARRAY_OF(coact_coverage, budget, "[points]", false, "experts kept, ascending"),
    FIELD_ARRAY_OF(coact_coverage, mass, "[points]", false, "share of the routing mass that belongs to the kept experts"),
    FIELD_ARRAY_OF(coact_coverage, served, "[points]", false, "share of tokens whose selected experts are all kept"),
};

static int check_layer(int layer, const struct header *header, struct err *err)
{
    if (header->has_model && layer >= header->model.moe_layers)
        return err_set(err, ERR_INPUT, "layer %d does not exist, the model has %d; the stream is damaged", layer,
                       header->model.moe_layers);
    return 0;
}

static int check_coverage(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct coact_coverage *coverage = body;
    (void)open;
    if (check_layer(coverage->layer, header, err))
        return -1;
    for (int i = 0; i < coverage->points; i++) {
        if (coverage->budget[i] < 0 || (i && coverage->budget[i] <= coverage->budget[i - 1]))
            return err_set(err, ERR_INPUT, "budgets must ascend, but do not at point %d; the stream is damaged", i);
        if (!(coverage->mass[i] >= 0 && coverage->mass[i] <= 1.000001) ||
            !(coverage->served[i] >= 0 && coverage->served[i] <= 1.000001))
            return err_set(err, ERR_INPUT, "a share at point %d is not from 0 to 1; the stream is damaged", i);
    }
    return 0;
}

const struct record_kind coact_coverage_kind = {
    RECORD_KIND("coverage", "what budgets keep of one layer's routing", coact_coverage, coverage_fields, check_coverage),
    .spread = true
};

static const struct field union_fields[] = {
    FIELD(coact_union, layer, false, "layer among those with a router, from 0"),
    FIELD(coact_union, trees, true, "sizes are numbers of nodes of verified drafts, rejected nodes included; otherwise "
          "numbers of consecutive tokens"),
    FIELD(coact_union, tokens, false, "tokens that were counted"),
    FIELD(coact_union, points, false, "widths that were measured"),
    FIELD_ARRAY_OF(coact_union, width, "[points]", false, "consecutive tokens of a text, or nodes of a draft, ascending"),
    FIELD_ARRAY_OF(coact_union, windows, "[points]", false, "number of sequences of that many tokens, or of drafts"),
    FIELD_ARRAY_OF(coact_union, distinct, "[points]", false, "mean number of distinct experts of such a sequence or draft; "
                   "NaN: there was none"),
    FIELD_ARRAY_OF(coact_union, independent, "[points]", false, "the same if tokens chose independently, with the measured "
                   "frequency of each expert; NaN: unknown"),
    FIELD_ARRAY_OF(coact_union, alike, "[points]", false, "the same if tokens chose independently, with equal probability for "
                   "all experts"),
};

static const struct field matrix_fields[] = {
    FIELD(coact_matrix, layer, false, "layer among those with a router, from 0"),
    FIELD(coact_matrix, tokens, false, "tokens that were counted"),
    FIELD(coact_matrix, points, false, "pairs: experts times experts, by rows, both in the order of a clustering"),
    FIELD_ARRAY_OF(coact_matrix, first, "[points]", false, "one expert of the pair"),
    FIELD_ARRAY_OF(coact_matrix, second, "[points]", false, "the other expert"),
    FIELD_ARRAY_OF(coact_matrix, count, "[points]", false, "tokens that selected both experts; if first equals second, tokens "
                   "that selected this expert"),
    FIELD_ARRAY_OF(coact_matrix, lift, "[points]", false, "count divided by its expected value if the two experts were "
                   "selected independently; NaN: one of them was never selected"),
};

static const struct field stats_fields[] = {
    FIELD(coact_stats, layer, false, "layer among those with a router, from 0"),
    FIELD(coact_stats, tokens, false, "tokens that were counted"),
    FIELD(coact_stats, used, false, "experts that were selected at all"),
    FIELD(coact_stats, half, false, "fewest experts that make up half of the selections"),
    FIELD(coact_stats, effective, false, "effective number of experts: the exponential of the entropy of selections"),
    FIELD(coact_stats, dropped, false, "share of selections that a budget dropped"),
    FIELD(coact_stats, busiest, false, "expert that most tokens selected"),
    FIELD(coact_stats, busiest_share, false, "share of tokens that selected it"),
    FIELD(coact_stats, pair_first, false, "one expert of the most frequent pair"),
    FIELD(coact_stats, pair_second, false, "the other expert"),
    FIELD(coact_stats, pair_tokens, false, "tokens that selected both"),
    FIELD(coact_stats, pair_expected, false, "tokens per pair if all pairs were equally likely"),
    FIELD(coact_stats, concentration, true, "pair_tokens divided by pair_expected; absent: tokens select one expert only"),
};

static const struct field locality_fields[] = {
    FIELD(coact_locality, layer, false, "layer among those with a router, from 0"),
    FIELD(coact_locality, tokens, false, "tokens that were counted"),
    FIELD(coact_locality, independent, false, "common share if tokens chose independently, with the measured frequency of "
          "each expert"),
    FIELD(coact_locality, alike, false, "common share if tokens chose independently, with equal probability for all experts"),
    FIELD(coact_locality, points, false, "distances that were measured"),
    FIELD_ARRAY_OF(coact_locality, distance, "[points]", false, "distance between two tokens of a text, ascending"),
    FIELD_ARRAY_OF(coact_locality, pairs, "[points]", false, "pairs of tokens with this distance"),
    FIELD_ARRAY_OF(coact_locality, common, "[points]", false, "share of a token's experts that both selected; NaN: no pair"),
};

static const struct field reuse_fields[] = {
    FIELD(coact_reuse, layer, false, "layer among those with a router, from 0"),
    FIELD(coact_reuse, tokens, false, "tokens that were counted"),
    FIELD(coact_reuse, acceptance, false, "given acceptance probability of a drafted token"),
    FIELD(coact_reuse, draft_cost, false, "given time of drafting a token, divided by the time of a forward over one token"),
    FIELD(coact_reuse, points, false, "draft lengths that were tried"),
    FIELD_ARRAY_OF(coact_reuse, drafts, "[points]", false, "draft length, ascending"),
    FIELD_ARRAY_OF(coact_reuse, distinct, "[points]", false, "distinct experts of that many tokens; NaN: no text was that "
                   "long"),
    FIELD_ARRAY_OF(coact_reuse, ratio, "[points]", false, "distinct divided by the experts of one token: a / b of MoE-SpAc"),
    FIELD_ARRAY_OF(coact_reuse, verified, "[points]", false, "the same ratio for one more token, as in a verification"),
    FIELD_ARRAY_OF(coact_reuse, emitted, "[points]", false, "expected tokens per iteration, equation 1"),
    FIELD_ARRAY_OF(coact_reuse, gain, "[points]", false, "time per token without drafts divided by the time with drafts, "
                   "equation 15"),
    FIELD_ARRAY_OF(coact_reuse, gain_verified, "[points]", false, "the same, with the experts of one more token"),
};

static const struct field signal_fields[] = {
    FIELD(coact_signal, layer, false, "layer among those with a router, from 0"),
    FIELD(coact_signal, tokens, false, "tokens that were counted"),
    FIELD(coact_signal, points, false, "widths that were tried"),
    FIELD_ARRAY_OF(coact_signal, width, "[points]", false, "tokens of a window, ascending"),
    FIELD_ARRAY_OF(coact_signal, windows, "[points]", false, "windows, one after the other"),
    FIELD_ARRAY_OF(coact_signal, entropy, "[points]", false, "entropy in bits of an expert's frequency (tokens of the window "
                   "that use it), mean over experts; NaN: no text was that long"),
    FIELD_ARRAY_OF(coact_signal, entropy_binomial, "[points]", false, "the same if tokens chose independently"),
    FIELD_ARRAY_OF(coact_signal, snr, "[points]", false, "mean frequency divided by its standard deviation, mean over the "
                   "experts whose frequency varies"),
    FIELD_ARRAY_OF(coact_signal, snr_binomial, "[points]", false, "the same if tokens chose independently"),
    FIELD_ARRAY_OF(coact_signal, correlation, "[points]", false, "correlation of frequencies with those of the next window; "
                   "NaN: undefined"),
    FIELD_ARRAY_OF(coact_signal, change, "[points]", false, "sum of absolute differences between the frequencies of both "
                   "windows, divided by the sum of frequencies: from 0 to 2"),
    FIELD_ARRAY_OF(coact_signal, threshold, "[points]", false, "frequency from which an expert is hot"),
    FIELD_ARRAY_OF(coact_signal, margin, "[points]", false, "mean distance of frequencies from the threshold"),
    FIELD_ARRAY_OF(coact_signal, wrong, "[points]", false, "share of experts whose frequency differs from that in the "
                   "previous window"),
    FIELD_ARRAY_OF(coact_signal, within, "[points]", false, "share of experts whose frequency differs by at most the margin"),
    FIELD_ARRAY_OF(coact_signal, faults, "[points]", false, "share of experts that are hot in only one of the two windows"),
    FIELD_ARRAY_OF(coact_signal, contradicted, "[points]", false, "share of experts that are hot in only one of the two "
                   "windows, although their frequency differs by at most the margin"),
};

static const struct field drift_fields[] = {
    FIELD(coact_drift, layer, false, "layer, from 0"),
    FIELD(coact_drift, pairs, false, "pairs of neighbouring tokens"),
    FIELD(coact_drift, state, false, "mean distance of their hidden states after the layer"),
    FIELD(coact_drift, growth_mean, true, "mean quotient of this distance and that after the previous layer; absent: there is "
          "no previous layer"),
    FIELD(coact_drift, growth_max, true, "the largest"),
    FIELD(coact_drift, score_mean, false, "mean distance of the router's scores"),
    FIELD(coact_drift, score_max, false, "the largest"),
    FIELD(coact_drift, norm_max, true, "largest quotient of the distance of scores and the distance of the layer's input "
          "states"),
    FIELD(coact_drift, bound, true, "upper bound of the mean distance of scores that follows from these largest quotients"),
};

static int check_ascending(const int32_t *values, int points, const char *what, struct err *err)
{
    for (int i = 0; i < points; i++)
        if (values[i] < 1 || (i && values[i] <= values[i - 1]))
            return err_set(err, ERR_INPUT, "%s must ascend, but do not at point %d; the stream is damaged", what, i);
    return 0;
}

static int check_union(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct coact_union *of = body;
    (void)open;
    return check_layer(of->layer, header, err) || check_ascending(of->width, of->points, "widths", err) ? -1 : 0;
}

static int check_locality(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct coact_locality *of = body;
    (void)open;
    return check_layer(of->layer, header, err) || check_ascending(of->distance, of->points, "distances", err) ? -1 : 0;
}

static int check_reuse(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct coact_reuse *of = body;
    (void)open;
    return check_layer(of->layer, header, err) || check_ascending(of->drafts, of->points, "draft lengths", err) ? -1 : 0;
}

static int check_signal(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct coact_signal *of = body;
    (void)open;
    return check_layer(of->layer, header, err) || check_ascending(of->width, of->points, "widths", err) ? -1 : 0;
}

static int check_drift(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    (void)open;
    return check_layer(((const struct coact_drift *)body)->layer, header, err);
}

static int check_matrix(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct coact_matrix *of = body;
    (void)open;
    if (check_layer(of->layer, header, err))
        return -1;
    for (int i = 0; i < of->points; i++)
        if (of->first[i] < 0 || of->second[i] < 0 || of->count[i] < 0 || of->count[i] > of->tokens)
            return err_set(err, ERR_INPUT, "pair %d has an impossible expert or count; the stream is damaged", i);
    return 0;
}

static int check_stats(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    (void)open;
    return check_layer(((const struct coact_stats *)body)->layer, header, err);
}

const struct record_kind coact_matrix_kind = {
    RECORD_KIND("matrix", "how often two experts were selected by the same token", coact_matrix, matrix_fields,
                check_matrix),
    .spread = true
};
const struct record_kind coact_stats_kind = {
    RECORD_KIND("stats", "how unevenly a layer's experts are used", coact_stats, stats_fields, check_stats)
};
const struct record_kind coact_union_kind = {
    RECORD_KIND("union", "how many distinct experts tokens need that are verified together", coact_union, union_fields,
                check_union),
    .spread = true
};
const struct record_kind coact_locality_kind = {
    RECORD_KIND("locality", "how many experts tokens near each other have in common", coact_locality, locality_fields,
                check_locality),
    .spread = true
};
const struct record_kind coact_reuse_kind = {
    RECORD_KIND("reuse", "what drafts save where verified tokens share experts", coact_reuse, reuse_fields, check_reuse),
    .spread = true
};
const struct record_kind coact_signal_kind = {
    RECORD_KIND("signal", "how well the tokens of a verification predict the experts of the next one", coact_signal,
                signal_fields,
                check_signal),
    .spread = true
};
const struct record_kind coact_drift_kind = {
    RECORD_KIND("drift", "how much hidden states and router scores change from a token to the next", coact_drift, drift_fields,
                check_drift)
};
