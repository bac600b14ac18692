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
    {"override-tensor", "cache-experts", "--cache-experts"}, {"ot", "cache-experts", "--cache-experts"},
    {"ncmoe", "cache-experts", "--cache-experts"}, {"cmoe", "cache-experts", "--cache-experts"},
    {"device-map", "cache-experts", "--cache-experts"}, {"ngld", "device", "--device"}, {"dev", "device", "--device"},
    {"mg", "device", "--device cuda:N"}, {"tb", "threads", "-j"}, {"sp", "parse-special", "--parse-special"},
    {"cb", "parallel", "--parallel"}, {"predict-tokens", "max-tokens", "-n"}, {"max-gen-toks", "max-tokens", "-n"},
    {"hfr", "model", "-m, with a file that moe-convert made"}, {"model-url", "model", "-m, with a file that moe-convert made"},
    {"mu", "model", "-m, with a file that moe-convert made"}, {"hff", "model", "-m, with a file that moe-convert made"},
    {"torch-dtype", "model", "-m, with a file that moe-convert --dtype made"},
    {"load-in-4bit", "model", "-m, with a file that moe-convert --dtype q4 made"},
    {"load-in-8bit", "model", "-m, with a file that moe-convert --dtype q8 made"},
    {"jinja", "chat", "--chat"}, {"apply-chat-template", "chat", "--chat"},
    {"sysf", "system", "--system, with the text itself"}, {"system-prompt-file", "system", "--system, with the text itself"},
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
    {"fa", "attention has one form"}, {"attn-implementation", "attention has one form"}, {"sm", "a process uses one device"},
    {"ts", "a process uses one device"}, {"b", "it chooses the rows of a forward itself"},
    {"ub", "it chooses the rows of a forward itself"}, {"nkvo", "keys and values are on the model's device"},
    {"no-kv-offload", "keys and values are on the model's device"}, {"lora", "it applies no adapters"},
    {"enable-lora", "it applies no adapters"}, {"mmproj", "it reads text only"}, {"mm", "it reads text only"},
    {"image", "it reads text only"}, {"mirostat", "it has no such sampler"}, {"typical", "it has no such sampler"},
    {"samplers", "it has no such sampler"}, {"xtc-probability", "it has no such sampler"},
    {"dry-multiplier", "it would not be lossless"}, {"logit-bias", "it has no such sampler"},
    {"rope-scaling", "positions are scaled as the model file says"},
    {"rope-freq-base", "positions are scaled as the model file says"},
    {"escape", "texts are used as they are"}, {"e", "texts are used as they are"},
    {"repetition-penalty", "it would not be lossless"}, {"no-repeat-ngram-size", "it would not be lossless"},
    {"jf", "it has no grammars"}, {"json-schema-file", "it has no grammars"}, {"grammar-file", "it has no grammars"},
    {"guided-decoding-backend", "it has no grammars"}, {"prompt-cache", "it keeps nothing from one run to the next"},
    {"num-return-sequences", "give the prompt several times"},
    {"api-key", "there is no server"}, {"served-model-name", "there is no server"}, {"ubatch-size",
     "it chooses the rows of a forward itself"},
    {"enable-chunked-prefill", "it chooses the rows of a forward itself"}, {"num-beams", "it has no beam search"},
    {"grammar", "it has no grammars"}, {"json-schema", "it has no grammars"},
    {"trust-remote-code", "it runs no code of a checkpoint"},
    {"gpu-memory-utilization", "it allocates what a model needs"}, {"repeat-penalty", "it would not be lossless"},
    {"frequency-penalty", "it would not be lossless"}, {"presence-penalty", "it would not be lossless"},
    {"host", "there is no server"}, {"port", "there is no server"}};

bool foreign_option(const struct subcommand *subcommand, const char *word, size_t length, struct err *err)
{
    char name[64];
    const size_t dashes = strspn(word, "-"), kept = length - dashes < sizeof name - 1 ? length - dashes : sizeof name - 1;
    for (size_t i = 0; i < kept; i++)
        name[i] = word[dashes + i] == '_' ? '-' : word[dashes + i];
    name[kept] = '\0';
    const int shown = (int)(dashes + kept);
    if (memchr(word, '_', length) && opt_find(subcommand, name, kept)) {
        err_set(err, ERR_INPUT, "%.*s: in moekit use --%s", shown, word, name);
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].other_name, name) &&
            opt_find(subcommand, names[i].moekit_name, strlen(names[i].moekit_name))) {
            err_set(err, ERR_INPUT, "%.*s: in moekit use %s", shown, word, names[i].typed);
            return true;
        }
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (!strcmp(absent[i].other_name, name) && opt_find(subcommand, "model", strlen("model"))) {
            err_set(err, ERR_INPUT, "%.*s: moekit has no such option: %s", shown, word, absent[i].answer);
            return true;
        }
    return false;
}
