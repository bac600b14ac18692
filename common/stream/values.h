/* A short list of named numbers and words: what a policy reports about a decision, stored in an iteration's record and read
 * by replay. Plain data without allocated memory. Initialise with {0}. */
#ifndef MOE_STREAM_VALUES_H
#define MOE_STREAM_VALUES_H

#include <stdbool.h>
#include <stdint.h>

enum { VALUES_MAX = 48, VALUES_KEY = 24, VALUES_TEXT = 32 };     /* maximum entries; bytes including the NUL */

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
    bool overflow;              /* an entry did not fit; a writer rejects such a list */
    struct value items[VALUES_MAX];
};

/* Sets the value of a key, replacing an earlier one; sets `overflow` if it does not fit. */
void values_int(struct values *values, const char *key, int64_t value);
void values_real(struct values *values, const char *key, double value);
void values_text(struct values *values, const char *key, const char *value);

const struct value *values_find(const struct values *values, const char *key);      /* NULL: not found */
double values_number(const struct values *values, const char *key, double otherwise);   /* value of an integer or real entry */

#endif
