/* Message transport between the processes of a job: one C structure, returned by one function of a plug-in that ranks.c opens
 * at run time. moe-ranks-mpi.so is the plug-in for MPI (common/ranks/mpi).
 *
 * Messages from one process to another arrive in the order in which they were sent. The plug-in defines its error numbers; 0 is
 * success. All calls come from one thread. */
#ifndef MOE_RANKS_PLUGIN_H
#define MOE_RANKS_PLUGIN_H

#include <stddef.h>

#define RANKS_PLUGIN_VERSION 1
#define RANKS_PLUGIN_SYMBOL "moe_ranks_plugin"

/* Max bytes of a message. */
#define RANKS_MESSAGE_BYTES (1 << 20)

struct ranks_link;

struct ranks_plugin {
    int version;                            /* must equal RANKS_PLUGIN_VERSION before any other member is used */
    /* context: passed by the caller, used by this link only. The caller numbers requests 0 .. requests_per_rank * *size - 1. */
    int (*open)(struct ranks_link **out, void *context, int requests_per_rank, int *rank, int *size);
    /* Starts a request; `data` must stay valid until test reports its completion. */
    int (*send)(struct ranks_link *link, int request, int to, const void *data, size_t bytes);
    int (*receive)(struct ranks_link *link, int request, int from, void *data, size_t bytes);
    int (*test)(struct ranks_link *link, int request, int *done);
    int (*close)(struct ranks_link **link); /* collective: all processes must call it */
    const char *(*error_text)(int error);   /* valid until the next call */
};

__attribute__((visibility("default"))) const struct ranks_plugin *moe_ranks_plugin(void);

#endif
