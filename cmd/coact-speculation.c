#include "cmd/coact-speculation.h"

#include "common/report/speculation_report.h"

struct windowed {
    struct windows *windows;
    const struct coact_args *args;
};

static int open_windows(void *context, const struct stream_model *model, struct err *err)
{
    struct windowed *w = context;
    return windows_open(&w->windows, model, w->args->draft_length + 1, err);
}

static int add_windows(void *context, const struct route_tokens *record, struct err *err)
{
    return windows_add(((struct windowed *)context)->windows, record, err);
}

static int end_windows(void *context, int64_t sequence, struct err *err)
{
    (void)err;
    windows_end(((struct windowed *)context)->windows, sequence);
    return 0;
}

static int measure_windows(const struct coact_args *args, const struct console *console, struct coact_finding found,
                           struct err *err)
{
    struct windowed w = { .args = args };
    struct route_consumer consumer = { .context = &w, .open = open_windows, .tokens = add_windows, .end = end_windows };
    struct header header = {0};
    int rc = -1;
    if (coact_texts_alone(args, err) || coact_read(&consumer, args, console, STREAM_COACT, &header, err))
        goto done;
    if (!windows_tokens(w.windows)) {
        route_phase_lacks(args->phase, err);
        goto done;
    }
    found.what = &w;
    found.layers = windows_layers(w.windows);
    found.layer = args->layer;
    found.header = &header;
    rc = coact_emit(&found, args, err);
done:
    windows_free(&w.windows);
    header_free(&header);
    return rc;
}

static struct reuse_setup reuse_of(const struct windowed *w)
{
    return (struct reuse_setup){ w->args->acceptance, w->args->draft_cost };
}

static int put_reuse(const struct coact_finding *f, record_put *put, void *context, struct err *err)
{
    const struct windowed *w = f->what;
    const struct reuse_setup setup = reuse_of(w);
    return windows_put_reuse(w->windows, &setup, put, context, err);
}

static int text_reuse(const struct coact_finding *f, struct text *out, struct err *err)
{
    const struct windowed *w = f->what;
    const struct reuse_setup setup = reuse_of(w);
    return reuse_text(out, w->windows, &setup, f->layer, err);
}

static int svg_reuse(const struct coact_finding *f, struct text *out, struct err *err)
{
    const struct windowed *w = f->what;
    const struct reuse_setup setup = reuse_of(w);
    return reuse_svg(out, w->windows, &setup, f->layer, f->header->model.name, err);
}

int coact_reuse(const void *args, const struct console *console, struct err *err)
{
    return measure_windows(args, console, (struct coact_finding){ .put = put_reuse, .text = text_reuse, .svg = svg_reuse },
                           err);
}

static int put_signal(const struct coact_finding *f, record_put *put, void *context, struct err *err)
{
    const struct windowed *w = f->what;
    return windows_put_signal(w->windows, w->args->threshold, put, context, err);
}

static int text_signal(const struct coact_finding *f, struct text *out, struct err *err)
{
    const struct windowed *w = f->what;
    return signal_text(out, w->windows, w->args->threshold, f->layer, err);
}

static int svg_signal(const struct coact_finding *f, struct text *out, struct err *err)
{
    return signal_svg(out, ((const struct windowed *)f->what)->windows, f->layer, f->header->model.name, err);
}

int coact_signal(const void *args, const struct console *console, struct err *err)
{
    return measure_windows(args, console, (struct coact_finding){ .put = put_signal, .text = text_signal, .svg = svg_signal },
                           err);
}

static int open_drift(void *context, const struct stream_model *model, struct err *err) { return drift_open(context, model,
                                                                                                            err); }

static int add_drift(void *context, const struct route_tokens *record, struct err *err)
{
    return drift_add(*(struct drift **)context, record, err);
}

static int end_drift(void *context, int64_t sequence, struct err *err)
{
    (void)err;
    drift_end(*(struct drift **)context, sequence);
    return 0;
}

static int put_drift(const struct coact_finding *f, record_put *put, void *context, struct err *err)
{
    return drift_put(f->what, put, context, err);
}

static int text_drift(const struct coact_finding *f, struct text *out, struct err *err)
{
    return drift_text(out, f->what, f->layer, err);
}

static int svg_drift(const struct coact_finding *f, struct text *out, struct err *err)
{
    return drift_svg(out, f->what, f->layer, f->header->model.name, err);
}

int coact_drift(const void *arguments, const struct console *console, struct err *err)
{
    const struct coact_args *args = arguments;
    struct drift *drift = NULL;
    struct route_consumer consumer = { .context = &drift, .open = open_drift, .tokens = add_drift, .end = end_drift };
    struct header header = {0};
    int rc = -1;
    if (coact_texts_alone(args, err) || coact_read(&consumer, args, console, STREAM_COACT, &header, err))
        goto done;
    if (!drift_pairs(drift)) {
        err_set(err, ERR_INPUT, "no text has two tokens of this phase; profile longer ones");
        goto done;
    }
    const struct coact_finding found = { .what = drift, .layers = drift_layers(drift), .layer = args->layer, .header = &header,
                                   .put = put_drift, .text = text_drift, .svg = svg_drift };
    rc = coact_emit(&found, args, err);
done:
    drift_free(&drift);
    header_free(&header);
    return rc;
}
