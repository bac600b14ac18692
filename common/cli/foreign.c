#include "common/cli/foreign.h"

#include <string.h>

#include "common/cli/command.h"

/* Option names of llama.cpp, vLLM and transformers; for training, of the Trainer of transformers and similar programs. Names
 * with underscores are looked up with dashes. */
static const struct { const char *other_name, *moekit_name, *typed; } names[] = {
    {"n-predict", "max-tokens", "-n"}, {"predict", "max-tokens", "-n"}, {"max-new-tokens", "max-tokens", "-n"},
    {"output-len", "max-tokens", "-n"}, {"temp", "temperature", "--temperature"}, {"t", "threads", "-j"},
    {"threads-batch", "threads", "-j"}, {"ctx-size", "context", "-c"}, {"max-model-len", "context", "-c"},
    {"n-ctx", "context", "-c"}, {"s", "seed", "--seed"}, {"f", "prompt", "the file itself, without an option"},
    {"file", "prompt", "the file itself, without an option"},
    {"prompts", "prompt", "the files themselves, without an option"},
    {"binary-file", "prompt", "the file itself, without an option"},
    {"cnv", "chat", "--chat, without prompts at a terminal"},
    {"conversation", "chat", "--chat, without prompts at a terminal"},
    {"interactive", "chat", "--chat, without prompts at a terminal"}, {"i", "chat", "--chat, without prompts at a terminal"},
    {"sys", "system", "--system"}, {"system-prompt", "system", "--system"}, {"reverse-prompt", "stop", "--stop"},
    {"r", "stop", "--stop"}, {"special", "parse-special", "--parse-special"},
    {"chat-template-file", "chat-template", "--chat-template"}, {"chat-template-kwargs", "template-arg", "--template-arg"},
    {"model-draft", "draft", "-d model:file=FILE"}, {"spec-draft-model", "draft", "-d model:file=FILE"},
    {"speculative-model", "draft", "-d model:file=FILE"}, {"assistant-model", "draft", "-d model:file=FILE"},
    {"draft-model", "draft", "-d model:file=FILE"}, {"md", "draft", "-d model:file=FILE"},
    {"prompt-lookup-num-tokens", "draft", "-d pld and -K N"}, {"num-assistant-tokens", "draft-length", "-K"},
    {"lookup-cache-static", "draft", "-d suffix:corpus=FILE"}, {"speculative-config", "draft", "-d KIND and -K N"},
    {"spec-type", "draft", "-d KIND"}, {"draft-max", "draft-length", "-K"}, {"draft-n", "draft-length", "-K"},
    {"spec-draft-n-max", "draft-length", "-K"}, {"num-speculative-tokens", "draft-length", "-K"},
    {"draft-p-min", "policy", "--policy"}, {"cache-type-k", "kv-dtype", "--kv-dtype"},
    {"cache-type-v", "kv-dtype", "--kv-dtype"}, {"ctk", "kv-dtype", "--kv-dtype"}, {"ctv", "kv-dtype", "--kv-dtype"},
    {"kv-cache-dtype", "kv-dtype", "--kv-dtype"}, {"n-cpu-moe", "cache-experts", "--cache-experts"},
    {"cpu-moe", "cache-experts", "--cache-experts"}, {"cpu-offload-gb", "cache-experts", "--cache-experts"},
    {"override-tensor", "cache-experts", "--cache-experts"},
    {"n-gpu-layers", "device", "--device"}, {"gpu-layers", "device", "--device"}, {"ngl", "device", "--device"},
    {"main-gpu", "device", "--device cuda:N"}, {"cpu-strict", "pin", "--pin"}, {"numa", "pin", "--pin"},
    {"hf-repo", "model", "-m, with a file that moe-convert made"}, {"hf", "model", "-m, with a file that moe-convert made"},
    {"model-path", "model", "-m"},
    {"outtype", "dtype", "--dtype"}, {"quantization", "dtype", "--dtype"},
    {"quantization", "model", "-m, with a file that moe-convert --dtype made"},
    {"dtype", "model", "-m, with a file that moe-convert --dtype made"},
    {"do-sample", "temperature", "--temperature, above 0"}, {"outfile", "output", "-o"},
    {"output-file", "output", "-o"}, {"result-filename", "output", "-o"}, {"lr", "rate", "--rate"},
    {"learning-rate", "rate", "--rate"}, {"batch-size", "batch", "-b"}, {"bs", "batch", "-b"},
    {"batch-size", "parallel", "--parallel"}, {"max-num-seqs", "parallel", "--parallel"}, {"np", "parallel", "--parallel"},
    {"cont-batching", "parallel", "--parallel"}, {"tensor-parallel-size", "ranks", "--ranks, under mpirun"},
    {"tp", "ranks", "--ranks, under mpirun"}, {"enable-expert-parallel", "ranks", "--ranks, under mpirun"},
    {"per-device-train-batch-size", "batch", "-b"}, {"num-epochs", "epochs", "--epochs"},
    {"num-train-epochs", "epochs", "--epochs"}, {"max-steps", "steps", "--steps"},
    {"gradient-accumulation-steps", "micro-batch", "--micro-batch, a part of --batch"}, {"weight-decay", "decay", "--decay"},
    {"warmup-ratio", "warmup", "--warmup"}, {"lr-scheduler-type", "schedule", "--schedule"},
    {"max-grad-norm", "clip", "--clipping norm and --clip"}, {"max-length", "cut", "--cut"}, {"max-len", "cut", "--cut"},
    {"resume-from-checkpoint", "resume", "--resume"}, {"output-dir", "output", "-o"}, {"outdir", "output", "-o"}};

/* Options without an equivalent here. */
static const struct { const char *other_name, *answer; } absent[] = {
    {"pipeline-parallel-size", "a process uses one device"}, {"tensor-split", "a process uses one device"},
    {"split-mode", "a process uses one device"}, {"mlock", "models are mapped"},
    {"no-mmap", "models are mapped"}, {"flash-attn", "attention has one form"},
    {"fa", "attention has one form"}, {"ubatch-size", "it chooses the rows of a forward itself"},
    {"enable-chunked-prefill", "it chooses the rows of a forward itself"}, {"num-beams", "it has no beam search"},
    {"grammar", "it has no grammars"}, {"json-schema", "it has no grammars"},
    {"trust-remote-code", "it runs no code of a checkpoint"},
    {"gpu-memory-utilization", "it allocates what a model needs"}, {"repeat-penalty", "it would not be lossless"},
    {"frequency-penalty", "it would not be lossless"}, {"presence-penalty", "it would not be lossless"},
    {"host", "there is no server"}, {"port", "there is no server"}};

bool foreign_option(const struct subcommand *subcommand, const char *name, size_t length, struct err *err)
{
    char word[64];
    const size_t kept = length < sizeof word - 1 ? length : sizeof word - 1;
    for (size_t i = 0; i < kept; i++)
        word[i] = name[i] == '_' ? '-' : name[i];
    word[kept] = '\0';
    if (memchr(name, '_', kept) && opt_find(subcommand, word, kept)) {
        err_set(err, ERR_INPUT, "--%.*s: in moekit use --%s", (int)kept, name, word);
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].other_name, word) &&
            opt_find(subcommand, names[i].moekit_name, strlen(names[i].moekit_name))) {
            err_set(err, ERR_INPUT, "%s%.*s: in moekit use %s", length > 1 ? "--" : "-", (int)kept, name, names[i].typed);
            return true;
        }
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (!strcmp(absent[i].other_name, word) && opt_find(subcommand, "model", strlen("model"))) {
            err_set(err, ERR_INPUT, "--%.*s: moekit has no such option: %s", (int)kept, name, absent[i].answer);
            return true;
        }
    return false;
}
