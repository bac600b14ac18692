#include "common/stream/show_origin.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/stream/bench.h"
#include "common/stream/decode.h"

static struct origin *find(const struct origins *origins, int64_t sequence)
{
    for (size_t i = 0; i < origins->open_count; i++)
        if (origins->open[i].sequence == sequence)
            return &origins->open[i];
    return NULL;
}

static struct origin *open_one(struct origins *origins, int64_t sequence, struct err *err)
{
    struct origin *origin = find(origins, sequence);
    if (origin || mem_grow(&origins->open, &origins->open_room, origins->open_count + 1, sizeof *origins->open, err))
        return origin;
    origin = &origins->open[origins->open_count++];
    *origin = (struct origin){.sequence = sequence, .setting = -1, .repeat = -1};
    return origin;
}

static int add_setting(struct origins *origins, const struct bench_setting *setting, struct err *err)
{
    if (mem_grow(&origins->settings, &origins->setting_room, origins->setting_count + 1, sizeof *origins->settings, err))
        return -1;
    struct origin_setting *kept = &origins->settings[origins->setting_count];
    kept->number = setting->setting;
    kept->name = mem_string(setting->name, err);
    origins->setting_count += kept->name != NULL;
    return kept->name ? 0 : -1;
}

static void end_one(struct origins *origins, int64_t sequence)
{
    struct origin *origin = find(origins, sequence);
    if (!origin)
        return;
    mem_free(&origin->id);
    *origin = origins->open[--origins->open_count];
}

int origins_add(struct origins *origins, const struct record *record, struct err *err)
{
    struct origin *origin;
    if (record->kind == &bench_setting_kind)
        return add_setting(origins, record->body, err);
    if (record->kind == &bench_sample_kind) {
        const struct bench_sample *sample = record->body;
        if (!(origin = open_one(origins, sample->sequence, err)))
            return -1;
        origin->setting = sample->setting;
        origin->repeat = sample->repeat;
    } else if (record->kind == &decode_begin_kind) {
        const struct decode_begin *begin = record->body;
        if (!(origin = open_one(origins, begin->sequence, err)))
            return -1;
        mem_free(&origin->id);
        return begin->id && !(origin->id = mem_string(begin->id, err)) ? -1 : 0;
    } else if (record->kind == &decode_iter_kind) {
        if ((origin = find(origins, ((const struct decode_iter *)record->body)->sequence)))
            origin->iterations++;
    } else if (record->kind == &decode_done_kind) {
        end_one(origins, ((const struct decode_done *)record->body)->sequence);
    }
    return 0;
}

void origins_show(const struct origins *origins, struct show *show, int64_t sequence)
{
    const struct origin *origin = find(origins, sequence);
    const char *setting = NULL;
    for (size_t i = 0; origin && i < origins->setting_count; i++)
        if (origins->settings[i].number == origin->setting)
            setting = origins->settings[i].name;
    if (setting)
        show_text(show, "setting", setting, strlen(setting));
    else
        show_absent(show, "setting");
    if (origin && origin->repeat >= 0)
        show_int(show, "repeat", origin->repeat);
    else
        show_absent(show, "repeat");
    if (origin && origin->id)
        show_text(show, "id", origin->id, strlen(origin->id));
    else
        show_absent(show, "id");
    if (origin)
        show_int(show, "iteration", origin->iterations - 1);
    else
        show_absent(show, "iteration");
}

void origins_free(struct origins *origins)
{
    for (size_t i = 0; i < origins->setting_count; i++)
        mem_free(&origins->settings[i].name);
    for (size_t i = 0; i < origins->open_count; i++)
        mem_free(&origins->open[i].id);
    mem_free(&origins->settings);
    mem_free(&origins->open);
}
