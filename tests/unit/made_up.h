/* Numbers generated identically by tests and by the independent programs of tests/golden. */
#ifndef MOE_TESTS_UNIT_MADE_UP_H
#define MOE_TESTS_UNIT_MADE_UP_H

#include "common/base/json.h"
#include "tests/unit/unit.h"

static inline double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no %s", key);
    return json_number_value(value);
}

/* Returns number `at` of a tensor, within `bound` of `center`. */
static inline float drawn(uint64_t tensor, uint64_t at, double bound, double center)
{
    uint64_t x = (at * 2654435761u + tensor * 2654404609u) & 0xffffffffu;
    x ^= x >> 16;
    x = x * 2246822519u & 0xffffffffu;
    x ^= x >> 13;
    return (float)(center + bound * ((double)x / 2147483648.0 - 1));
}

#endif
