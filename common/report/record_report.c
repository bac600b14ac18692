#include "common/report/record_report.h"

#include <math.h>
#include <string.h>

static const void *member(const void *body, const struct field *field) { return (const char *)body + field->offset; }

static int array_of(const struct record_report *report, const struct record_kind *kind, const struct field *field,
                    const void *body, struct array *out, struct err *err)
{
    size_t bytes;
    struct elements elements;
    *out = (struct array){ .dtype = field->dtype };
    memcpy(&out->data, member(body, field), sizeof out->data);
    if (field->dtypes) {
        memcpy(&elements, member(body, field), sizeof elements);
        out->dtype = elements.dtype;
    }
    return field_shape(kind, field, body, report->header, &out->rank, out->shape, err) ||
           array_measure(out->dtype, out->rank, out->shape, &out->count, &bytes, err) ? -1 : 0;
}

/* Prints a field. row: index of the row, in a table that spreads arrays over rows; -1: whole arrays. */
static int put_field(const struct record_report *report, const struct record_kind *kind, const struct field *field,
                     const void *body, int64_t row, struct err *err)
{
    struct show *show = report->show;
    const void *at = member(body, field);
    struct array array;
    const char *text;
    const bool lacks = field->optional || field->type == FIELD_TEXT || field->type == FIELD_ARRAY;
    if (lacks && field_is_absent(field, body)) {
        show_absent(show, field->key);
        return 0;
    }
    switch (field->type) {
    case FIELD_INT:   show_int(show, field->key, *(const int *)at); return 0;
    case FIELD_INT64: show_int(show, field->key, *(const int64_t *)at); return 0;
    case FIELD_REAL:  show_real(show, field->key, *(const double *)at); return 0;
    case FIELD_FLAG:  show_flag(show, field->key, *(const bool *)at); return 0;
    case FIELD_CHOICE: case FIELD_TEXT:
        text = field->type == FIELD_TEXT ? *(const char *const *)at : field->choices[*(const int *)at];
        show_text(show, field->key, text, strlen(text));
        return 0;
    case FIELD_ARRAY:
        if (array_of(report, kind, field, body, &array, err))
            return -1;
        if (row >= 0)
            show_element(show, field->key, &array, (size_t)row);
        else
            show_array(show, field->key, &array);
        return 0;
    case FIELD_VALUES:
        break;
    }
    return err_set(err, ERR_INPUT, "key '%s' has a type that cannot be shown", field->key);
}

int record_report_put(void *context, const struct record_kind *kind, const void *body, struct err *err)
{
    struct record_report *report = context;
    bool table = show_form(report->show) == SHOW_CSV;
    int64_t rows = 1;
    int index = (int)report->index++;
    const double layer = record_kind_number(kind, "layer", body, 0);
    if (report->layer >= 0 && !isnan(layer) && (int)layer != report->layer)
        return 0;
    for (int i = 0; table && kind->spread && i < kind->count; i++) {
        struct array array;
        if (kind->fields[i].type == FIELD_ARRAY) {
            if (array_of(report, kind, &kind->fields[i], body, &array, err))
                return -1;
            rows = (int64_t)array.shape[0];
        }
    }
    for (int64_t row = 0; row < rows; row++) {
        show_begin(report->show, kind->type, index);
        for (int i = 0; i < kind->count; i++)
            if (put_field(report, kind, &kind->fields[i], body, table && kind->spread ? row : -1, err))
                return -1;
        if (show_end(report->show, err))
            return -1;
    }
    return 0;
}
