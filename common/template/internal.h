/* The parts of a chat template, for the files of this folder alone.
 *
 *   lex.c        source -> text and tags -> tokens
 *   parse.c      statements -> tree;  expression.c: expressions -> tree
 *   eval.c       statements;  operate.c: expressions
 *   value.c      values: strings that know where each byte is from, lists, dictionaries
 *   write.c      values as text: str(), repr(), JSON
 *   text.c       what filters and methods do to strings
 *   filter.c, test.c, method.c   tables of what may be called;  sort.c: filters that order values
 *   template.c   one rendering from start to end
 *
 * All memory of a parse or a rendering comes from a pool with a limit, and is freed at once. Functions report errors through
 * the parser or the rendering, which contain `err` and the line. */
#ifndef MOE_TEMPLATE_INTERNAL_H
#define MOE_TEMPLATE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/template/template.h"

/* ---- memory ---- */

struct pool_chunk;
struct pool {
    struct pool_chunk *chunks;
    size_t used, limit;
};
void *pool_alloc(struct pool *pool, size_t count, size_t size, struct err *err);       /* zeros */
void pool_free(struct pool *pool);

/* ---- values ---- */

enum value_kind {
    VALUE_UNDEFINED, VALUE_NONE, VALUE_BOOL, VALUE_INT, VALUE_FLOAT, VALUE_STRING, VALUE_LIST, VALUE_DICT, VALUE_NAMESPACE,
    VALUE_LOOP, VALUE_MACRO, VALUE_FUNCTION, VALUE_METHOD
};

struct string {                /* UTF-8; content: the string's bytes are from the values, not from the template */
    const char *data;
    size_t bytes;
    const uint8_t *mask;       /* one flag per byte; NULL: `content` holds for all bytes */
    bool content;
    bool integer;              /* in keys: the decimal text of an integer key */
};

struct value {
    enum value_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        const struct string *string;
        struct list *list;
        struct dict *dict;
        const struct loop *loop;
        const struct macro *macro;
        const struct function *function;
        const struct bound *bound;
        const char *name;      /* VALUE_UNDEFINED: the name that was not found */
    } as;
};

struct list { struct value *items; size_t n, room; bool tuple; };       /* tuple: printed in round brackets */
struct dict { struct string *keys; struct value *items; size_t n, room, key_room; };
struct loop { const struct list *list; size_t index; };
struct bound { struct value self; const struct function *function; };

/* ---- the tree ---- */

enum node_kind {
    NODE_LITERAL, NODE_NAME, NODE_LIST, NODE_DICT, NODE_ATTRIBUTE, NODE_INDEX, NODE_SLICE, NODE_CALL, NODE_FILTER, NODE_TEST,
    NODE_NOT, NODE_NEGATIVE, NODE_POSITIVE, NODE_BINARY, NODE_COMPARE, NODE_AND, NODE_OR, NODE_CONDITIONAL,
    NODE_TEXT, NODE_OUTPUT, NODE_BLOCK, NODE_IF, NODE_FOR, NODE_SET, NODE_SET_BLOCK, NODE_MACRO, NODE_BREAK, NODE_CONTINUE
};

enum operator {
    OP_ADD, OP_SUBTRACT, OP_CONCAT, OP_MULTIPLY, OP_DIVIDE, OP_FLOOR_DIVIDE, OP_MODULO, OP_POWER,
    OP_EQUAL, OP_NOT_EQUAL, OP_LESS, OP_LESS_EQUAL, OP_GREATER, OP_GREATER_EQUAL, OP_IN, OP_NOT_IN
};

struct node {
    enum node_kind kind;
    enum operator operator;    /* BINARY, COMPARE */
    int line;
    bool negated;              /* TEST */
    bool tuple;                /* LIST */
    const char *name;          /* NAME, ATTRIBUTE, FILTER, TEST, MACRO, namespace attribute of SET */
    struct value value;        /* LITERAL, TEXT */
    struct node *a, *b, *c, *d;
    struct node **items;       /* items of LIST, DICT (key, value, ...), BLOCK; arguments, targets, parameters */
    size_t n, room;
    const char **names;        /* keyword arguments: names of the last n_names items */
    size_t n_names, name_room;
};

struct macro { const struct node *node; struct frame *frame; };

/* ---- parsing ---- */

enum token_kind { TOKEN_END_TAG, TOKEN_NAME, TOKEN_STRING, TOKEN_INTEGER, TOKEN_FLOAT, TOKEN_OPERATOR };
struct token {
    enum token_kind kind;
    char operator[3];
    const char *text;          /* text in the source; STRING: with escapes resolved, in the pool */
    size_t bytes;
    int line;
};

enum tag_kind { TAG_NONE, TAG_STATEMENT, TAG_OUTPUT };
struct parser {
    const char *source;
    size_t bytes, at;
    int line, depth, nesting;  /* nesting: open brackets in the tag */
    bool line_start, trim;     /* line_start: lstrip_blocks applies; trim: removes white space up to the next text (-%}) */
    enum tag_kind tag;
    struct token token;        /* the next token */
    int loops;                 /* number of `for` bodies around this position */
    int conditions;            /* number of `if` bodies around it: filters and tests in them are looked up when called */
    struct pool *pool;
    struct err *err;
};
enum { PARSE_DEPTH = 100, EVAL_DEPTH = 1000, VALUE_DEPTH = 1000 };

int parse_fail(const struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads the text up to the next tag or the end and strips white space; *tag is the kind of tag, p->token its first token. */
int lex_text(struct parser *p, struct string *text, enum tag_kind *tag);
int lex_next(struct parser *p);
bool token_is(const struct parser *p, const char *operator_or_name);
int token_expect(struct parser *p, const char *operator_or_name);
const char *token_name(struct parser *p);                      /* returns a name, NUL-terminated; NULL with err set */

struct node *node_new(struct parser *p, enum node_kind kind);
int node_put(struct parser *p, struct node *node, struct node *item);
struct node *parse_expression(struct parser *p, bool with_condition);  /* with_condition: x if y else z allowed */
struct node *parse_tuple(struct parser *p);                    /* parses an expression, or several with commas: a list */
struct node *parse_template(struct parser *p);

/* ---- rendering ---- */

struct frame {
    struct frame *up;
    struct dict variables;
};

struct builder { char *data; uint8_t *mask; size_t bytes, room, mask_room; };

struct render {
    struct pool pool;
    struct frame *frame;
    struct builder *out;
    int64_t steps, step_limit;
    int line, depth;           /* depth: expressions and blocks being evaluated, through calls */
    struct err *err;
};

struct args {
    const struct value *items;
    size_t n;
    const char *const *names;
    const struct value *named;
    size_t n_named;
};

struct function {
    const char *name;
    int (*call)(struct render *r, const struct value *self, const struct args *args, struct value *out);
    int min, max;           /* arguments, without self */
    const char *keywords;      /* names of the arguments in order, separated by spaces; NULL: no keywords; "*": any */
};

int render_fail(struct render *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
int render_charge(struct render *r, size_t bytes);             /* counts one step, and one more per 32 bytes processed */

struct value value_bool(bool boolean);
struct value value_int(int64_t integer);
struct value value_undefined(const char *name);
int value_string(struct render *r, const char *data, size_t bytes, bool content, struct value *out);   /* copies */
int value_part(struct render *r, const struct string *of, size_t begin, size_t end, struct value *out); /* shares */
int value_list(struct render *r, struct value *out);
int value_dict(struct render *r, struct value *out);
int list_put(struct render *r, struct list *list, struct value item);
int dict_put(struct render *r, struct dict *dict, struct string key, struct value item);       /* replaces an equal key */
struct value *dict_find(const struct dict *dict, const char *key, size_t bytes);       /* looks up a string key */
/* Returns the item of a key of any kind; NULL: there is none. */
struct value *dict_find_value(const struct dict *dict, const struct value *key);
int dict_key(struct render *r, const struct dict *dict, size_t index, struct value *out);
int dict_put_value(struct render *r, struct dict *dict, const struct value *key, struct value item);
bool value_true(const struct value *value);
int value_equal(struct render *r, const struct value *a, const struct value *b, int depth, bool *out);
int value_order(struct render *r, const struct value *a, const struct value *b, int *out);     /* -1, 0, 1 */
int value_compare(struct render *r, enum operator operator, const struct value *a, const struct value *b,
                  struct value *out);
int value_iterate(struct render *r, const struct value *value, struct list **out);             /* the items that `for` iterates
                                                                                                * over */
const char *value_kind_name(const struct value *value);
int value_from_json(struct render *r, const json_t *json, bool content, int depth, struct value *out);
size_t json_bytes(const json_t *json);
bool value_as_int(const struct value *value, int64_t *out);    /* integers and booleans */

int builder_put(struct render *r, struct builder *builder, const char *data, size_t bytes, bool content);
int builder_put_string(struct render *r, struct builder *builder, const struct string *string);
int builder_puts(struct render *r, struct builder *builder, const char *text);
int builder_end(struct render *r, struct builder *builder, struct value *out);
bool string_has_content(const struct string *string);

int write_value(struct render *r, struct builder *builder, const struct value *value);         /* str() */
struct json_style {
    int indent;                        /* < 0: one line */
    bool ascii, sorted;                /* ascii: escape other characters; sorted: keys in order */
    const struct string *item, *key;   /* separators after an item and after a key; NULL: json.dumps' own */
};
int write_json(struct render *r, struct builder *builder, const struct value *value, const struct json_style *style);
int write_as_string(struct render *r, const struct value *value, struct value *out);           /* strings: unchanged */

int eval_expression(struct render *r, const struct node *node, struct value *out);
int eval_statements(struct render *r, const struct node *block);       /* 0, -1, or one of the two below */
enum { EVAL_BREAK = 1, EVAL_CONTINUE = 2 };
int eval_call(struct render *r, const struct value *callee, const struct args *args, struct value *out);
int eval_macro(struct render *r, const struct macro *macro, const struct args *args, struct value *out);
int eval_function(struct render *r, const struct function *function, const struct value *self, const struct args *args,
                  struct value *out);
int eval_attribute(struct render *r, const struct value *value, const char *name, struct value *out);
int eval_index(struct render *r, const struct value *value, const struct value *index, struct value *out);
int frame_set(struct render *r, const char *name, struct value value);

const struct function *filter_find(const char *name);
const struct function *test_find(const char *name);            /* the function's result is a bool */
const struct function *method_lookup(const struct value *self, const char *name);
const struct function *global_find(const char *name);

/* Returns argument i by position or by keyword; NULL if not given. */
const struct value *arg_get(const struct args *args, size_t i, const char *keyword);
int arg_int(struct render *r, const struct args *args, size_t i, const char *keyword, int64_t fallback, int64_t *out);
int arg_string(struct render *r, const struct args *args, size_t i, const char *keyword, const struct string **out);

struct template {
    struct pool pool;
    char *source;
    struct node *root;
    size_t bytes;
};

#endif
