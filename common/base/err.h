/* One error convention for the whole project.
 *
 * A function that can fail returns 0 or -1 and takes `struct err *` last. The function that finds the fault
 * states what is wrong and what to do (err_set); each caller may add where (err_at prepends "where: "). Only cmd/ prints
 * the text and exits. Outputs of a failed function are untouched.
 *
 * A NULL err is allowed everywhere: the text is then dropped. */
#ifndef MOE_BASE_ERR_H
#define MOE_BASE_ERR_H

enum err_code {
    ERR_NONE = 0,
    ERR_INPUT,      /* a file, stream, option or model is not what it must be */
    ERR_IO,         /* the system refused to read, write, map or sync */
    ERR_MEMORY,     /* an allocation failed */
    ERR_PIPE,       /* the reader of standard output has closed it: end without a message */
    ERR_SIGNAL,     /* interrupted by SIGINT or SIGTERM */
    ERR_ANSWER_NO,  /* nothing is broken, but the answer is no (exit 1) */
    ERR_NO_ANSWER,  /* nothing is broken, but the measurements do not decide (exit 125) */
    ERR_REPORTED    /* another process of the job prints the message: end without one (exit 2) */
};

struct err {
    enum err_code code;
    char text[1024];      /* one line, no newline at its end; control characters are escaped */
};

/* Set the error and return -1, so that `return err_set(...)` reads well. An error already set keeps its first text. */
int err_set(struct err *err, enum err_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int err_errno(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));   /* ERR_IO + strerror(errno) */
int err_memory(struct err *err);
int err_at(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
void err_clear(struct err *err);

/* The compiler knows that these return -1, so it can determine which variables are set on success. */
static inline int err_failed(void) { return -1; }
#define err_set(...) (err_set(__VA_ARGS__), err_failed())
#define err_errno(...) (err_errno(__VA_ARGS__), err_failed())
#define err_memory(err) (err_memory(err), err_failed())
#define err_at(...) (err_at(__VA_ARGS__), err_failed())

#endif
