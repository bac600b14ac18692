/* man/moe-stream.5 lists what the tables of common/stream hold: nothing more, nothing less, in that order. */
#include "tests/unit/stream.h"

static const char *type_text(const struct field *field, char *out, size_t room)
{
    size_t used = 0;
    switch (field->type) {
    case FIELD_INT: case FIELD_INT64: return "integer";
    case FIELD_REAL:   return "number";
    case FIELD_FLAG:   return "flag";
    case FIELD_TEXT:   return "text";
    case FIELD_VALUES: return "map of integers, numbers and text";
    case FIELD_ARRAY:
        if (field->dtypes) {
            for (int type = 0; type < DTYPE_COUNT; type++)
                if (field->dtypes >> type & 1)
                    used += (size_t)snprintf(out + used, room - used, "%s%s", used ? " or " : "",
                                             array_dtype_name((enum dtype)type));
            snprintf(out + used, room - used, " %s", field->shape);
            return out;
        }
        snprintf(out, room, "%s %s", array_dtype_name(field->dtype), field->shape);
        return out;
    case FIELD_CHOICE: break;
    }
    for (int i = 0; field->choices[i]; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%s", i ? " | " : "", field->choices[i]);
    return out;
}

/* A record type that an earlier kind has explained. */
static const char *known_from(const struct stream_schema *schema, const struct record_kind *kind)
{
    for (int other = STREAM_ANY + 1; other < (int)schema->kind; other++)
        if (stream_schema_record(stream_schema((enum stream_kind)other), kind->type) == kind)
            return stream_schema((enum stream_kind)other)->name;
    return NULL;
}

static void kind_text(struct text *out, const struct stream_schema *schema)
{
    char type[200];
    text_printf(out, NULL, ".Ss %s: %s\n.Bl -tag -width Ds\n", schema->name, schema->meaning);
    for (const struct record_kind *const *record = schema->records; *record; record++) {
        const char *known = known_from(schema, *record);
        if (known) {
            text_printf(out, NULL, ".It Sy %s\nas in a %s stream\n", (*record)->type, known);
            continue;
        }
        text_printf(out, NULL, ".It Sy %s\n%s\n.Bl -tag -width Ds -compact\n", (*record)->type, (*record)->meaning);
        for (int i = 0; i < (*record)->count; i++) {
            const struct field *field = &(*record)->fields[i];
            text_printf(out, NULL, ".It Va %s Pq %s%s\n%s\n", field->key, type_text(field, type, sizeof type),
                        field->optional ? ", optional" : "", field->meaning);
        }
        text_puts(out, ".El\n", NULL);
    }
    text_puts(out, ".El\n", NULL);
}

static void the_page_lists_the_tables(void **state)
{
    (void)state;
    struct text page = {0}, want = {0};
    struct err err = {0};
    char path[1200];
    snprintf(path, sizeof path, "%s/../../man/moe-stream.5", unit_models());
    assert_int_equal(file_read(&page, path, 1 << 20, &err), 0);
    for (int kind = STREAM_ANY + 1; kind < STREAM_KINDS; kind++)
        kind_text(&want, stream_schema((enum stream_kind)kind));
    char *from = strstr(page.data, "a test compares them.\n"), *to = from ? strstr(from, "\n.Sh ") : NULL;
    assert_non_null(to);
    to[1] = '\0';
    if (strcmp(strchr(from, '\n') + 1, want.data) != 0) {              /* up to the next section: a line more is wrong, too */
        fputs(want.data, stderr);
        fail_msg("man/moe-stream.5 must hold exactly these lines");
    }
    text_free(&page);
    text_free(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_page_lists_the_tables) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
