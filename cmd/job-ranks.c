#include "cmd/job-ranks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/thread_pool.h"
#include "common/ranks/guard.h"

const char *const ranks_words[] = {"auto", "none", "mpi", NULL};

/* Returns a number from the environment, -1 if it is not set: from the variables of Open MPI, or of launchers with PMI such as
 * MPICH's and Slurm's. */
static int number_of(const char *const *names)
{
    for (; *names; names++) {
        const char *value = getenv(*names);
        if (value && *value)
            return atoi(value);
    }
    return -1;
}

static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", NULL};
static const char *const numbers[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", NULL};

void job_ranks_leave_fault_to_first(void)
{
    if (number_of(sizes) > 1 && number_of(numbers) > 0)
        nanosleep(&(struct timespec){.tv_sec = 5}, NULL);
}

int job_ranks_open(struct ranks **out, int choice, struct err *err)
{
    static const char *const local_sizes[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", NULL};
    const int size = number_of(sizes), rank = number_of(numbers);
    if (choice == RANKS_NONE || (choice == RANKS_AUTO && (size == 1 || (size < 0 && rank < 0))))
        return ranks_alone(out, err);
    if (size > 1 && rank >= 0 && guard_start(rank, size, number_of(local_sizes) == size, err))
        return -1;
    if (!ranks_open(out, "mpi", size > 0 ? size : 0, err)) {
        guard_met();
        return 0;
    }
    if (rank > 0 && err->code != ERR_REPORTED)
        job_ranks_leave_fault_to_first();
    return -1;
}

int job_ranks_threads(struct session_options *options, const struct ranks *ranks, struct err *err)
{
    const int sharing = ranks_sharing_processors(ranks), cores = thread_pool_cores();
    if (sharing > 1 && options->pin)
        return err_set(err, ERR_INPUT, "--pin: %d processes share the same processors; give each its own with mpirun "
                       "--bind-to core --map-by slot:PE=N", sharing);
    if (!options->threads)
        options->threads = cores > sharing ? cores / sharing : 1;
    return 0;
}

int job_ranks_check(const struct ranks *ranks, const struct strings *inputs, bool implied, struct err *err)
{
    if (ranks_size(ranks) == 1)
        return 0;
    for (int i = 0; i < inputs->count || (implied && !i); i++) {
        const char *path = inputs->count ? inputs->items[i] : "-";
        struct stat status;
        if (!strcmp(path, "-") || (!stat(path, &status) && !S_ISREG(status.st_mode)))
            return err_set(err, ERR_INPUT, "%s: several processes cannot read one pipe; write its contents to a file and name "
                           "that",
                           strcmp(path, "-") ? path : "standard input");
    }
    return 0;
}

void job_ranks_leave(struct ranks *ranks, const struct console *console, struct err *err)
{
    if (!ranks || ranks_size(ranks) == 1)
        return;
    ranks_leave(ranks, err);
    if (err->code != ERR_REPORTED)
        console_fault(console, err);
    err->code = ERR_REPORTED;
}
