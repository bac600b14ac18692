#include "common/model/head_states.h"

#include <stdlib.h>
#include <string.h>

#include "common/cli/spec.h"

static bool add(struct head_states *states, int state)
{
    int at = states->count;
    while (at && states->state[at - 1] > state)
        at--;
    if (at && states->state[at - 1] == state)
        return true;
    if (states->count == HEAD_STATES_MAX + 1)
        return false;
    memmove(states->state + at + 1, states->state + at, (size_t)(states->count - at) * sizeof *states->state);
    states->state[at] = state;
    states->count++;
    return true;
}

void head_states_of(struct head_states *out, const struct head_params *head)
{
    struct head_states states = {0};
    for (int i = 0; i < head->states; i++)
        add(&states, head->state[i]);
    add(&states, head->target.layers);
    *out = states;
}

static int parse_list(struct head_states *states, const char *words, int layers, struct err *err)
{
    for (const char *at = words;;) {
        size_t length = strcspn(at, ",");
        char *end = NULL;
        long layer = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (length == 5 && !strncmp(at, "final", 5))
            layer = layers;
        else if (end != at + length || layer >= layers)
            return err_set(err, ERR_INPUT, "'%.*s' is not a state; expected a layer from 0 to %d, or final",
                           (int)(length < 40 ? length : 40),
                           at, layers - 1);
        if (!add(states, (int)layer))
            return err_set(err, ERR_INPUT, "more than %d states", HEAD_STATES_MAX + 1);
        if (!at[length])
            return 0;
        at += length + 1;
    }
}

static int parse_kind(struct head_states *states, struct spec *spec, enum head_kind kind, int layers, struct err *err)
{
    struct head_params head = {.target.layers = layers, .states = 1, .state = {layers}};
    int exit_layer;
    if (kind == HEAD_KANGAROO) {
        if (spec_int(spec, "exit", layers > 2 ? 2 : 1, 1, layers, &exit_layer, err))
            return -1;
        head.state[0] = exit_layer - 1;
    }
    if (kind == HEAD_EAGLE3) {
        const int before[] = {2, layers / 2, layers - 3};
        if (layers < 4)
            return err_set(err, ERR_INPUT, "eagle3: the default layers need a model of at least four layers, but this one has "
                           "%d; list the layers instead", layers);
        head.states = 3;
        for (int i = 0; i < 3; i++)
            head.state[i] = before[i] - 1;
    }
    head_states_of(states, &head);
    return spec_end(spec, err);
}

int head_states_parse(struct head_states *out, const char *words, int layers, struct err *err)
{
    struct head_states states = {0};
    struct spec *spec = NULL;
    enum head_kind kind;
    char name[32];
    size_t length = strcspn(words, ":");
    int rc;
    memcpy(name, words, length < sizeof name ? length : 0);
    name[length < sizeof name ? length : 0] = '\0';
    if (head_kind_by_name(name, &kind) && kind != HEAD_NONE)
        rc = spec_parse(&spec, words, err) || parse_kind(&states, spec, kind, layers, err) ? -1 : 0;
    else
        rc = parse_list(&states, words, layers, err);
    spec_free(&spec);
    if (!rc)
        *out = states;
    return rc;
}

int head_states_text(const struct head_states *states, int layers, struct text *out, struct err *err)
{
    int inner = states->count - (states->count && states->state[states->count - 1] == layers);
    if (inner && text_printf(out, err, "after layer%s ", inner > 1 ? "s" : ""))
        return -1;
    for (int i = 0; i < inner; i++)
        if (text_printf(out, err, "%s%d", !i ? "" : i + 1 == inner && inner == states->count ? " and " : ", ",
                        states->state[i]))
            return -1;
    return inner == states->count ? 0 : text_printf(out, err, "%sthe final norm", inner ? " and " : "after ");
}
