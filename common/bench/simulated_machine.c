#include "common/bench/simulated_machine.h"

#include <math.h>

#include "common/base/json.h"
#include "common/cli/keys.h"

enum { FILE_LIMIT = 1 << 20 };

static int get_model(struct simulated_machine *m, const json_t *map, struct err *err)
{
    static const char *const keys[] = {"name", "layers", "experts", "top_k", "expert_bytes", NULL};
    const json_t *model;
    if (keys_object(map, "model", keys, true, &model, err))
        return -1;
    if (keys_text(model, "name", m->model, sizeof m->model, err) || keys_int(model, "layers", 0, 1, 4096, &m->layers, err) ||
        keys_int(model, "experts", 0, 2, 4096, &m->experts, err) ||
        keys_int(model, "top_k", 0, 1, m->experts > 2 ? m->experts / 2 : 1, &m->top_k, err) ||
        (!m->layers || !m->experts || !m->top_k ? err_set(err, ERR_INPUT, "expected \"layers\", \"experts\" and \"top_k\"")
                                                : 0) ||
        keys_real(model, "expert_bytes", 0, 1, 1e15, &m->expert_bytes, err))
        return err_at(err, "\"model\"");
    return 0;
}

static int get_processor(struct simulated_processor *p, const json_t *map, struct err *err)
{
    return keys_microseconds(map, "expert_us", -1, &p->expert_s, err) ||
           keys_microseconds(map, "token_us", 0, &p->token_s, err) ||
           keys_microseconds(map, "join_us", 0, &p->join_s, err) ? -1 : 0;
}

static int get_speeds(struct simulated_machine *m, const json_t *link, struct err *err)
{
    const json_t *all = json_object_get(link, "reads"), *pair;
    size_t at;
    if (all && (!json_is_array(all) || !m->together || json_array_size(all) > SIMULATED_SPEEDS))
        return err_set(err, ERR_INPUT, "\"reads\": expected a list of at most %d pairs [concurrent reads, bytes/s], and "
                       "\"together\": true", (int)SIMULATED_SPEEDS);
    json_array_foreach(all, at, pair) {
        const json_t *reads = json_array_get(pair, 0), *speed = json_array_get(pair, 1);
        const json_int_t count = json_integer_value(reads), before = at ? m->speed[at - 1].reads : 0;
        if (json_array_size(pair) != 2 || count <= before || count > 1 << 20 || !(json_number_value(speed) >= 1) ||
            !(json_number_value(speed) <= 1e15))
            return err_set(err, ERR_INPUT, "\"reads\": pair %d: expected [concurrent reads, bytes/s], with more reads than in "
                           "the pair before, and 1 to 1e15 bytes/s", (int)at + 1);
        m->speed[m->speeds].reads = (int)count;
        m->speed[m->speeds++].bytes_per_second = json_number_value(speed);
    }
    return 0;
}

double simulated_machine_speed(const struct simulated_machine *m, int reads)
{
    int after = 0;
    if (!m->speeds)
        return m->bytes_per_second;
    while (after < m->speeds && m->speed[after].reads < reads)
        after++;
    if (!after || after == m->speeds)
        return m->speed[after ? after - 1 : 0].bytes_per_second;
    const double from = m->speed[after - 1].reads, to = m->speed[after].reads, part = (reads - from) / (to - from);
    return m->speed[after - 1].bytes_per_second * (1 - part) + m->speed[after].bytes_per_second * part;
}

static int read_parts(struct simulated_machine *m, const json_t *map, struct err *err)
{
    static const char *const draft_keys[] = {"length", "token_us", "acceptance", NULL};
    static const char *const processor_keys[] = {"expert_us", "token_us", "join_us", NULL};
    static const char *const link_keys[] = {"bytes_per_second", "latency_us", "at_once", "together", "reads", NULL};
    static const char *const forecast_keys[] = {"next_layer", "draft", "copy", NULL};
    static const char *const copy_keys[] = {"share", "in_place_of", "token_us", NULL};
    const json_t *draft, *fast, *slow, *link, *forecast, *copy;
    if (keys_object(map, "draft", draft_keys, true, &draft, err) ||
        keys_object(map, "fast", processor_keys, true, &fast, err) ||
        keys_object(map, "slow", processor_keys, false, &slow, err) || keys_object(map, "link", link_keys, true, &link, err) ||
        keys_object(map, "forecast", forecast_keys, false, &forecast, err))
        return -1;
    if (keys_int(draft, "length", 0, 0, 63, &m->draft_length, err) ||
        keys_microseconds(draft, "token_us", 0, &m->draft_s, err) ||
        keys_real(draft, "acceptance", 0, 0, 1, &m->acceptance, err))
        return err_at(err, "\"draft\"");
    if (get_processor(&m->fast, fast, err))
        return err_at(err, "\"fast\"");
    m->has_slow = slow;
    if (slow && get_processor(&m->slow, slow, err))
        return err_at(err, "\"slow\"");
    if (keys_real(link, "bytes_per_second", 0, 1, 1e15, &m->bytes_per_second, err) ||
        keys_microseconds(link, "latency_us", 0, &m->latency_s, err))
        return err_at(err, "\"link\"");
    if (keys_flag(link, "at_once", &m->at_once, err) || keys_flag(link, "together", &m->together, err) ||
        get_speeds(m, link, err))
        return err_at(err, "\"link\"");
    if (keys_real(forecast, "next_layer", 0, 0, 1, &m->recall_next, err) ||
        keys_real(forecast, "draft", 0, 0, 1, &m->recall_draft, err) ||
        keys_object(forecast, "copy", copy_keys, false, &copy, err))
        return err_at(err, "\"forecast\"");
    m->has_copy = copy;
    if (copy && (keys_real(copy, "share", -1, 0, 1, &m->copy_share, err) ||
                 keys_real(copy, "in_place_of", 0, 0, 1, &m->copy_in_place_of, err) ||
                 keys_microseconds(copy, "token_us", -1, &m->copy_token_s, err)))
        return err_at(err, "\"copy\"");
    return 0;
}

static int get_machine(struct simulated_machine *m, const json_t *map, struct err *err)
{
    static const char *const keys[] = {"machine", "source", "model", "cached", "draft", "layer_us", "forward_us", "fast",
                                       "slow", "link", "forecast", "notes", NULL};
    char source[8];
    if (!json_is_object(map) || json_object_get(map, "settings"))
        return err_set(err, ERR_INPUT, "expected the description of a machine: a JSON object in the form shown in "
                       "moe-bench(1)");
    if (keys_known(map, keys, err) || keys_text(map, "machine", m->name, sizeof m->name, err) ||
        keys_text(map, "source", source, sizeof source, err) || get_model(m, map, err) ||
        keys_real(map, "cached", -1, 0, 1, &m->cached, err) || keys_microseconds(map, "layer_us", 0, &m->layer_s, err) ||
        keys_microseconds(map, "forward_us", 0, &m->forward_s, err) || read_parts(m, map, err))
        return -1;
    return 0;
}

int simulated_machine_read(struct simulated_machine *out, const char *path, struct err *err)
{
    struct simulated_machine machine = {.layers = 0};
    json_t *map = json_file(path, FILE_LIMIT, "a machine's description", err);
    if (!map)
        return -1;
    int rc = get_machine(&machine, map, err) ? err_at(err, "%s", path) : 0;
    json_decref(map);
    if (!rc)
        *out = machine;
    return rc;
}

struct simulated_machine simulated_machine_copied(const struct simulated_machine *machine)
{
    struct simulated_machine copied = *machine;
    if (machine->has_copy) {
        copied.cached = fmax(0, machine->cached + machine->copy_in_place_of - machine->copy_share);
        copied.draft_s = machine->copy_token_s;
    }
    return copied;
}

int simulated_machine_slots(const struct simulated_machine *machine, int layers, int experts)
{
    return (int)lround(machine->cached * layers * experts);
}
