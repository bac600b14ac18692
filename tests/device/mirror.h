/* The device that tests of tests/kernel run on when they are compiled for one (MOE_DEVICE): $MOE_TEST_DEVICE, a name that
 * device_open takes; "cuda" when it is not set. $MOE_TEST_ONLY, a pattern, picks tests of a file.
 *
 * Those tests keep what operations read and write in host memory. An operation of mirror_ops takes the same arguments: it
 * gives each piece of memory that they touch a copy of its own on the device, copies it there, between guards of 0xff, runs
 * the device's operation, waits, and copies the pieces back. A write into a guard, and an error of the device, end the
 * running test. With $MOE_TEST_EXACT set there are no guards, and a piece's copy ends where the piece does: for
 * compute-sanitizer. */
#ifndef MOE_TESTS_DEVICE_MIRROR_H
#define MOE_TESTS_DEVICE_MIRROR_H

#include <stddef.h>

#include "kernels/learn.h"
#include "kernels/ops.h"

/* Registers a piece of memory, or removes it. Operations may use any part of it. */
void mirror_add(void *piece, size_t bytes);
void mirror_remove(void *piece);

/* Opens the device. If that fails, the process prints the reason in one line and exits with 125. */
const struct device_ops *mirror_ops(void);
const struct learn_ops *mirror_learn_ops(void);
const char *mirror_name(void);

#endif
