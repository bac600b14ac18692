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

static int check_coverage(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct coact_coverage *coverage = body;
    (void)open;
    if (header->has_model && coverage->layer >= header->model.moe_layers)
        return err_set(err, ERR_INPUT, "layer %d is not among the model's %d", coverage->layer, header->model.moe_layers);
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
