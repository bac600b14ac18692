/* A short list of named numbers and words: what a policy lays open about a decision, as it is in an iteration's record
 * and as replay reads it back. Plain data, no memory of its own. Start with {0}. */
#ifndef MOE_STREAM_VALUES_H
#define MOE_STREAM_VALUES_H

#include <stdbool.h>
#include <stdint.h>

enum { VALUES_MAX = 48, VALUES_KEY = 24, VALUES_TEXT = 32 };     /* entries; bytes with the NUL */

enum value_type { VALUE_INT, VALUE_REAL, VALUE_TEXT };

struct value {
    char key[VALUES_KEY];
    enum value_type type;
    int64_t integer;
    double real;
    char text[VALUES_TEXT];
};

struct values {
    int count;
    bool overflow;              /* something did not fit; a writer refuses such a list */
    struct value items[VALUES_MAX];
};

void values_int(struct values *values, const char *key, int64_t value);
void values_real(struct values *values, const char *key, double value);
void values_text(struct values *values, const char *key, const char *value);

const struct value *values_find(const struct values *values, const char *key);      /* NULL: not there */
double values_number(const struct values *values, const char *key, double otherwise);   /* of an int or a real */

#endif
