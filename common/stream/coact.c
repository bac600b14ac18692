#include "common/stream/coact.h"

static const struct field coverage_fields[] = {
    FIELD(coact_coverage, layer, false, "layer among those with a router, from 0"),
    FIELD(coact_coverage, method, false, "what the experts were ordered by: frequency, mass, ..."),
    FIELD(coact_coverage, tokens, false, "tokens that were counted"),
    FIELD(coact_coverage, points, false, "budgets that were tried"),
    FIELD_ARRAY_OF(coact_coverage, budget, "[points]", false, "experts kept, ascending"),
    FIELD_ARRAY_OF(coact_coverage, mass, "[points]", false, "share of the routing mass that falls on the kept experts"),
    FIELD_ARRAY_OF(coact_coverage, served, "[points]", false, "share of tokens whose selected experts are all kept"),
};

static int check_layer(int layer, const struct header *header, struct err *err)
{
    if (header->has_model && layer >= header->model.moe_layers)
        return err_set(err, ERR_INPUT, "layer %d is not among the model's %d", layer, header->model.moe_layers);
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
            return err_set(err, ERR_INPUT, "budgets are not ascending at point %d", i);
        if (!(coverage->mass[i] >= 0 && coverage->mass[i] <= 1.000001) ||
            !(coverage->served[i] >= 0 && coverage->served[i] <= 1.000001))
            return err_set(err, ERR_INPUT, "a share at point %d is not from 0 to 1", i);
    }
    return 0;
}

const struct record_kind coact_coverage_kind = {
    RECORD_KIND("coverage", "what budgets keep of one layer's routing", coact_coverage, coverage_fields, check_coverage),
    .spread = true
};

static const struct field union_fields[] = {
    FIELD(coact_union, layer, false, "layer among those with a router, from 0"),
    FIELD(coact_union, tokens, false, "tokens that were counted"),
    FIELD(coact_union, points, false, "widths that were measured"),
    FIELD_ARRAY_OF(coact_union, width, "[points]", false, "consecutive tokens of a text, ascending"),
    FIELD_ARRAY_OF(coact_union, windows, "[points]", false, "runs of that many tokens"),
    FIELD_ARRAY_OF(coact_union, distinct, "[points]", false, "distinct experts of such a run on average; NaN: there was none"),
    FIELD_ARRAY_OF(coact_union, independent, "[points]", false, "the same if tokens chose independently, each expert as often "
                   "as here"),
    FIELD_ARRAY_OF(coact_union, alike, "[points]", false, "the same if they chose independently and all experts alike"),
};

static const struct field locality_fields[] = {
    FIELD(coact_locality, layer, false, "layer among those with a router, from 0"),
    FIELD(coact_locality, tokens, false, "tokens that were counted"),
    FIELD(coact_locality, independent, false, "share in common if tokens chose independently, each expert as often as here"),
    FIELD(coact_locality, alike, false, "share in common if they chose independently and all experts alike"),
    FIELD(coact_locality, points, false, "distances that were measured"),
    FIELD_ARRAY_OF(coact_locality, distance, "[points]", false, "how far two tokens of a text are apart, ascending"),
    FIELD_ARRAY_OF(coact_locality, pairs, "[points]", false, "pairs of tokens so far apart"),
    FIELD_ARRAY_OF(coact_locality, common, "[points]", false, "share of a token's experts that both selected; NaN: no pair"),
};

static int check_ascending(const int32_t *values, int points, const char *what, struct err *err)
{
    for (int i = 0; i < points; i++)
        if (values[i] < 1 || (i && values[i] <= values[i - 1]))
            return err_set(err, ERR_INPUT, "%s are not ascending at point %d", what, i);
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

const struct record_kind coact_union_kind = {
    RECORD_KIND("union", "how many distinct experts consecutive tokens need", coact_union, union_fields, check_union),
    .spread = true
};
const struct record_kind coact_locality_kind = {
    RECORD_KIND("locality", "how many experts tokens near each other have in common", coact_locality, locality_fields,
                check_locality),
    .spread = true
};
