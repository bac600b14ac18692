/* moe-view: prints streams and model files.
 *
 * Reads:  any stream (file or standard input), or a model file
 * Writes: lines for people, JSON lines or CSV
 * Exit:   0 done, and the input is whole; 2 trouble, or it is damaged */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/numeral.h"
#include "common/cli/command.h"
#include "common/model/model.h"
#include "common/model/model_index.h"
#include "common/model/model_show.h"
#include "common/stream/reader.h"
#include "common/stream/show.h"
#include "common/stream/show_origin.h"

struct view_args {
    struct strings files;
    const char *output, *type;
    int sequence, layer;
    bool verify, json, csv;
};

static const struct opt view_options[] = {
    OPT_FLAG(0, "verify", struct view_args, verify,
             "only check that each FILE is complete and undamaged: every record, digest and weight"),
    OPT_FLAG(0, "json", struct view_args, json, "write JSON lines"),
    OPT_FLAG(0, "csv", struct view_args, csv, "write a table of one type of record as CSV"),
    OPT_STRING('t', "type", struct view_args, type, "TYPE",
               "show only records of TYPE; also header, end and abort, or in a model file model, head and tensor"),
    OPT_COUNT('s', "sequence", struct view_args, sequence, 0, 2147483647, "show only records of sequence N"),
    OPT_COUNT('l', "layer", struct view_args, layer, 0, 65535, "show only layer N, counted among layers with a router; in a "
              "model file, among all layers"),
    OPT_OUTPUT('o', "output", struct view_args, output, "write to FILE, not standard output"),
    OPT_END };

static const struct opt_rule view_rules[] = {
    {OPT_EXCLUSIVE, "json|csv|verify", NULL, NULL},
    {OPT_EXCLUDES, "type|sequence|layer", "verify", "all is verified"}, OPT_RULES_END };

static const struct operand view_operands[] = { OPERAND_ANY("FILE", struct view_args, files), OPERAND_END };
static const struct view_args view_defaults = { .output = "-", .sequence = -1, .layer = -1 };

static enum show_form form_of(const struct view_args *args)
{
    return args->json ? SHOW_JSON : args->csv ? SHOW_CSV : SHOW_TEXT;
}

/* Checks --type. A table has one type of record, which must be named if the kind of stream has several. */
static int check_type(const struct stream_schema *schema, const struct view_args *args, const char **type, struct err *err)
{
    char names[200] = "";
    size_t used = 0;
    bool known = !args->type;
    for (const struct record_kind *const *record = schema->records; *record && used < sizeof names; record++) {
        known = known || !strcmp(args->type, (*record)->type);
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", (*record)->type);
    }
    if (args->csv && !args->type && schema->records[1])
        return err_set(err, ERR_INPUT, "--csv: writes one type of record; choose it with --type: %s", names);
    if (args->type && !args->csv)
        known = known || !strcmp(args->type, "header") || !strcmp(args->type, "end") || !strcmp(args->type, "abort") ||
                frame_is_ancillary(args->type);
    if (!known)
        return err_set(err, ERR_INPUT, "--type %.40s: no such record type; %s streams have the types %s", args->type,
                       schema->name, names);
    *type = args->type ? args->type : args->csv ? schema->records[0]->type : NULL;
    return 0;
}

static int show_stream_end(struct show *show, const struct reader *in, struct err *err)
{
    const struct frame_counts *counts = reader_counts(in);
    show_begin(show, "end", -1);
    show_map_begin(show, "records");
    for (size_t i = 0; i < counts->count; i++)
        show_uint(show, counts->items[i].type, counts->items[i].records);
    show_map_end(show);
    show_uint(show, "bytes", reader_bytes(in));
    return show_end(show, err);
}

/* Prints the last record of an aborted stream, which reports that the producer gave up; the stream is still incomplete. */
static void show_abort(struct show *show, const struct reader *in)
{
    const char *message = reader_abort_message(in);
    if (!message || show_form(show) == SHOW_CSV)
        return;
    show_begin(show, "abort", -1);
    show_text(show, "message", message, strlen(message));
    show_end(show, NULL);
}

static int verify_stream(struct show *show, struct reader *in, struct err *err)
{
    const struct record *record;
    int64_t records = 0;
    char size[NUMERAL_ROOM];
    int more;
    while ((more = reader_next(in, &record, err)) > 0)
        records++;
    if (more < 0)
        return -1;
    numeral_size(size, reader_bytes(in));
    show_line(show, "%s: whole: a %s stream of %lld record%s, %s", reader_name(in), reader_header(in)->kind_name,
              (long long)records, numeral_plural(records), size);
    return 0;
}

/* Refuses a sequence or layer that occurs in no record. last: the highest sequence in the stream; -1: none. */
static int refuse_none(const struct reader *in, const struct view_args *args, int64_t last, struct err *err)
{
    const char *of = args->type ? " of this --type" : "";
    const struct header *header = reader_header(in);
    if (args->sequence > last)
        return last < 0 ? err_set(err, ERR_INPUT, "--sequence %d: the records of %s have no sequence numbers; leave the "
                                  "option out",
                                  args->sequence, reader_name(in))
                        : err_set(err, ERR_INPUT, "--sequence %d: no such sequence in %s; it has the sequences 0 to %lld",
                                  args->sequence,
                                  reader_name(in), (long long)last);
    if (args->layer >= 0 && header->has_model && args->layer >= header->model.moe_layers)
        return err_set(err, ERR_INPUT, "--layer %d: no such layer in %s; its model has %d layers with a router, numbered from "
                       "0", args->layer,
                       reader_name(in), header->model.moe_layers);
    return err_set(err, ERR_INPUT, "--%s %d: in %s no record%s has this number; leave the option out",
                   args->sequence >= 0 ? "sequence" : "layer", args->sequence >= 0 ? args->sequence : args->layer,
                   reader_name(in), of);
}

/* Prints the selected records. live: each record is printed as soon as it arrives. */
static int view_stream(struct show *show, struct reader *in, const struct view_args *args, bool live, struct err *err)
{
    const struct header *header = reader_header(in);
    struct origins origins = {0};
    struct show_filter filter = {.sequence = args->sequence, .layer = args->layer, .origins = &origins};
    const struct record *record;
    int64_t last = -1, sequence = -1;
    bool shown = args->sequence < 0 && args->layer < 0;
    int more, rc = 0;
    if (args->verify)
        return verify_stream(show, in, err);
    if (check_type(stream_schema(header->kind), args, &filter.type, err))
        return -1;
    bool head = !filter.type || !strcmp(filter.type, "header"), end = !filter.type || !strcmp(filter.type, "end");
    if (head && show_header(show, header, err))
        return -1;
    while (rc >= 0 && (more = reader_next(in, &record, err)) > 0) {
        rc = (args->csv && origins_add(&origins, record, err)) ||
             (args->sequence >= 0 && record_int_if_any(record, "sequence", &sequence, err))
                 ? -1 : show_record(show, record, &filter, err);
        shown |= rc > 0;
        last = sequence > last ? sequence : last;
        if (rc > 0 && live && show_flush(show, err))
            rc = -1;
    }
    origins_free(&origins);
    if (rc < 0)
        return -1;
    if (more < 0 && (!filter.type || !strcmp(filter.type, "abort")))
        show_abort(show, in);
    if (more < 0 || (!shown && refuse_none(in, args, last, err)))
        return -1;
    return end ? show_stream_end(show, in, err) : 0;
}

static int view_model(struct show *show, const char *path, const struct view_args *args, struct err *err)
{
    struct model *model = NULL;
    int rc = -1;
    if (!strcmp(path, "-"))
        return err_set(err, ERR_INPUT, "standard input: a model file cannot be read from a pipe, because it is mapped; give "
                       "its name");
    if (args->sequence >= 0)
        return err_set(err, ERR_INPUT, "--sequence: %s is a model file, which has no sequences; leave the option out", path);
    if (model_open_any(&model, path, err))
        return -1;
    if (!args->verify) {
        rc = model_show(show, model, args->type, args->layer, err);
    } else if (!model_verify(model, err)) {
        show_line(show, "%s: whole: a %s of %d tensor%s", path, model_head(model) ? "draft head" : "model",
                  model_tensor_count(model), numeral_plural(model_tensor_count(model)));
        rc = 0;
    }
    model_close(&model);
    return rc;
}

/* Reads the first bytes, to recognise the kind of file. */
static int sniff(int fd, const char *name, char *bytes, size_t wanted, size_t *count, struct err *err)
{
    for (*count = 0; *count < wanted;) {
        size_t got;
        if (file_read_some(fd, name, bytes + *count, wanted - *count, &got, err))
            return -1;
        if (!got)
            break;
        *count += got;
    }
    return 0;
}

static int view_open(struct show *show, const char *path, int fd, const struct view_args *args, struct err *err)
{
    static const struct reader_options options = {.ancillary = true};
    const char *name = strcmp(path, "-") ? path : "standard input";
    char first[READER_SNIFF];
    size_t count;
    struct stat status;
    struct reader *in = NULL;
    bool live = fstat(fd, &status) || !S_ISREG(status.st_mode);
    int rc = sniff(fd, name, first, sizeof first, &count, err);
    if (rc || (count >= sizeof MODEL_MAGIC - 1 && !memcmp(first, MODEL_MAGIC, sizeof MODEL_MAGIC - 1))) {
        if (fd != STDIN_FILENO)
            close(fd);
        return rc ? rc : view_model(show, path, args, err);
    }
    if (reader_open_fd(&in, fd, name, first, count, STREAM_ANY, &options, err))
        return -1;
    rc = view_stream(show, in, args, live, err);
    reader_close(&in);
    return rc;
}

static int view_input(struct show *show, const char *path, const struct view_args *args, struct err *err)
{
    if (!strcmp(path, "-") && isatty(STDIN_FILENO))
        return err_set(err, ERR_INPUT, "standard input is a terminal; name a file, or pipe a stream in");
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    return fd < 0 ? err_errno(err, "%s", path) : view_open(show, path, fd, args, err);
}

/* Verifies each file in order, also after an incomplete one. */
static int verify_several(struct show *show, const struct view_args *args, const struct console *console, struct err *err)
{
    int faults = 0;
    for (int i = 0; i < args->files.count; i++) {
        struct err fault = {0};
        if (!view_input(show, args->files.items[i], args, &fault))
            continue;
        if (show_flush(show, err))
            return -1;
        console_fault(console, &fault);
        faults++;
    }
    if (!faults)
        return 0;
    return err_set(err, ERR_INPUT, "%d of %d files %s incomplete or damaged", faults, args->files.count,
                   faults == 1 ? "is" : "are");
}

static int view(const void *arguments, const struct console *console, struct err *err)
{
    const struct view_args *args = arguments;
    const char *path = args->files.count ? args->files.items[0] : "-";
    struct show *show = NULL;
    if (args->files.count > 1 && !args->verify)
        return err_set(err, ERR_INPUT, "'%s' is a second file, and only --verify reads several; give one file",
                       args->files.items[1]);
    if (show_open(&show, args->output, form_of(args), err))
        return -1;
    if (args->files.count > 1 ? verify_several(show, args, console, err) : view_input(show, path, args, err)) {
        show_flush(show, NULL);                 /* prints the records before the fault; an output file is not created */
        show_discard(&show);
        return -1;
    }
    return show_close(&show, err);
}

static const struct subcommand subcommands[] = {
    {.summary = "print, verify, filter and convert streams and model files", .options = view_options, .rules = view_rules,
     .operands = view_operands, .args_bytes = sizeof(struct view_args), .defaults = &view_defaults, .run = view},
    {0},
};

static const struct command moe_view = {"moe-view", "show what is in a stream or a model file", subcommands};

int main(int argc, char **argv) { return cli_main(argc, argv, &moe_view); }
