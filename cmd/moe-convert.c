/* moe-convert: model files from checkpoints, from known shapes, and from other model files; draft heads for them.
 *
 * Reads:  a Hugging Face folder, .safetensors, pytorch_model.bin, .gguf, or any of these in a tar or zip, also from standard
 *         input; a config.json; a .moe file
 * Writes: a .moe file; text for list and --dry-run
 * Exit:   0 done, 2 trouble */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/convert-attach.h"
#include "cmd/convert-source.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/base/version.h"
#include "common/checkpoint/convert_head.h"
#include "common/checkpoint/export_head.h"
#include "common/cli/command.h"
#include "common/cli/number.h"
#include "common/model/requant.h"
#include "common/model/step.h"
#include "common/model/synthetic.h"
#include "common/tokenizer/tokenizer.h"

static const char PRODUCER[] = "moe-convert " MOE_VERSION;

enum { KEEP = 0, NOT_GIVEN = -1 };      /* values of the choices below; the others are in the order of enum weight_format */
static const char *const kept_formats[] = {"keep", "f32", "f16", "bf16", "fp8", "q8", "q4", NULL};
static const char *const plain_formats[] = {"f32", "f16", "bf16", "fp8", "q8", "q4", NULL};

struct build_args {
    const char *source, *output, *name;
    int dtype, expert_dtype, threads;
    bool dry_run, list_families;
};

#define WRITE_OPTIONS(args) \
    OPT_OUTPUT('o', "output", args, output, "write the model to FILE"), \
    OPT_FLAG(0, "dry-run", args, dry_run, "print what would be written, and write nothing"), \
    OPT_THREADS(args, threads)

static const struct opt build_options[] = {
    OPT_CHOICE(0, "dtype", struct build_args, dtype, kept_formats,
               "store matrices in this format; fp8, q8 and q4 do not apply to routers and untied embeddings, and vectors are "
               "always f32"),
    OPT_CHOICE(0, "expert-dtype", struct build_args, expert_dtype, kept_formats,
               "store the routed experts in this format; that of --dtype if not given"),
    OPT_STRING(0, "name", struct build_args, name, "NAME", "give the model this name; the name of its folder or file if not "
               "given"),
    OPT_FLAG(0, "list-families", struct build_args, list_families, "print the supported families as a table, and nothing else"),
    WRITE_OPTIONS(struct build_args), OPT_END };
static const struct operand build_operands[] = { OPERAND_MAYBE("SOURCE", struct build_args, source), OPERAND_END };
static const struct opt_rule build_rules[] = {
    {OPT_EXCLUDES, "dtype|expert-dtype|name|output|dry-run|threads", "list-families", "nothing is converted"}, OPT_RULES_END };
static const struct build_args build_defaults = { .expert_dtype = NOT_GIVEN };

/* Prints the plan to standard output, instead of writing the file. */
static int print_plan(struct layout *layout, const struct hparams *shape, const struct head_params *head, struct err *err)
{
    struct text text = {0};
    uint64_t end;
    int rc = layout_arrange(layout, MODEL_PAGE, &end, err) || layout_print(&text, layout, shape, head, err) ||
             output_whole("-", &text, err) ? -1 : 0;
    text_free(&text);
    return rc;
}

/* Refuses the file name endings of other programs' formats, which are read, but not written. */
static int check_ending(const char *output, struct err *err)
{
    static const char *const others[] = {".gguf", ".safetensors", ".bin", ".pt", ".pth", ".onnx", ".json", ".jsonl", ".moes"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (text_ends(output, others[i]))
            return err_set(err, ERR_INPUT, "-o %s: moe-convert writes a model file, not a %s file; name it %.*s.moe", output,
                           others[i], (int)(strlen(output) - strlen(others[i])), output);
    return 0;
}

static int check_output(const char *output, const char *name, bool dry_run, struct err *err)
{
    if (name && !*name)
        return err_set(err, ERR_INPUT, "--name: the name is empty; give one, or leave --name out for the default");
    if (dry_run)
        return 0;
    if (!output)
        return err_set(err, ERR_INPUT, "no output is given; name the model file to write with -o FILE");
    if (strcmp(output, "-") == 0)
        return err_set(err, ERR_INPUT, "-o -: a model file cannot be written to standard output, because it must be mapped; "
                       "name a file");
    struct stat status;             /* checked before any temporary file is written beside the output */
    if (stat(output, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
        return err_set(err, ERR_INPUT, "-o %s: is a device or pipe, and a model file must be mapped; name a file on disk",
                       output);
    return access(output, F_OK) ? check_ending(output, err) : 0;       /* an existing file may be the source; a later check
                                                                        * reports that more precisely */
}

/* Opens the checkpoint that `source` names, also in the cache of the Hugging Face hub. *name: a name from the user is kept;
 * NULL becomes the repository's name, stored in the checkpoint, because folders in the cache are named by commits. */
static int open_source(struct checkpoint **checkpoint, const char *source, const char *beside, const char **name,
                       const struct console *console, struct err *err)
{
    struct convert_source found;
    if (convert_source_find(&found, source, err) || checkpoint_open(checkpoint, found.path, beside, err))
        return -1;
    if (strcmp(found.path, source))
        console_note(console, "%s: found as %s", source, found.path);
    if (*found.name && !*name)
        *name = memcpy((*checkpoint)->name, found.name, sizeof found.name);
    return 0;
}

/* Checks that no output overwrites a file of the checkpoint. The checkpoint must be open, because the files of a folder are
 * known only then. */
static int check_sources(const struct checkpoint *checkpoint, const struct console *console, struct err *err)
{
    for (size_t i = 0; i < checkpoint->file_count; i++) {
        const struct source_file *file = &checkpoint->files[i];
        if (claims_identity(&console->claims, "SOURCE", file->name, &file->identity, err))
            return -1;
    }
    return 0;
}

static int start_pool(struct thread_pool **pool, const char *output, int threads, struct err *err)
{
    return check_ending(output, err) ? -1 : thread_pool_new(pool, threads ? threads : thread_pool_cores(), err);
}

static struct format_choice choose(int choice)
{
    if (choice == KEEP)
        return (struct format_choice){.keep = true};
    return (struct format_choice){.format = (enum weight_format)(choice - 1)};
}

static void note_changed(const struct conversion *plan, const struct console *console)
{
    if (plan->widened)
        console_note(console, "%zu tensors are stored as f32, the first is %s: their parts differ in dtype, or no format can "
                     "keep their rows or codes; --dtype bf16, q8 or q4 stores them in fewer bytes",
                     plan->widened, plan->widened_first);
    if (plan->skipped)
        console_note(console, "%zu tensor%s (the first: %s) %s left out: %s", plan->skipped,
                     numeral_plural((int64_t)plan->skipped), plan->first_skipped, plan->skipped == 1 ? "is" : "are",
                     plan->naming->left_out ? plan->naming->left_out : "only the text model is converted");
}

/* Prints the plan if this is a dry run; writes the file otherwise. */
static int carry_out(struct conversion *plan, const char *output, bool dry_run, int threads, const struct console *console,
                     struct err *err)
{
    const struct head_params *head = plan->facts.head.kind != HEAD_NONE ? &plan->facts.head : NULL;
    struct thread_pool *pool = NULL;
    struct progress bar;
    if (dry_run)
        return print_plan(&plan->layout, &plan->facts.shape, head, err);
    if (start_pool(&pool, output, threads, err))
        return -1;
    console_progress(console, &bar, "bytes", 0);
    int rc = conversion_write(plan, output, pool, &bar, err);
    progress_end(&bar);
    thread_pool_free(&pool);
    return rc;
}

/* Plans the conversion of a model. Reports a draft head as such: it lacks tensors of a model, so the plan's own error would be
 * misleading. */
static int plan_model(struct conversion *plan, struct checkpoint *checkpoint, const struct build_args *args,
                      const struct convert_options *options, struct err *err)
{
    struct err fault = {0};
    if (!conversion_plan(plan, checkpoint, options, &fault))
        return 0;
    const enum head_kind kind = checkpoint_head_kind(checkpoint);
    if (kind != HEAD_NONE)
        return err_set(err, ERR_INPUT, "%s: is a draft head (%s), not a model; `moe-convert head --target MODEL.moe %s` "
                       "converts it", checkpoint->path, head_kind_name(kind), args->source);
    return err_set(err, fault.code, "%s", fault.text);
}

/* Prints the table of docs/families.md. */
static int list_families(struct err *err)
{
    struct text text = {0};
    const struct arch *arch;
    int rc = text_puts(&text, "| model_type | models |\n|---|---|\n", err);
    for (int i = 0; (arch = arch_at(i)) && !rc; i++)
        rc = text_printf(&text, err, "| %s%s%s | %s |\n", arch->model_type, arch->also ? ", " : "",
                         arch->also ? arch->also : "", arch->summary);
    rc = rc || output_whole("-", &text, err) ? -1 : 0;
    text_free(&text);
    return rc;
}

static int build(const void *arguments, const struct console *console, struct err *err)
{
    const struct build_args *args = arguments;
    struct convert_options options = {
        .dense = choose(args->dtype), .experts = choose(args->expert_dtype == NOT_GIVEN ? args->dtype : args->expert_dtype),
        .name = args->name, .producer = PRODUCER};
    struct checkpoint *checkpoint = NULL;
    struct conversion plan = {0};
    int rc = -1;
    struct convert_source found;            /* reports a repository that is not downloaded before a missing -o */
    if (args->list_families)
        return args->source ? err_set(err, ERR_INPUT, "--list-families: prints a table and converts nothing; leave it or %s "
                                      "out", args->source) : list_families(err);
    if (!args->source)
        return err_set(err, ERR_INPUT, "SOURCE is missing; name a checkpoint's folder or file, or a repository of the Hugging "
                       "Face hub");
    if (convert_source_find(&found, args->source, err) || check_output(args->output, args->name, args->dry_run, err) ||
        open_source(&checkpoint, args->source, args->dry_run ? NULL : args->output, &options.name, console, err) ||
        (!args->dry_run && check_sources(checkpoint, console, err)) ||
        plan_model(&plan, checkpoint, args, &options, err))
        goto done;
    note_changed(&plan, console);
    if (!plan.facts.tokenizer_json.length)
        console_note(console, "no tokenizer.json, tokenizer.model or tiktoken.model was found, so the model reads and writes "
                     "token ids only");
    rc = carry_out(&plan, args->output, args->dry_run, args->threads, console, err);
done:
    conversion_free(&plan);
    checkpoint_close(&checkpoint);
    return rc;
}

struct head_args {
    const char *source, *target, *output, *name;
    int kind, exit_layer, layer_ids, dtype, threads, program;
    bool safetensors, dry_run;
};

/* In the order of enum head_kind, which begins with HEAD_NONE. EAGLE-2's heads have the format of EAGLE-1. */
static const char *const head_kinds[] = {
    "auto", "eagle1", "eagle3", "medusa", "hydra", "kangaroo", "jakiro", "jakiro_star", "eagle2", NULL};
static const char *const layer_id_choices[] = {"auto", "output", "input", NULL};       /* enum layer_ids */

static const struct opt head_options[] = {
    OPT_INPUT(0, "target", struct head_args, target, "name the model file that the head drafts for"),
    OPT_CHOICE(0, "kind", struct head_args, kind, head_kinds, "convert as this kind of draft head; auto recognises the kind "
               "by its tensors"),
    OPT_COUNT(0, "exit-layer", struct head_args, exit_layer, 1, LAYERS_MAX,
              "kangaroo: read the state after N layers; the number in its config.json if not given"),
    OPT_CHOICE(0, "layer-ids", struct head_args, layer_ids, layer_id_choices,
               "eagle3: read the layer ids of config.json as states after (output) or before (input) a layer; auto: input for "
               "vLLM speculators, else output"),
    OPT_CHOICE(0, "dtype", struct head_args, dtype, kept_formats,
               "store matrices in this format; fp8, q8 and q4 do not apply to routers and untied embeddings, and vectors are "
               "always f32"),
    OPT_STRING(0, "name", struct head_args, name, "NAME", "give the head this name; the name of its folder or file if not "
               "given"),
    OPT_CHOICE(0, "export", struct head_args, program, head_program_words,
               "export the head file SOURCE to a new folder, in the format of this program"),
    OPT_FLAG(0, "safetensors", struct head_args, safetensors,
             "--export: write weights as safetensors, even if the program's own loader expects a pickle"),
    OPT_OUTPUT('o', "output", struct head_args, output, "write the head to FILE"),
    OPT_FLAG(0, "dry-run", struct head_args, dry_run, "print what would be written, and write nothing"),
    OPT_THREADS(struct head_args, threads), OPT_END };
static const struct opt_rule head_rules[] = {
    {OPT_NEEDS, "safetensors", "export", "what is converted becomes a head file"}, OPT_RULES_END };
static const struct operand head_operands[] = { OPERAND_ONE("SOURCE", struct head_args, source), OPERAND_END };

/* Refuses options of conversions, which would have no effect on an export. */
static int check_export(const struct head_args *args, struct err *err)
{
    const char *other = args->target ? "target" : args->kind ? "kind" : args->exit_layer ? "exit-layer"
                      : args->layer_ids ? "layer-ids" : args->dtype ? "dtype" : args->name ? "name" : NULL;
    if (other)
        return err_set(err, ERR_INPUT, "--%s: has no effect with --export, which writes the head unchanged; leave it out",
                       other);
    return args->output || args->dry_run ? 0 : err_set(err, ERR_INPUT, "no output is given; name the folder to write with -o "
                                                       "FOLDER");
}

static int print_export(const struct head_export *export, struct err *err)
{
    struct text text = {0};
    int rc = head_export_print(export, &text, err) || output_whole("-", &text, err) ? -1 : 0;
    text_free(&text);
    return rc;
}

static int export_head(const struct head_args *args, const struct console *console, struct err *err)
{
    const struct head_export_request request = {(enum head_program)args->program, args->safetensors};
    struct head_export *export = NULL;
    struct model *model = NULL;
    struct text note = {0};
    int rc = check_export(args, err) || model_open_head(&model, args->source, err) ? -1 : 0;
    if (!rc && head_export_open(&export, model, &request, &note, err))
        rc = err_at(err, "%s", args->source);
    if (!rc)
        rc = args->dry_run ? print_export(export, err) : head_export_write(export, args->output, err);
    if (!rc)
        console_notes(console, &note);
    head_export_close(&export);
    model_close(&model);
    text_free(&note);
    return rc;
}

/* Refuses options that belong to another kind of head. */
static int check_kind(const struct head_args *args, enum head_kind kind, struct err *err)
{
    if (args->exit_layer && kind != HEAD_KANGAROO)
        return err_set(err, ERR_INPUT, "--exit-layer: applies to kangaroo heads only, and this is a %s head; leave it out",
                       head_kind_name(kind));
    if (args->layer_ids && kind != HEAD_EAGLE3)
        return err_set(err, ERR_INPUT, "--layer-ids: applies to eagle3 heads only, and this is a %s head; leave it out",
                       head_kind_name(kind));
    return 0;
}

static int head(const void *arguments, const struct console *console, struct err *err)
{
    const struct head_args *args = arguments;
    struct head_options options = {
        .format = choose(args->dtype), .exit_layer = args->exit_layer, .layer_ids = (enum layer_ids)args->layer_ids,
        .kind = args->kind < HEAD_KINDS ? (enum head_kind)args->kind : HEAD_EAGLE1, .name = args->name, .producer = PRODUCER};
    struct checkpoint *checkpoint = NULL;
    struct conversion plan = {0};
    struct model *target = NULL;
    struct text notes = {0};
    int rc = -1;
    if (args->program)
        return export_head(args, console, err);
    if (!args->target)
        return err_set(err, ERR_INPUT, "no target is given; name the model file that the head drafts for with --target FILE");
    if (check_output(args->output, args->name, args->dry_run, err) || model_open(&target, args->target, err) ||
        open_source(&checkpoint, args->source, args->dry_run ? NULL : args->output, &options.name, console, err) ||
        (!args->dry_run && check_sources(checkpoint, console, err)) ||
        conversion_plan_head(&plan, checkpoint, target, &options, &notes, err) || check_kind(args, plan.facts.head.kind, err))
        goto done;
    note_changed(&plan, console);
    rc = carry_out(&plan, args->output, args->dry_run, args->threads, console, err);
    if (!rc)
        console_note(console, "%s: %s", head_kind_name(plan.facts.head.kind),
                     notes.length ? notes.data : "all tensors are the head's own; it shares none with its target");
done:
    conversion_free(&plan);
    checkpoint_close(&checkpoint);
    model_close(&target);
    text_free(&notes);
    return rc;
}

struct synthetic_args {
    const char *like, *output, *name, *target;
    int layers, dtype, expert_dtype, threads, head;
    uint64_t seed;
    bool dry_run;
};

/* In the order of enum head_kind. */
static const char *const synthetic_heads[] = {
    "none", "eagle1", "eagle3", "medusa", "hydra", "kangaroo", "jakiro", "jakiro_star", NULL};

static const struct opt synthetic_options[] = {
    OPT_STRING_OF(0, "like", struct synthetic_args, like, "NAME|FILE", known_shape_at,
                  "use the shape of a known model, or of a config.json"),
    OPT_COUNT('l', "layers", struct synthetic_args, layers, 1, LAYERS_MAX,
              "make N layers; as many as the shape has if not given"),
    OPT_CHOICE(0, "dtype", struct synthetic_args, dtype, plain_formats,
               "store matrices in this format; fp8, q8 and q4 do not apply to routers and untied embeddings, and vectors are "
               "always f32"),
    OPT_CHOICE(0, "expert-dtype", struct synthetic_args, expert_dtype, plain_formats,
               "store the routed experts in this format; that of --dtype if not given"),
    OPT_CHOICE(0, "head", struct synthetic_args, head, synthetic_heads,
               "make a draft head of this kind for --target; --like then names its config.json, and its usual shape is used "
               "if not given"),
    OPT_INPUT(0, "target", struct synthetic_args, target, "name the model file that the head drafts for"),
    OPT_STRING(0, "name", struct synthetic_args, name, "NAME", "give the model this name; that of the shape if not given"),
    OPT_SEED(struct synthetic_args, seed), WRITE_OPTIONS(struct synthetic_args), OPT_END };
static const struct synthetic_args synthetic_defaults = { .dtype = FORMAT_BF16, .expert_dtype = NOT_GIVEN };

/* Reads the shape of the synthetic model, and that of the synthetic draft head if one is requested. */
static int read_invented(const struct synthetic_args *args, struct head_reading *out, struct err *err)
{
    struct model *target = NULL;
    struct text text = {0};
    json_t *config = NULL;
    int rc = -1;
    if (!args->head && !args->like)
        return err_set(err, ERR_INPUT, "no shape is given; name one with --like NAME (`moe-convert list` lists them)");
    if (!args->head) {
        int read = known_shape_read(args->like, "--like", args->layers, &text, &out->shape, err);
        text_free(&text);
        return read;
    }
    if (args->like && (file_read(&text, args->like, source_text_kinds[TEXT_CONFIG].limit, err) ||
                       config_parse(&config, text.data, text.length, err)))
        goto done;
    if (model_open(&target, args->target, err) || head_invent(out, (enum head_kind)args->head, config, target, err))
        goto done;
    rc = 0;
done:
    json_decref(config);
    model_close(&target);
    text_free(&text);
    return rc;
}

/* Makes the tokenizer: a model has one with made-up words, so that it accepts texts; a draft head uses its target's
 * tokenizer. */
static int make_tokenizer(struct synthetic_options *options, int vocab, struct err *err)
{
    struct text *json = &options->tokenizer_json;
    struct tokenizer *tokenizer = NULL;
    if (options->head || tokenizer_made(json, vocab, err))
        return options->head ? 0 : -1;
    if (json->length && tokenizer_new(&tokenizer, json->data, json->length, err))
        return -1;
    if (tokenizer)
        tokenizer_hash(tokenizer, &options->tokenizer);
    tokenizer_free(&tokenizer);
    return 0;
}

static int synthetic(const void *arguments, const struct console *console, struct err *err)
{
    const struct synthetic_args *args = arguments;
    struct synthetic_options options = {
        .dense = (enum weight_format)args->dtype, .seed = args->seed, .producer = PRODUCER,
        .experts = (enum weight_format)(args->expert_dtype == NOT_GIVEN ? args->dtype : args->expert_dtype)};
    struct head_reading made = {0};
    struct layout layout = {0};
    struct thread_pool *pool = NULL;
    struct progress bar;
    int rc = -1;
    if (check_output(args->output, args->name, args->dry_run, err) || read_invented(args, &made, err))
        goto done;
    options.head = args->head ? &made.head : NULL;
    options.name = args->name ? args->name : args->like && known_shape(args->like) ? args->like : made.shape.family;
    if (args->dry_run) {
        rc = synthetic_plan(&layout, &made.shape, &options, err) ||
             print_plan(&layout, &made.shape, options.head, err) ? -1 : 0;
        goto done;
    }
    if (make_tokenizer(&options, made.shape.vocab, err) || start_pool(&pool, args->output, args->threads, err))
        goto done;
    console_progress(console, &bar, "bytes", 0);
    rc = synthetic_write(args->output, &made.shape, &options, pool, &bar, err);
    progress_end(&bar);
done:
    thread_pool_free(&pool);
    layout_free(&layout);
    head_reading_free(&made);
    text_free(&options.tokenizer_json);
    return rc;
}

struct inflate_args {
    const char *model, *output, *share, *of;
    int expert_ffn, dense_ffn, threads;
    bool dry_run;
};

static const struct opt_rule synthetic_rules[] = {
    {OPT_NEEDS, "head", "target", "a draft head is made for a model"},
    {OPT_NEEDS, "target", "head", "it applies to draft heads"},
    {OPT_EXCLUDES, "layers", "head", "a draft head has one layer or none"}, OPT_RULES_END };

static const struct opt_rule inflate_rules[] = {
    {OPT_NEEDS, "step", "of", "it is a share of another model's bytes"},
    {OPT_NEEDS, "of", "step", "the share of the model's bytes is missing"}, OPT_RULES_END };

static const struct opt inflate_options[] = {
    OPT_COUNT(0, "expert-ffn", struct inflate_args, expert_ffn, 1, WIDTH_MAX,
              "pad every expert with zeros to an inner width of N"),
    OPT_COUNT(0, "dense-ffn", struct inflate_args, dense_ffn, 1, WIDTH_MAX,
              "pad the layers of a model without experts with zeros to an inner width of N"),
    OPT_STRING(0, "step", struct inflate_args, share, "SHARE",
               "pad so that a token reads SHARE, such as 3%, of the bytes that a token of model --of reads; for a draft head, "
               "--of is its target"),
    OPT_INPUT(0, "of", struct inflate_args, of, "--step: compare with the model FILE"),
    WRITE_OPTIONS(struct inflate_args), OPT_END };
static const struct operand inflate_operands[] = { OPERAND_ONE("MODEL", struct inflate_args, model), OPERAND_END };

/* Returns the requested inner width, given in one of three ways. */
static int choose_width(const struct inflate_args *args, const struct model *model, int *inner, struct err *err)
{
    const bool experts = inflate_role(model_hparams(model)) == ROLE_EXPERTS;
    const struct head_params *head = model_head(model);
    struct step_bytes bytes;
    struct model *other = NULL;
    double share;
    if (!args->expert_ffn + !args->dense_ffn + !args->share != 2)
        return err_set(err, ERR_INPUT, args->expert_ffn || args->dense_ffn || args->share
                       ? "--expert-ffn, --dense-ffn and --step each set the width; give one of them"
                       : "no width is given; set the inner width of experts with --expert-ffn N, that of dense layers with "
                       "--dense-ffn N, or either with --step SHARE");
    if (args->expert_ffn && !experts)
        return err_set(err, ERR_INPUT, "%s: has no experts to inflate; inflate its dense layers with --dense-ffn", args->model);
    if (args->dense_ffn && experts)
        return err_set(err, ERR_INPUT, "%s: has experts, and only those can be inflated; use --expert-ffn", args->model);
    *inner = args->expert_ffn + args->dense_ffn;
    if (!args->share)
        return 0;
    if (number_share(args->share, &share, err))
        return err_at(err, "--step");
    if (model_open(&other, args->of, err))
        return -1;
    step_bytes(&bytes, other);
    model_close(&other);
    /* A head without an output head uses its target's. */
    uint64_t rest = head && head->kind != HEAD_EAGLE3 ? bytes.head : 0;
    uint64_t all = (uint64_t)((double)step_bytes_all(&bytes) * share);
    return inflate_width(inner, model, all > rest ? all - rest : 0, err);
}

static int inflate(const void *arguments, const struct console *console, struct err *err)
{
    const struct inflate_args *args = arguments;
    struct model *model = NULL;
    struct layout layout = {0};
    struct thread_pool *pool = NULL;
    struct progress bar;
    int inner, rc = -1;
    if (check_output(args->output, NULL, args->dry_run, err) || model_open_any(&model, args->model, err) ||
        choose_width(args, model, &inner, err))
        goto done;
    if (args->dry_run) {
        struct hparams shape = *model_hparams(model);
        *inflate_inner(&shape) = inner;
        rc = inflate_plan(&layout, model, inner, err) || print_plan(&layout, &shape, model_head(model), err) ? -1 : 0;
        goto done;
    }
    if (start_pool(&pool, args->output, args->threads, err))
        goto done;
    console_progress(console, &bar, "bytes", 0);
    rc = inflate_write(args->output, model, inner, PRODUCER, pool, &bar, err);
    progress_end(&bar);
done:
    thread_pool_free(&pool);
    layout_free(&layout);
    model_close(&model);
    return rc;
}

struct requant_args {
    const char *model, *output, *name;
    int dtype, expert_dtype, threads;
    bool dry_run;
};

static const struct opt requant_options[] = {
    OPT_CHOICE(0, "dtype", struct requant_args, dtype, kept_formats,
               "store matrices in this format; fp8, q8 and q4 leave routers and untied embeddings as they are"),
    OPT_CHOICE(0, "expert-dtype", struct requant_args, expert_dtype, kept_formats,
               "store the routed experts in this format; that of --dtype if not given"),
    OPT_STRING(0, "name", struct requant_args, name, "NAME", "give the model this name; its present name if not given"),
    WRITE_OPTIONS(struct requant_args), OPT_END };
static const struct operand requant_operands[] = { OPERAND_ONE("MODEL", struct requant_args, model), OPERAND_END };
static const struct requant_args requant_defaults = { .expert_dtype = NOT_GIVEN };

/* Converts the words of --dtype and --expert-dtype. */
static struct requant_choice requant_choice_of(int choice)
{
    const struct format_choice chosen = choose(choice);
    return (struct requant_choice){.keep = chosen.keep, .format = chosen.format};
}

static int requant(const void *arguments, const struct console *console, struct err *err)
{
    const struct requant_args *args = arguments;
    const int experts = args->expert_dtype == NOT_GIVEN ? args->dtype : args->expert_dtype;
    const struct requant_options options = {.dense = requant_choice_of(args->dtype),
                                            .experts = requant_choice_of(experts), .name = args->name, .producer = PRODUCER};
    struct model *model = NULL;
    struct layout layout = {0};
    struct thread_pool *pool = NULL;
    struct progress bar;
    int rc = -1;
    if (check_output(args->output, args->name, args->dry_run, err))
        return -1;
    if (options.dense.keep && options.experts.keep)
        return err_set(err, ERR_INPUT, "no weights would change format; choose a format other than keep for --dtype or "
                       "--expert-dtype");
    if (model_open_any(&model, args->model, err))
        goto done;
    if (args->dry_run) {
        rc = requant_plan(&layout, model, &options, err) ||
             print_plan(&layout, model_hparams(model), model_head(model), err) ? -1 : 0;
        goto done;
    }
    if (start_pool(&pool, args->output, args->threads, err))
        goto done;
    console_progress(console, &bar, "bytes", 0);
    rc = requant_write(args->output, model, &options, pool, &bar, err);
    progress_end(&bar);
done:
    thread_pool_free(&pool);
    layout_free(&layout);
    model_close(&model);
    return rc;
}

struct list_args { int unused; };
static const struct opt list_options[] = { OPT_END };

static int list(const void *arguments, const struct console *console, struct err *err)
{
    struct text text = {0};
    const char *name, *summary;
    int width = 0;
    int rc = text_puts(&text, "families (model_type of config.json)\n", err);
    (void)arguments, (void)console;
    for (int i = 0; arch_at(i) && !rc; i++)
        rc = text_printf(&text, err, "  %-14s %s\n", arch_at(i)->model_type, arch_at(i)->summary);
    rc = rc || text_puts(&text, "\nweight formats\n", err);
    for (int i = 0; i < FORMAT_COUNT && !rc; i++)
        rc = text_printf(&text, err, "  %s\n", format_name((enum weight_format)i));
    rc = rc || text_puts(&text, "\nshapes for synthetic --like\n", err);
    for (int i = 0; (name = known_shape_at(i, &summary)); i++)
        width = (int)strlen(name) > width ? (int)strlen(name) : width;
    for (int i = 0; (name = known_shape_at(i, &summary)) && !rc; i++)
        rc = text_printf(&text, err, "  %-*s  %s\n", width, name, summary);
    rc = rc || output_whole("-", &text, err) ? -1 : 0;
    text_free(&text);
    return rc;
}

static const struct subcommand subcommands[] = {
    { .name = "build", .summary = "convert a checkpoint", .options = build_options,
      .rules = build_rules, .operands = build_operands,
      .implied = true, .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct build_args),
      .defaults = &build_defaults, .run = build },
    { .name = "head", .summary = "convert a draft head for a model", .options = head_options, .rules = head_rules,
      .operands = head_operands,
      .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct head_args), .run = head },
    { .name = "synthetic", .summary = "make random weights of a known shape", .options = synthetic_options,
      .rules = synthetic_rules, .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct synthetic_args),
      .defaults = &synthetic_defaults, .run = synthetic },
    { .name = "inflate", .summary = "pad a model with zeros to a larger size",
      .options = inflate_options,
      .rules = inflate_rules, .operands = inflate_operands, .console = CONSOLE_QUIET | CONSOLE_PROGRESS,
      .args_bytes = sizeof(struct inflate_args), .run = inflate },
    { .name = "requant", .summary = "store a model's weights in another format", .options = requant_options,
      .operands = requant_operands, .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct requant_args),
      .defaults = &requant_defaults, .run = requant },
    { .name = "attach", .summary = "name the draft heads and draft models that --draft auto uses with a model",
      .options = attach_options, .operands = attach_operands, .console = CONSOLE_QUIET,
      .args_bytes = sizeof(struct attach_args), .run = convert_attach },
    { .name = "list", .summary = "print families, weight formats and known shapes", .options = list_options,
      .args_bytes = sizeof(struct list_args), .run = list },
    { .run = NULL },
};

static const struct command moe_convert = { "moe-convert", "make model files", subcommands };

int main(int argc, char **argv) { return cli_main(argc, argv, &moe_convert); }
