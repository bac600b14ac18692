/* man/moe-stream.5 lists exactly the tables of common/stream, and man/moe-bench.1 exactly the columns of a report, in that
 * order. */
#include "common/report/summary.h"
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

/* A record type that an earlier kind explains. */
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

/* Returns the lines of a page in man/ from the one that names this test up to the next line that begins with `end`. */
static void expect_lines(const char *page_name, const char *end, const struct text *want)
{
    struct text page = {0};
    struct err err = {0};
    char path[1200];
    snprintf(path, sizeof path, "%s/../../man/%s", unit_models(), page_name);
    assert_int_equal(file_read(&page, path, 1 << 20, &err), 0);
    char *from = strstr(page.data, "a test compares them.\n"), *to = from ? strstr(from, end) : NULL;
    assert_non_null(to);
    to[1] = '\0';
    if (strcmp(strchr(from, '\n') + 1, want->data) != 0) {            /* up to `end`: an additional line is wrong, too */
        fputs(want->data, stderr);
        fail_msg("man/%s must hold exactly these lines", page_name);
    }
    text_free(&page);
}

static void the_page_lists_the_tables(void **state)
{
    (void)state;
    struct text want = {0};
    for (int kind = STREAM_ANY + 1; kind < STREAM_KINDS; kind++)
        kind_text(&want, stream_schema((enum stream_kind)kind));
    expect_lines("moe-stream.5", "\n.Sh ", &want);
    text_free(&want);
}

static void the_page_lists_the_columns_of_a_report(void **state)
{
    (void)state;
    struct text want = {0};
    text_puts(&want, ".Bl -tag -width Ds -compact\n", NULL);
    for (const struct summary_column *column = summary_columns; column->key; column++)
        text_printf(&want, NULL, ".It Va %s\n%s\n", column->key, column->meaning);
    text_puts(&want, ".El\n", NULL);
    expect_lines("moe-bench.1", "\n.Ss ", &want);
    text_free(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_lists_the_tables), cmocka_unit_test(the_page_lists_the_columns_of_a_report) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
