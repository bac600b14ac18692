#include <math.h>
#include <stdlib.h>

#include "common/base/json.h"
#include "common/bench/identity.h"
#include "common/report/table.h"

static const char *name_of(const struct identity *identity, int setting) { return identity->suite->settings[setting].name; }

static int put_row(struct table *table, const struct identity *identity, const struct identity_row *row, struct err *err)
{
    bool itself = row->reference == row->setting;
    if (table_cell(table, err, "%s", name_of(identity, row->setting)) ||
        table_cell(table, err, "%s", itself ? "" : name_of(identity, row->reference)) ||
        table_cell(table, err, "%d", row->prompts) || table_cell(table, err, "%lld", (long long)row->tokens))
        return -1;
    return (itself ? table_cell(table, err, "%s", "") : table_cell(table, err, "%zu", row->count)) ||
           table_cell(table, err, "%s", row->apart ? row->apart : "") ? -1 : 0;
}

static int put_token(struct text *out, const char *who, const struct identity_token *token, struct err *err)
{
    if (token->id < 0)
        return text_printf(out, err, "  %-10s no token: the answer has ended\n", who);
    return text_printf(out, err, "  %-10s token %d%s%s, best logit before the second by %.6g\n", who, (int)token->id,
                       token->text ? " " : "", token->text ? token->text : "", token->margin);
}

static int put_first(struct text *out, const struct identity *identity, struct err *err)
{
    const struct identity_row *row = identity->first;
    const struct identity_difference *first = &row->differences[0];
    if (text_printf(out, err, "\nfirst difference: '%s' from '%s', prompt %s, token %d of the answer, position %d\n",
                    name_of(identity, row->setting), name_of(identity, row->reference), first->prompt, first->index + 1,
                    first->position))
        return -1;
    if (first->here.id < 0 && first->reference.id < 0)
        return text_puts(out, "  all token ids agree; the texts do not\n", err);
    return put_token(out, "reference", &first->reference, err) || put_token(out, "here", &first->here, err) ? -1 : 0;
}

int identity_text(struct text *out, const struct identity *identity, struct err *err)
{
    static const char *const titles[] = {"setting", "reference", "prompts", "tokens", "differences", "note"};
    struct table table = {0};
    int rc = -1;
    table_start(&table, titles, "llrrrl");
    for (int i = 0; i < identity->suite->setting_count; i++)
        if (put_row(&table, identity, &identity->rows[i], err))
            goto done;
    if (table_write(&table, TABLE_TEXT, out, err))
        goto done;
    rc = identity->agree ? text_puts(out, "\nall bytes agree\n", err) : put_first(out, identity, err);
done:
    table_free(&table);
    return rc;
}

static json_t *token_object(const struct identity_token *token)
{
    if (token->id < 0)
        return json_null();
    json_t *text = token->text ? json_loads(token->text, JSON_DECODE_ANY, NULL) : json_null();
    return json_pack("{s:i, s:o, s:o}", "id", (int)token->id, "text", text, "margin", json_finite(token->margin));
}

static int put_setting(struct text *out, const struct identity *identity, const struct identity_row *row, struct err *err)
{
    return json_line(out, json_pack("{s:s, s:s, s:s, s:b, s:s?, s:i, s:I, s:I}", "type", "setting",
                                   "setting", name_of(identity, row->setting), "reference", name_of(identity, row->reference),
                                   "lossless", row->apart == NULL, "note", row->apart, "prompts", row->prompts,
                                   "tokens", (json_int_t)row->tokens, "differences", (json_int_t)row->count), err);
}

static int put_difference(struct text *out, const struct identity *identity, const struct identity_row *row,
                          const struct identity_difference *difference, struct err *err)
{
    return json_line(out, json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:o, s:o}", "type", "difference",
                                   "setting", name_of(identity, row->setting), "reference", name_of(identity, row->reference),
                                   "prompt", difference->prompt, "index", difference->index, "position", difference->position,
                                   "token", token_object(&difference->here),
                                   "reference_token", token_object(&difference->reference)), err);
}

int identity_json(struct text *out, const struct identity *identity, struct err *err)
{
    int64_t differences = 0, tokens = 0;
    for (int i = 0; i < identity->suite->setting_count; i++) {
        const struct identity_row *row = &identity->rows[i];
        if (put_setting(out, identity, row, err))
            return -1;
        for (size_t d = 0; d < row->count; d++)
            if (put_difference(out, identity, row, &row->differences[d], err))
                return -1;
        differences += (int64_t)row->count;
        tokens += row->tokens;
    }
    return json_line(out, json_pack("{s:s, s:b, s:i, s:I, s:I}", "type", "verdict", "agree", identity->agree,
                                   "settings", identity->suite->setting_count, "tokens", (json_int_t)tokens,
                                   "differences", (json_int_t)differences), err);
}

int identity_refuse(const struct identity *identity, struct err *err)
{
    const struct identity_row *row = identity->first;
    const struct identity_difference *first = &row->differences[0];
    return err_set(err, ERR_ANSWER_NO, "setting '%s' differs from '%s': prompt %s, position %d",
                   name_of(identity, row->setting), name_of(identity, row->reference), first->prompt, first->position);
}
