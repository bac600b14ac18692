/* Any bytes as a hot set of a model of 3 layers with 8 experts, and as the description of a machine for simulations and
 * plans. An accepted hot set names existing experts, once, with falling weights, and survives writing and reading; a machine
 * has usable numbers; everything else is rejected in one line. */
#include <math.h>
#include <string.h>

#include "common/bench/simulated_machine.h"
#include "common/bench/speeds.h"
#include "common/cache/hot_set.h"
#include "tests/fuzz/fuzz.h"

enum { LAYERS = 3, EXPERTS = 8 };

static const struct stream_model model = {.name = "tiny", .source_sha256 = "2b2b", .layers = 4, .moe_layers = LAYERS,
                                          .experts = EXPERTS, .top_k = 2};

static void check_refusal(const struct err *err)
{
    if (err->code != ERR_INPUT || !*err->text || strchr(err->text, '\n'))
        abort();
}

static void check_set(const struct hot_set *set)
{
    struct hot_set again = {0};
    struct err err = {0};
    double weight[LAYERS * EXPERTS] = {0};
    char path[] = "/tmp/fuzz-cache-XXXXXX";
    for (int i = 0; i < set->count; i++) {
        if (set->key[i] < 0 || set->key[i] >= LAYERS * EXPERTS || weight[set->key[i]] > 0 || !(set->weight[i] > 0) ||
            isinf(set->weight[i]) || (i && set->weight[i] > set->weight[i - 1]))
            abort();
        weight[set->key[i]] = set->weight[i];
    }
    int fd = mkstemp(path);
    if (fd < 0)
        abort();
    close(fd);
    if (hot_set_write(path, weight, &model, &err) || hot_set_read(&again, path, &model, &err) || again.count != set->count)
        abort();
    for (int i = 0; i < again.count; i++)               /* nine digits are kept */
        if (!(fabs(again.weight[i] - weight[again.key[i]]) <= 1e-8 * weight[again.key[i]]))
            abort();
    hot_set_free(&again);
    unlink(path);
}

static void check_machine(const struct simulated_machine *m)
{
    if (m->layers < 1 || m->experts < 2 || m->top_k < 1 || m->top_k > m->experts / 2 || !(m->expert_bytes >= 1) ||
        !(m->cached >= 0 && m->cached <= 1) || m->draft_length < 0 || !(m->draft_s >= 0) || !(m->bytes_per_second >= 1) ||
        !(m->fast.expert_s >= 0) || (m->has_slow && !(m->slow.expert_s >= 0)) || !(m->layer_s >= 0) || !(m->forward_s >= 0) ||
        !isfinite(m->expert_bytes / m->bytes_per_second + m->latency_s))
        abort();
    int slots = simulated_machine_slots(m, m->layers, m->experts);
    if (slots < 0 || slots > m->layers * m->experts)
        abort();
}

static void check_speeds(const struct speeds *s)
{
    if (!(s->memory >= 1) || !(s->operation_s >= 0) || !(s->disk.latency_s >= 0) || (s->gpu && !(s->gpu_memory >= 1)))
        abort();
    for (int f = 0; f < FORMAT_COUNT; f++)
        for (double rows = 0.5, before = 0; rows < 1e6; rows *= 1.7) {
            const double now = speeds_per_byte(s, (enum weight_format)f, rows);
            if (!(now > 0) || isinf(now) || (!s->product[f].points && now < before))
                abort();
            before = now;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct hot_set set = {0};
    struct simulated_machine machine = {0};
    struct speeds speeds = {.memory = 0};
    struct err err = {0}, other = {0}, third = {0};
    char path[64];
    int fd = fuzz_file(data, bytes, path);
    if (!hot_set_read(&set, path, &model, &err))
        check_set(&set);
    else
        check_refusal(&err);
    hot_set_free(&set);
    if (!simulated_machine_read(&machine, path, &other))
        check_machine(&machine);
    else
        check_refusal(&other);
    if (!speeds_read(&speeds, path, &third))
        check_speeds(&speeds);
    else
        check_refusal(&third);
    close(fd);
    return 0;
}
