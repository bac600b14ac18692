/* String operations shared by filters and methods; each preserves the origin of every byte. */
#ifndef MOE_TEMPLATE_TEXT_H
#define MOE_TEMPLATE_TEXT_H

#include "common/template/internal.h"

enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE };
int text_case(struct render *r, const struct string *s, enum text_case to, struct value *out);

/* Strips characters. set: characters to strip (a Python str); NULL: white space. */
int text_strip(struct render *r, const struct string *s, const struct string *set, bool left, bool right, struct value *out);

/* Splits a string. separator NULL: at runs of white space, without empty parts. max < 0: no limit. */
int text_split(struct render *r, const struct string *s, const struct string *separator, int64_t max, struct value *out);

/* Returns the end of the line of a Python str that begins at `begin`; *next: the start of the next line. Lines end with \n,
 * \r, \r\n, \v, \f, the separators 1c to 1e, U+0085, U+2028 or U+2029, or at the end of the string. */
size_t text_line_end(const struct string *s, size_t begin, size_t *next);
int text_lines(struct render *r, const struct string *s, struct value *out);          /* a list of the lines, without line
                                                                                       * ends */

int text_replace(struct render *r, const struct string *s, const struct string *from, const struct string *to, int64_t max,
                 struct value *out);
int text_join(struct render *r, const struct list *list, const struct string *separator, struct value *out);
int dict_items(struct render *r, const struct dict *dict, struct value *out);          /* list of [key, value] */

/* Sets the member "a.b" or the element "0" of an item. */
int value_attribute(struct render *r, const struct value *item, const struct string *path, struct value *out);

int filter_sort(struct render *r, const struct value *self, const struct args *args, struct value *out);
int filter_dictsort(struct render *r, const struct value *self, const struct args *args, struct value *out);
int filter_unique(struct render *r, const struct value *self, const struct args *args, struct value *out);
int filter_min(struct render *r, const struct value *self, const struct args *args, struct value *out);
int filter_max(struct render *r, const struct value *self, const struct args *args, struct value *out);

#endif
