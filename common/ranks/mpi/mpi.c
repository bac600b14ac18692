/* The message plug-in for MPI. No other file includes mpi.h. */
#include <mpi.h>
#include <stdlib.h>

#include "common/ranks/plugin.h"

struct ranks_link {
    MPI_Request *request;
};

static int mpi_open(struct ranks_link **out, void *context, int requests_per_rank, int *rank, int *size)
{
    int have, error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &have);
    struct ranks_link *link;
    (void)context;
    if (error || (error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)) ||
        (error = MPI_Comm_rank(MPI_COMM_WORLD, rank)) || (error = MPI_Comm_size(MPI_COMM_WORLD, size)))
        return error;
    const size_t requests = (size_t)requests_per_rank * (size_t)*size;
    if (!(link = malloc(sizeof *link)) || !(link->request = malloc(requests * sizeof *link->request))) {
        free(link);
        return MPI_ERR_NO_MEM;
    }
    for (size_t i = 0; i < requests; i++)
        link->request[i] = MPI_REQUEST_NULL;
    *out = link;
    return 0;
}

static int mpi_send(struct ranks_link *link, int request, int to, const void *data, size_t bytes)
{
    return MPI_Isend(data, (int)bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD, &link->request[request]);
}

static int mpi_receive(struct ranks_link *link, int request, int from, void *data, size_t bytes)
{
    return MPI_Irecv(data, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, &link->request[request]);
}

static int mpi_test(struct ranks_link *link, int request, int *done)
{
    return MPI_Test(&link->request[request], done, MPI_STATUS_IGNORE);
}

static int mpi_close(struct ranks_link **link)
{
    free((*link)->request);
    free(*link);
    *link = NULL;
    return MPI_Finalize();
}

static const char *mpi_error_text(int error)
{
    static char text[MPI_MAX_ERROR_STRING];
    int length;
    return MPI_Error_string(error, text, &length) ? "unknown error of MPI" : text;
}

const struct ranks_plugin *moe_ranks_plugin(void)
{
    static const struct ranks_plugin plugin = {
        RANKS_PLUGIN_VERSION, mpi_open, mpi_send, mpi_receive, mpi_test, mpi_close, mpi_error_text};
    return &plugin;
}
