#include "common/prompts/shard.h"

#include <stdbool.h>

enum { PARTS_MAX = 1 << 20 };

/* Reads digits and advances; a number above PARTS_MAX becomes an invalid number. */
static int read_number(const char **at)
{
    int number = 0;
    for (; **at >= '0' && **at <= '9'; ++*at)
        number = number > PARTS_MAX ? number : number * 10 + (**at - '0');
    return number;
}

int shard_parse(struct shard *out, const char *text, struct err *err)
{
    const char *at = text;
    struct shard shard = {0};
    if (text) {
        shard.part = read_number(&at);
        const bool slash = *at == '/';
        at += slash;
        shard.parts = slash ? read_number(&at) : 0;
        if (*at || shard.part < 1 || shard.part > shard.parts || shard.parts > PARTS_MAX)
            return err_set(err, ERR_INPUT, "--shard: '%.60s' is not a part; give I/N with I from 1 to N, as in 1/4", text);
    }
    *out = shard;
    return 0;
}

void shard_range(struct shard shard, int64_t count, int64_t *first, int64_t *end)
{
    const int64_t parts = shard.parts ? shard.parts : 1, before = shard.parts ? shard.part - 1 : 0;
    const int64_t each = count / parts, longer = count % parts;
    *first = before * each + (before < longer ? before : longer);
    *end = *first + each + (before < longer);
}
