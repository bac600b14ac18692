#include "cmd/coact-analysis.h"

#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/version.h"
#include "common/report/record_report.h"
#include "common/stream/writer.h"

enum form { FORM_STREAM, FORM_TEXT, FORM_JSON, FORM_CSV, FORM_SVG };

const char *coact_output(const char *output) { return output ? output : "-"; }

static int choose_form(const struct coact_args *args, enum form *form, struct err *err)
{
    bool screen = !strcmp(coact_output(args->output), "-") && isatty(STDOUT_FILENO);
    *form = args->json ? FORM_JSON : args->csv ? FORM_CSV : args->svg ? FORM_SVG : FORM_STREAM;
    if (*form == FORM_STREAM && (args->text || screen))
        *form = FORM_TEXT;
    if (*form == FORM_STREAM && args->layer >= 0)
        return err_set(err, ERR_INPUT, "--layer: a stream has all layers; give --text, --json or --csv, too");
    return 0;
}

static int put_writer(void *writer, const struct record_kind *kind, const void *body, struct err *err)
{
    return writer_record(writer, kind, body, err);
}

static int emit_stream(const struct coact_finding *finding, const char *path, struct err *err)
{
    struct writer *out = NULL;
    int rc = writer_open(&out, path, finding->header, err) || finding->put(finding, put_writer, out, err) ||
             writer_close(&out, err) ? -1 : 0;
    writer_abort(&out, err);
    return rc;
}

static int emit_records(const struct coact_finding *finding, const char *path, enum show_form form, struct err *err)
{
    struct record_report report = { .header = finding->header, .layer = finding->layer };
    int rc = show_open(&report.show, path, form, err) || finding->put(finding, record_report_put, &report, err) ||
             show_close(&report.show, err) ? -1 : 0;
    show_discard(&report.show);
    return rc;
}

static int emit_page(const struct coact_finding *finding, const char *path, bool svg, struct err *err)
{
    struct text body = {0};
    struct output *out = NULL;
    int rc = (svg ? finding->svg : finding->text)(finding, &body, err) || output_open(&out, path, err) ||
             output_write(out, body.data, body.length, err) || output_commit(&out, err) ? -1 : 0;
    output_discard(&out);
    text_free(&body);
    return rc;
}

int coact_emit(const struct coact_finding *finding, const struct coact_args *args, struct err *err)
{
    const char *path = coact_output(args->output);
    enum form form;
    if (choose_form(args, &form, err))
        return -1;
    if (finding->layer >= finding->layers)
        return err_set(err, ERR_INPUT, "--layer %d: the model has %d layers with experts, numbered from 0", finding->layer,
                       finding->layers);
    switch (form) {
    case FORM_STREAM: return emit_stream(finding, path, err);
    case FORM_JSON: return emit_records(finding, path, SHOW_JSON, err);
    case FORM_CSV: return emit_records(finding, path, SHOW_CSV, err);
    default: return emit_page(finding, path, form == FORM_SVG, err);
    }
}

int coact_read(const struct route_consumer *consumer, const struct coact_args *args, const struct console *console,
                       enum stream_kind kind, struct header *header, struct err *err)
{
    struct progress bar;
    struct text note = {0};
    struct route_input input = { .paths = args->inputs.items, .count = args->inputs.count, .phases = args->phase,
                                 .force = args->force, .bar = &bar };
    enum form form;
    if (choose_form(args, &form, err))          /* checked before the work begins */
        return -1;
    console_progress(console, &bar, "tokens", 0);
    int rc = header_init(header, kind, console->program, MOE_VERSION, console->argc, console->argv, err) ||
             route_input_read(&input, consumer, header, &note, err) ? -1 : 0;
    progress_end(&bar);
    console_notes(console, &note);
    text_free(&note);
    return rc;
}

int coact_texts_alone(const struct coact_args *args, struct err *err)
{
    if (args->phase == ROUTE_VERIFY)
        return err_set(err, ERR_INPUT, "--phase verify: nodes that were rejected are next to none in a text; give --phase "
                       "decode, or measure drafts with union --trees");
    return 0;
}
