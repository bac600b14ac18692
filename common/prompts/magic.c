#include "common/prompts/magic.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/model/model_index.h"
#include "common/stream/frame.h"

/* Returns whether bytes begin with a header of safetensors: its length in eight bytes, then JSON. */
static bool is_safetensors(const uint8_t *bytes, size_t count)
{
    return count > 10 && bytes[5] == 0 && bytes[6] == 0 && bytes[7] == 0 && bytes[8] == '{' && bytes[9] == '"';
}

const char *magic_no_prompts(const void *bytes, size_t count)
{
    static const struct { size_t at; const char *magic, *what; } kinds[] = {
        {0, MODEL_MAGIC, "is a model file or a draft head, not a file of texts; -m names a model"},
        {0, FRAME_GUARD, "is a stream, not a file of texts; moe-view says which"},
        {0, "GGUF", "is a checkpoint (GGUF), not a file of texts; moe-convert makes a model of it"},
        {0, "PK\003\004", "is an archive (zip), not a file of texts; unpack it first"},
        {257, "ustar", "is an archive (tar), not a file of texts; unpack it first"},
        {0, "\3757zXZ", "is packed by xz; unpack it first, or pack it by gzip or zstd"},
        {0, "7z\274\257\047\034", "is an archive (7z), not a file of texts; unpack it first"},
        {0, "PAR1", "is a Parquet file, not a file of texts; write its rows as JSON lines"},
        {0, "ARROW1", "is an Arrow file, not a file of texts; write its rows as JSON lines"},
        {0, "%PDF-", "is a PDF, not a file of texts"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t length = strlen(kinds[i].magic);
        if (count >= kinds[i].at + length && !memcmp((const char *)bytes + kinds[i].at, kinds[i].magic, length))
            return kinds[i].what;
    }
    if (count && !*(const char *)bytes)
        return "begins with a zero byte, as no text does; name a file of prompts";
    return is_safetensors(bytes, count) ? "is a checkpoint (safetensors), not a file of texts; moe-convert makes a model of it"
                                        : NULL;
}
