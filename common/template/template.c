#include "common/template/template.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/template/internal.h"

enum { SOURCE_LIMIT = 1 << 20, PARSE_MEMORY = 256 << 20, RENDER_MEMORY = 64 << 20, RENDER_STEPS = 5000000 };

void template_free(struct template **t)
{
    if (!*t)
        return;
    pool_free(&(*t)->pool);
    mem_free(&(*t)->source);
    mem_free(t);
}

/* Converts line ends to \n and removes the last one. */
static void plain_lines(char *source, size_t *bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < *bytes; i++) {
        if (source[i] == '\r' && i + 1 < *bytes && source[i + 1] == '\n')
            continue;
        source[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n && source[n - 1] == '\n')
        n--;
    source[n] = '\0';
    *bytes = n;
}

int template_new(struct template **out, const char *source, size_t bytes, struct err *err)
{
    struct template *t = NULL;
    int rc = -1;
    size_t fault = utf8_fault(source, bytes);
    if (bytes > SOURCE_LIMIT || fault < bytes) {
        if (fault < bytes)
            err_set(err, ERR_INPUT, "chat template: byte %zu is not valid UTF-8; convert it to UTF-8", fault);
        else
            err_set(err, ERR_INPUT, "chat template: has %zu bytes, more than the maximum of %d; shorten it", bytes,
                    SOURCE_LIMIT);
        goto done;
    }
    t = mem_alloc(1, sizeof *t, err);
    if (!t || !(t->source = mem_copy(source, bytes, err)))
        goto done;
    t->pool.limit = PARSE_MEMORY;
    plain_lines(t->source, &bytes);
    t->bytes = bytes;
    struct parser parser = { .source = t->source, .bytes = bytes, .line = 1, .line_start = true, .pool = &t->pool, .err = err };
    t->root = parse_template(&parser);
    if (!t->root)
        goto done;
    *out = t;
    t = NULL;
    rc = 0;
done:
    template_free(&t);
    return rc;
}

void template_output_free(struct template_output *out)
{
    text_free(&out->text);
    mem_free(&out->segments);
    out->n_segments = out->room = 0;
}

static int put_values(struct render *r, const json_t *object, bool content)
{
    struct value value;
    json_t *items = (json_t *)(uintptr_t)object;               /* jansson's iterators require a non-const pointer */
    for (void *at = object ? json_object_iter(items) : NULL; at; at = json_object_iter_next(items, at))
        if (value_from_json(r, json_object_iter_value(at), content, 0, &value) ||
            frame_set(r, json_object_iter_key(at), value))
            return -1;
    return 0;
}

static int put_output(const struct builder *made, struct template_output *out, struct err *err)
{
    if (text_put(&out->text, made->data, made->bytes, err))
        return -1;
    for (size_t begin = 0, end; begin < made->bytes; begin = end) {
        end = begin;
        while (end < made->bytes && made->mask[end] == made->mask[begin])
            end++;
        if (mem_grow(&out->segments, &out->room, out->n_segments + 1, sizeof *out->segments, err))
            return -1;
        out->segments[out->n_segments++] = (struct text_segment){ end - begin, !made->mask[begin] };
    }
    return 0;
}

int template_render(const struct template *t, const json_t *values, const json_t *trusted, struct template_output *out,
                    struct err *err)
{
    struct template_output made = {0};
    struct builder builder = {0};
    struct frame frame = {0};
    struct render r = { .frame = &frame, .out = &builder, .err = err };
    size_t bytes = t->bytes + json_bytes(values) + (trusted ? json_bytes(trusted) : 0), more;
    int rc = -1;
    if (!size_mul(bytes, 32, &more) || !size_add(more, RENDER_MEMORY, &r.pool.limit)) {
        err_memory(err);
        goto done;
    }
    r.step_limit = RENDER_STEPS + (int64_t)(bytes / 4);
    if (put_values(&r, trusted, false) || put_values(&r, values, true) || eval_statements(&r, t->root) < 0 ||
        put_output(&builder, &made, err))
        goto done;
    template_output_free(out);
    *out = made;
    made = (struct template_output){0};
    rc = 0;
done:
    template_output_free(&made);
    pool_free(&r.pool);
    return rc;
}
