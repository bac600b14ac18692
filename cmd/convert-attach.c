#include "cmd/convert-attach.h"

#include "common/base/file.h"
#include "common/session/attached.h"

const struct opt attach_options[] = { OPT_END };
const struct operand attach_operands[] = {
    OPERAND_ONE("MODEL", struct attach_args, model), OPERAND_ANY("HEAD", struct attach_args, files), OPERAND_END };

/* Prints one --draft argument per line to standard output. */
static int print_attached(const struct attached *attached, struct err *err)
{
    struct text text = {0};
    int rc = 0;
    for (int i = 0; !rc && i < attached->count; i++)
        rc = text_printf(&text, err, "%s\n", attached->draft[i]);
    rc = rc || output_whole("-", &text, err) ? -1 : 0;
    text_free(&text);
    return rc;
}

int convert_attach(const void *arguments, const struct console *console, struct err *err)
{
    const struct attach_args *args = arguments;
    struct attached attached = {0};
    struct model *model = NULL;
    int rc = model_open(&model, args->model, err);
    if (!rc && args->files.count)
        rc = attached_write(model, args->files.items, args->files.count, err);
    if (!rc)
        rc = attached_read(&attached, args->model, err) || attached_check(&attached, model, err) ? -1 : 0;
    if (!rc && !args->files.count)
        rc = print_attached(&attached, err);
    for (int i = 0; !rc && args->files.count && i < attached.count; i++)
        console_note(console, "%s: from now on -d auto can draft with %s", args->model, attached.draft[i]);
    attached_free(&attached);
    model_close(&model);
    return rc;
}
