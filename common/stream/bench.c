#include "common/stream/bench.h"

#include "common/stream/decode.h"

static const char *or_empty(const char *text) { return text ? text : ""; }

int bench_describe_setting(struct text *out, const struct bench_setting *of, struct err *err)
{
    const char *model = of->index_sha256 ? of->index_sha256 : of->model;
    return text_printf(out, err, "setting %s: %s %s [%s] %d tokens of %d, %s draws\n", of->name, model, of->options,
                       or_empty(of->label), of->max_tokens, of->context, or_empty(of->draws));
}

int bench_describe_machine(struct text *out, const struct decode_machine *of, struct err *err)
{
    return text_printf(out, err, "%s %s, %d threads, %s cache\n", of->device, or_empty(of->isa), of->threads,
                       or_empty(of->kv_dtype));
}

static const struct field setting_fields[] = {
    FIELD(bench_setting, setting, false, "number of the setting, from 0"),
    FIELD(bench_setting, name, false, "its name in the suite"),
    FIELD(bench_setting, model, false, "model file"),
    FIELD(bench_setting, options, false, "its options, as JSON"),
    FIELD(bench_setting, label, true, "labels that a report must show: synthetic, inflated, not lossless"),
    FIELD(bench_setting, moe_layers, false, "layers with experts in its model"),
    FIELD(bench_setting, experts, false, "experts in each of them"),
    FIELD(bench_setting, reference, true, "number of the reference setting with which it is compared"),
    FIELD(bench_setting, loop, true, "where its iterations ran: device; or host: and the reason"),
    FIELD(bench_setting, index_sha256, true, "SHA-256 of the index of its model file, which identifies the file"),
    FIELD(bench_setting, max_tokens, true, "limit of an answer that its options or the suite set"),
    FIELD(bench_setting, context, true, "limit of prompt and answer together"),
    FIELD(bench_setting, draws, true, "random numbers of repetitions: same, or fresh"),
};

static const struct field sample_fields[] = {
    FIELD(bench_sample, sequence, false, "the sequence that begins next"),
    FIELD(bench_sample, setting, false, "the setting it runs under"),
    FIELD(bench_sample, repeat, false, "repetition, from 0"),
};

static const struct field grade_fields[] = {
    FIELD(bench_grade, sequence, false, "the sequence that is graded"),
    FIELD(bench_grade, correct, false, "whether its answer is right; never set by rouge, which gives a score only"),
    FIELD(bench_grade, rule, false, "rule of grading: number, exact, json, code, rouge, boxed, letter, or command"),
    FIELD(bench_grade, score, true, "score from 0 to 1: ROUGE-L, or 1 and 0 for right and wrong answers"),
    FIELD(bench_grade, expected, false, "the right answer"),
    FIELD(bench_grade, answer, true, "the answer that was found in its text"),
};

static const struct field timing_fields[] = {
    FIELD(bench_timing, what, false, "an operation of kernels/ops.h, or forward, decode or prompt, and the variant that was "
          "measured"),
    FIELD(bench_timing, shape, false, "the model whose shape it has"),
    FIELD(bench_timing, format, false, "format of its weights, or of the KV cache"),
    FIELD(bench_timing, rows, false, "tokens of a call"),
    FIELD(bench_timing, calls, false, "calls that were timed"),
    FIELD(bench_timing, seconds, false, "median time of one call"),
    FIELD(bench_timing, bytes, false, "bytes that a call must read: weights of distinct experts, keys and values"),
    FIELD(bench_timing, copy, true, "bytes per second of a copy within the device in the same run, reads and writes counted"),
    FIELD(bench_timing, layers, true, "number of layers of the model"),
};

const struct record_kind bench_setting_kind = {
    RECORD_KIND("setting", "what is compared", bench_setting, setting_fields, NULL)
};
const struct record_kind bench_sample_kind = {
    RECORD_KIND("sample", "the setting of the next sequence", bench_sample, sample_fields, NULL)
};
const struct record_kind bench_grade_kind = {
    RECORD_KIND("grade", "whether a text is right", bench_grade, grade_fields, NULL)
};
const struct record_kind bench_timing_kind = {
    RECORD_KIND("timing", "how long an operation or a forward takes on a device", bench_timing, timing_fields, NULL)
};
