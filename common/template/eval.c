#include <stdio.h>
#include <string.h>

#include "common/template/internal.h"

int frame_set(struct render *r, const char *name, struct value value)
{
    return dict_put(r, &r->frame->variables, (struct string){ .data = name, .bytes = strlen(name) }, value);
}

/* ---- calls ---- */

const struct value *arg_get(const struct args *args, size_t i, const char *keyword)
{
    if (i < args->n)
        return &args->items[i];
    for (size_t k = 0; keyword && k < args->n_named; k++)
        if (!strcmp(args->names[k], keyword))
            return &args->named[k];
    return NULL;
}

int arg_int(struct render *r, const struct args *args, size_t i, const char *keyword, int64_t fallback, int64_t *out)
{
    const struct value *value = arg_get(args, i, keyword);
    *out = fallback;
    if (!value || value->kind == VALUE_NONE || value_as_int(value, out))
        return 0;
    return render_fail(r, "expected an integer for argument %zu, not %s", i + 1, value_kind_name(value));
}

int arg_string(struct render *r, const struct args *args, size_t i, const char *keyword, const struct string **out)
{
    const struct value *value = arg_get(args, i, keyword);
    if (!value || value->kind != VALUE_STRING)
        return render_fail(r, "expected a string for argument %zu, not %s", i + 1,
                           value ? value_kind_name(value) : "nothing");
    *out = value->as.string;
    return 0;
}

static bool has_keyword(const char *keywords, const char *name)
{
    size_t length = strlen(name);
    if (keywords && !strcmp(keywords, "*"))
        return true;
    for (const char *at = keywords; at && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == length && !strncmp(at, name, length))
            return true;
    return false;
}

int eval_function(struct render *r, const struct function *function, const struct value *self, const struct args *args,
                  struct value *out)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (!has_keyword(function->keywords, args->names[i]))
            return render_fail(r, "%s has no argument \"%.60s\" here", function->name, args->names[i]);
    if (args->n + args->n_named < (size_t)function->min || args->n > (size_t)function->max)
        return render_fail(r, "%s takes %d to %d arguments, not %zu", function->name, function->min, function->max,
                           args->n + args->n_named);
    if (render_charge(r, 0))
        return -1;
    return function->call(r, self, args, out);
}

/* Frames are in the pool, because macros defined in a frame may refer to it after it has ended. */
static struct frame *frame_new(struct render *r, struct frame *up)
{
    struct frame *frame = pool_alloc(&r->pool, 1, sizeof *frame, r->err);
    if (frame)
        frame->up = up;
    return frame;
}

int eval_macro(struct render *r, const struct macro *macro, const struct args *args, struct value *out)
{
    const struct node *node = macro->node;
    struct frame *caller = r->frame;
    struct builder builder = {0}, *before = r->out;
    size_t used = 0;
    int rc = -1;
    r->frame = frame_new(r, macro->frame);
    if (!r->frame)
        goto done;
    r->out = &builder;
    for (size_t i = 0; i < node->n; i++) {
        const struct value *given = arg_get(args, i, node->items[i]->name);
        struct value value = value_undefined(node->items[i]->name);
        used += given != NULL;
        if (given)
            value = *given;
        else if (node->items[i]->a && eval_expression(r, node->items[i]->a, &value))
            goto done;
        if (frame_set(r, node->items[i]->name, value))
            goto done;
    }
    if (used != args->n + args->n_named) {
        render_fail(r, "macro %.60s takes at most %zu arguments, or lacks one of that name", node->name, node->n);
        goto done;
    }
    rc = eval_statements(r, node->a) || builder_end(r, &builder, out) ? -1 : 0;
done:
    r->frame = caller;
    r->out = before;
    return rc;
}

int eval_call(struct render *r, const struct value *callee, const struct args *args, struct value *out)
{
    switch (callee->kind) {
    case VALUE_MACRO: return eval_macro(r, callee->as.macro, args, out);
    case VALUE_FUNCTION: return eval_function(r, callee->as.function, NULL, args, out);
    case VALUE_METHOD: return eval_function(r, callee->as.bound->function, &callee->as.bound->self, args, out);
    case VALUE_UNDEFINED: return render_fail(r, "the function \"%.60s\" is not supported", callee->as.name);
    default: return render_fail(r, "%s cannot be called", value_kind_name(callee));
    }
}

/* ---- statements ---- */

static int assign(struct render *r, const struct node *node, const struct value *value)
{
    if (node->n == 1)
        return frame_set(r, node->items[0]->name, *value);
    struct list *list;
    if (value_iterate(r, value, &list))
        return -1;
    if (list->n != node->n)
        return render_fail(r, "%zu values for %zu names", list->n, node->n);
    for (size_t i = 0; i < node->n; i++)
        if (frame_set(r, node->items[i]->name, list->items[i]))
            return -1;
    return 0;
}

static int eval_set(struct render *r, const struct node *node)
{
    struct value value, target;
    if (eval_expression(r, node->a, &value))
        return -1;
    r->line = node->line;
    if (!node->name)
        return assign(r, node, &value);
    if (eval_expression(r, node->items[0], &target))
        return -1;
    if (target.kind != VALUE_NAMESPACE)
        return render_fail(r, "only a namespace's attributes can be set, not those of %s", value_kind_name(&target));
    return dict_put(r, target.as.dict, (struct string){ .data = node->name, .bytes = strlen(node->name) }, value);
}

static int eval_set_block(struct render *r, const struct node *node)
{
    struct builder builder = {0}, *before = r->out;
    struct value value;
    r->out = &builder;
    int rc = eval_statements(r, node->a);
    r->out = before;
    if (rc)
        return rc;
    return builder_end(r, &builder, &value) || frame_set(r, node->items[0]->name, value) ? -1 : 0;
}

/* Collects the items that pass the loop's condition. */
static int filtered(struct render *r, const struct node *node, struct list **list)
{
    struct frame frame = { .up = r->frame };
    struct value kept, value;
    if (!node->b)
        return 0;
    if (value_list(r, &kept))
        return -1;
    r->frame = &frame;
    for (size_t i = 0; i < (*list)->n; i++)
        if (assign(r, node, &(*list)->items[i]) || eval_expression(r, node->b, &value) ||
            (value_true(&value) && list_put(r, kept.as.list, (*list)->items[i])))
            return -1;
    r->frame = frame.up;
    *list = kept.as.list;
    return 0;
}

static int eval_for(struct render *r, const struct node *node)
{
    struct frame *outside = r->frame;
    struct value over;
    struct list *list;
    int rc = 0;
    if (eval_expression(r, node->a, &over) || value_iterate(r, &over, &list) || filtered(r, node, &list))
        return -1;
    if (!list->n)
        return node->d ? eval_statements(r, node->d) : 0;
    for (size_t i = 0; i < list->n && rc != EVAL_BREAK; i++) {
        struct loop *loop = pool_alloc(&r->pool, 1, sizeof *loop, r->err);
        r->frame = loop ? frame_new(r, outside) : NULL;
        if (!r->frame)
            return -1;
        *loop = (struct loop){ list, i };
        if (frame_set(r, "loop", (struct value){ .kind = VALUE_LOOP, .as.loop = loop }) || assign(r, node, &list->items[i]) ||
            (rc = eval_statements(r, node->c)) < 0)
            return -1;
    }
    r->frame = outside;
    return 0;
}

static int eval_if(struct render *r, const struct node *node)
{
    struct value value;
    for (; node && node->kind == NODE_IF; node = node->c) {
        if (eval_expression(r, node->a, &value))
            return -1;
        if (value_true(&value))
            return eval_statements(r, node->b);
    }
    return node ? eval_statements(r, node) : 0;
}

static int eval_macro_statement(struct render *r, const struct node *node)
{
    struct macro *macro = pool_alloc(&r->pool, 1, sizeof *macro, r->err);
    if (!macro)
        return -1;
    *macro = (struct macro){ node, r->frame };
    return frame_set(r, node->name, (struct value){ .kind = VALUE_MACRO, .as.macro = macro });
}

static int eval_statement(struct render *r, const struct node *node)
{
    struct value value;
    r->line = node->line;
    switch (node->kind) {
    case NODE_TEXT: return builder_put_string(r, r->out, node->value.as.string);
    case NODE_OUTPUT: return eval_expression(r, node->a, &value) ? -1 : write_value(r, r->out, &value);
    case NODE_IF: return eval_if(r, node);
    case NODE_FOR: return eval_for(r, node);
    case NODE_SET: return eval_set(r, node);
    case NODE_SET_BLOCK: return eval_set_block(r, node);
    case NODE_MACRO: return eval_macro_statement(r, node);
    case NODE_BLOCK: return eval_statements(r, node);
    case NODE_BREAK: return EVAL_BREAK;
    case NODE_CONTINUE: return EVAL_CONTINUE;
    default: return render_fail(r, "this is not a statement");
    }
}

int eval_statements(struct render *r, const struct node *block)
{
    int rc = 0;
    if (r->depth >= EVAL_DEPTH)
        return render_fail(r, "nested deeper than %d", EVAL_DEPTH);
    r->depth++;
    for (size_t i = 0; i < block->n && !rc; i++)
        rc = render_charge(r, 0) ? -1 : eval_statement(r, block->items[i]);
    r->depth--;
    return rc;
}
