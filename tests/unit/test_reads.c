/* Waiting for reads from a slow disk, and closing before they end. */
#include "tests/unit/unit.h"

#include <unistd.h>

#include "common/store/reads.h"

static void must_be_done(int rc, const struct err *err)
{
    if (rc)
        fail_msg("%s", err->text);
}

/* A pipe plays the slow disk. */
static void waiting_for_reads_ends_with_the_stop(void **state)
{
    static _Alignas(DIRECT_STEP) unsigned char memory[2 * DIRECT_STEP], sent[DIRECT_STEP];
    struct direct_file file = {.path = "pipe", .bytes = DIRECT_STEP};
    struct stop stop = {.wake = -1};
    struct reads *reads = NULL;
    struct err err = {0};
    int ends[2], tag;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    file.fd = ends[0];
    must_be_done(reads_open(&reads, &file, 2, false, &err), &err);
    if (strcmp(reads_method(reads), "io_uring")) {      /* threads cannot read a pipe this way */
        reads_close(&reads);
        skip();
    }
    must_be_done(reads_start(reads, 3, memory, 0, DIRECT_STEP, &err), &err);
    atomic_store(&stop.signal, 2);
    assert_int_equal(reads_wait(reads, &stop, &err), -1);
    assert_int_equal(err.code, ERR_SIGNAL);
    err_clear(&err);
    atomic_store(&stop.signal, 0);                      /* the request was cancelled; the read itself is still there */
    assert_int_equal(write(ends[1], sent, DIRECT_STEP), DIRECT_STEP);
    must_be_done(reads_wait(reads, &stop, &err), &err);
    assert_int_equal(reads_next(reads, false, &tag, &err), 1);
    assert_int_equal(tag, 3);
    must_be_done(reads_wait(reads, &stop, &err), &err);         /* none is in flight */
    must_be_done(reads_start(reads, 4, memory + DIRECT_STEP, 0, DIRECT_STEP, &err), &err);
    reads_abandon(&reads);                              /* reads_close would wait forever */
    assert_null(reads);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(waiting_for_reads_ends_with_the_stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
