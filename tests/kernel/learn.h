/* Shared by tests of training's operations (kernels/learn.h): runs an operation on the tested device in each of its
 * variants, compares it with the reference, and requires equal bits of all variants. */
#ifndef MOE_TESTS_KERNEL_LEARN_H
#define MOE_TESTS_KERNEL_LEARN_H

#include "tests/kernel/support.h"

#if defined(MOE_DEVICE)
#define learn_here() mirror_learn_ops()
#elif defined(MOE_EMU)
#define learn_here() (&cuda_learn_ops)
#else
#include "kernels/host/learn.h"
static UNUSED const struct learn_ops *learn_here(void)
{
    host_learn_open();
    return &host_learn_ops;
}
#endif

/* An operation by name: a function that calls it with its arguments. */
typedef void learn_run(const struct learn_ops *ops, struct queue *queue, const void *args);
#define RUN(op) \
    static void run_##op(const struct learn_ops *ops, struct queue *queue, const void *args) { ops->op(queue, args); }

enum learn_number { LEARN_FLOATS, LEARN_DOUBLES, LEARN_BYTES };

/* Memory that an operation writes, or adds to. */
struct written {
    const char *name;
    struct buffer buffer;
    enum learn_number number;
    struct tolerance tolerance;
    struct buffer before, expected, first;
};

static UNUSED void assert_doubles_close(const struct written *w)
{
    const double *value = at(w->buffer), *expected = at(w->expected);
    for (size_t i = 0; i < w->buffer.bytes / sizeof *value; i++) {
        const double limit = (double)w->tolerance.absolute + (double)w->tolerance.relative * fabs(expected[i]);
        if (!(fabs(value[i] - expected[i]) <= limit))
            fail_msg("%s: [%zu] is %.12g, reference %.12g", w->name, i, value[i], expected[i]);
    }
}

static UNUSED void assert_written(const struct written *w)
{
    if (w->number == LEARN_FLOATS)
        assert_close(w->name, w->buffer, w->expected, w->tolerance);
    else if (w->number == LEARN_DOUBLES)
        assert_doubles_close(w);
    else
        assert_true(same_bits(w->buffer, w->expected));
}

/* Runs the reference, then variants `first` .. `last` of the device, all with equal bits. `written` ends with a name NULL. */
static UNUSED void agree_in(struct arena *arena, learn_run *run, const void *args, struct written *written, int first, int last)
{
    struct queue queue = queue_of_ref(arena);
    for (struct written *w = written; w->name; w++)
        w->before = arena_copy(arena, w->buffer);
    run(&ref_learn_ops, &queue, args);
    for (struct written *w = written; w->name; w++)
        w->expected = arena_copy(arena, w->buffer);
    for (int way = first; way <= last; way++) {
        for (struct written *w = written; w->name; w++)
            copy_into(w->buffer, w->before);
        queue = queue_of(way);
        run(learn_here(), &queue, args);
        for (struct written *w = written; w->name; w++) {
            assert_written(w);
            if (way == first)
                w->first = arena_copy(arena, w->buffer);
            assert_true(same_bits(w->first, w->buffer));
        }
    }
    arena_check(arena);
    for (struct written *w = written; w->name; w++)
        copy_into(w->buffer, w->before);
}

static UNUSED void agree(struct arena *arena, learn_run *run, const void *args, struct written *written)
{
    agree_in(arena, run, args, written, 1, POOLS);
}

/* Returns the reference's value of the first variant. */
static UNUSED void learn_by_ref(struct arena *arena, learn_run *run, const void *args)
{
    struct queue queue = queue_of_ref(arena);
    run(&ref_learn_ops, &queue, args);
}

static UNUSED void learn_by_device(learn_run *run, const void *args)
{
    struct queue queue = queue_of(1);
    run(learn_here(), &queue, args);
}

/* Random numbers of which some exist already when an operation adds to them. */
static UNUSED struct buffer draw_ones(struct arena *arena, size_t count, uint64_t *seed)
{
    return draw_floats(arena, count, 1, seed);
}

#endif
