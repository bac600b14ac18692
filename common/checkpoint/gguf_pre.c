#include "common/checkpoint/gguf_pre.h"

#include <stdio.h>
#include <string.h>

#include "common/tokenizer/patterns.h"

#define HAN_AND_KOREAN "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define HAN_AND_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"

/* Pattern of words of letters that have a case. */
static const char CASED_WORD[] =
    "\\s?["
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}"
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-"
    "\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}"
    "\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-"
    "\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-"
    "\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-"
    "\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}"
    "-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-"
    "\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
    "]+";

static const struct pre_tokenizer PRE_TOKENIZERS[] = {
    {.names = {"gpt-2", "jais", "phi-2", "gigachat", "a.x-4.0", "mellum", "trillion"}, .words = true},
    {.names = {"mpt", "olmo"}, .words = true, .composed = true},
    {.names = {"starcoder", "refact", "smollm", "codeshell", "minerva-7b"}, .digits = true, .words = true},
    {.names = {"command-r"}, .composed = true, .digits = true, .words = true},
    {.names = {"falcon"}, .punctuation = true, .words = true, .after = "[0-9][0-9][0-9]"},
    {.names = {"llama-bpe", "llama3", "llama-v3", "smaug-bpe", "falcon3", "pixtral", "midm-2.0", "lfm2"},
     .whole_words = true, .begins = true, .patterns = {PATTERN_WORDS("\\p{N}{1,3}")}},
    {.names = {"glm4", "chatglm-bpe", "dbrx"}, .patterns = {PATTERN_WORDS("\\p{N}{1,3}")}},
    {.names = {"qwen2", "deepseek-r1-qwen", "megrez"}, .composed = true, .patterns = {PATTERN_WORDS("\\p{N}")}},
    {.names = {"solar-open"}, .patterns = {PATTERN_WORDS("\\p{N}")}},
    {.names = {"hunyuan"}, .composed = true, .whole_words = true, .patterns = {PATTERN_WORDS("\\p{N}")}},
    {.names = {"qwen35"}, .composed = true,
     .patterns = {PATTERN_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
                  PATTERN_REST}},
    {.names = {"gpt-4o", "llama4", "kanana2", "minimax-m2"}, .whole_words = true,
     .patterns = {PATTERN_CASES(PATTERN_CONTRACTION "?", "") "|\\p{N}{1,3}" PATTERN_SIGNS "[\\r\\n/]*" PATTERN_REST}},
    {.names = {"kimi-k2"}, .whole_words = true, .patterns = {PATTERN_KIMI}},
    {.names = {"tekken"}, .whole_words = true, .begins = true,
     .patterns = {PATTERN_CASES("", "") "|\\p{N}" PATTERN_SIGNS "[\\r\\n/]*" PATTERN_REST}},
    {.names = {"deepseek-llm"}, .digits = true,
     .patterns = {"[\\r\\n]", CASED_WORD,
                  "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+", "\\s+$",
                  HAN_AND_KOREAN}},
    {.names = {"deepseek-coder"}, .digits = true, .patterns = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_AND_KOREAN}},
    {.names = {"deepseek-v3", "joyai-llm"},
     .patterns = {"\\p{N}{1,3}", HAN_AND_KANA,
                  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                  "| ?[\\p{P}\\p{S}]+[\\r\\n]*" PATTERN_REST}},
};

const struct pre_tokenizer *pre_tokenizer_find(const struct gguf *gguf, struct err *err)
{
    struct gguf_string name = {"", 0};
    char known[512] = "";
    if (gguf_text(gguf, "tokenizer.ggml.pre", false, &name, err))
        return NULL;
    for (size_t i = 0; i < sizeof PRE_TOKENIZERS / sizeof *PRE_TOKENIZERS; i++)
        for (int k = 0; k < 8 && PRE_TOKENIZERS[i].names[k]; k++) {
            if (gguf_same(name, PRE_TOKENIZERS[i].names[k]))
                return &PRE_TOKENIZERS[i];
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i || k ? ", " : "",
                     PRE_TOKENIZERS[i].names[k]);
        }
    err_set(err, ERR_INPUT, "tokenizer.ggml.pre is %s%.*s%s, an unknown pre-tokenizer (known: %s); put the GGUF file and the "
            "model's tokenizer.json into one folder, and convert that folder", name.bytes ? "\"" : "missing",
            name.bytes < 40 ? (int)name.bytes : 40, name.data, name.bytes ? "\"" : "", known);
    return NULL;
}
