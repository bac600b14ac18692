/* Formats numbers for output. */
#ifndef MOE_BASE_NUMERAL_H
#define MOE_BASE_NUMERAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NUMERAL_ROOM = 40 };

/* Formats with the fewest digits that read back as the same double (single: the same float). Finite values only. Whole numbers
 * have no point: 3, 1e+20. */
void numeral_real(char out[NUMERAL_ROOM], double value, bool single);

/* Formats bytes for people, in powers of 1000: "1 byte", "762 bytes", "91.1 kB", "17.1 MB". */
void numeral_size(char out[NUMERAL_ROOM], uint64_t bytes);

/* Formats a count for people, from a thousand on with a unit: "976", "8.5 M", "6.9 B". */
void numeral_count(char out[NUMERAL_ROOM], double count);

/* Returns "s" for a plural noun, "" for a count of one: "%d text%s". */
const char *numeral_plural(int64_t count);

#endif
