#include "common/bench/references.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/prompts/prompts.h"

static const size_t file_limit = (size_t)1 << 30;

static int by_task_and_id(const void *a, const void *b)
{
    const struct reference *x = a, *y = b;
    int order = strcmp(x->task, y->task);
    return order ? order : strcmp(x->id, y->id);
}

static void reference_free(struct reference *item)
{
    mem_free(&item->task);
    mem_free(&item->id);
    mem_free(&item->answer);
}

void references_free(struct references *references)
{
    for (size_t i = 0; i < references->count; i++)
        reference_free(&references->items[i]);
    mem_free(&references->items);
    *references = (struct references){0};
}

static int fill(struct reference *item, const json_t *object, size_t ordinal, struct err *err)
{
    char number[32];
    if (prompt_label(object, "task", &item->task, err) || prompt_label(object, "id", &item->id, err) ||
        prompt_label(object, "answer", &item->answer, err) || (!item->task && !(item->task = mem_string("", err))))
        return -1;
    snprintf(number, sizeof number, "%zu", ordinal);
    return item->id || (item->id = mem_string(number, err)) ? 0 : -1;
}

static int take_line(struct references *out, const char *line, size_t bytes, size_t ordinal, struct err *err)
{
    json_error_t fault;
    json_t *object = json_read(line, bytes, JSON_REJECT_DUPLICATES, &fault);
    int rc = -1;
    if (!object)
        return json_no_memory(&fault) ? err_memory(err) : err_set(err, ERR_INPUT, "not valid JSON: %s", fault.text);
    if (!json_is_object(object)) {
        err_set(err, ERR_INPUT, "expected a JSON object");
        goto done;
    }
    if (mem_grow(&out->items, &out->room, out->count + 1, sizeof *out->items, err))
        goto done;
    struct reference *item = &out->items[out->count++];
    *item = (struct reference){0};
    if (fill(item, object, ordinal, err))
        goto done;
    if (!item->answer) {                                /* no answer to compare with */
        reference_free(item);
        out->count--;
    }
    rc = 0;
done:
    json_decref(object);
    return rc;
}

static int read_file(struct references *out, const char *path, size_t *ordinal, struct err *err)
{
    struct text body = {0};
    int rc = -1, number = 0;
    if (file_read(&body, path, file_limit, err))
        goto done;
    for (const char *at = body.data, *end = at + body.length, *next; at && at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        next = next ? next : end;
        number++;
        if (strspn(at, " \t\r") >= (size_t)(next - at))
            continue;
        if (take_line(out, at, (size_t)(next - at), (*ordinal)++, err)) {
            err_at(err, "%s:%d", path, number);
            goto done;
        }
    }
    rc = 0;
done:
    text_free(&body);
    return rc;
}

int references_read(struct references *out, const char *const *paths, int count, struct err *err)
{
    struct references read = {0};
    size_t ordinal = 0;
    for (int i = 0; i < count; i++)
        if (read_file(&read, paths[i], &ordinal, err)) {
            references_free(&read);
            return -1;
        }
    if (read.count)
        qsort(read.items, read.count, sizeof *read.items, by_task_and_id);
    *out = read;
    return 0;
}

const struct reference *references_find(const struct references *references, const char *task, const char *id)
{
    size_t low = 0, high = references->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct reference *at = &references->items[middle];
        int order = strcmp(task ? task : "", at->task);
        order = order ? order : strcmp(id, at->id);
        if (!order)
            return at;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
