/* Implements gemm.h by cuBLAS, which is opened at run time: without cuBLAS, the plug-in still loads and decodes. For the
 * emulator, tests/emu/gemm.cc implements gemm.h. */
#include "kernels/cuda/gemm.h"

#include <dlfcn.h>

#include <new>

#include "kernels/cuda/gemm_cublas.h"
#include "kernels/cuda/gemm_path.h"

/* Path of the compiler of this file, defined by the build. */
#ifndef GEMM_NVCC
#define GEMM_NVCC ""
#endif

static const size_t WORKSPACE = (size_t)32 << 20;        /* the workspace that cuBLAS recommends for Hopper and later; enough
                                                          * for older GPUs */

struct gemm {
    void *library, *handle, *workspace;
    bool ready;                          /* the handle is configured as gemm.h promises */
    dev_stream stream;
    struct gemm_cublas call;
};

/* Opens the library of the toolkit's own generation. It is never unloaded, because it contains CUDA's runtime
 * (device_cuda.c). */
static void *open_library(char *why, size_t room)
{
    char name[32], path[GEMM_PATH], file[GEMM_PATH], first[256] = "";
    Dl_info own;
    bool known = dladdr((const void *)open_library, &own) && own.dli_fname;
    snprintf(name, sizeof name, "libcublas.so.%d", CUDART_VERSION / 1000);
    for (int i = 0; gemm_path(i, known ? own.dli_fname : nullptr, GEMM_NVCC, name, path); i++) {
        for (int n = 0; gemm_file(path, n, file); n++)
            if (void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))
                return library;
        if (!i)
            snprintf(first, sizeof first, "%s", dlerror());
    }
    snprintf(why, room, "%s", first);
    return nullptr;
}

template <typename F> static bool look_up(void *library, const char *name, F *out)
{
    void *symbol = dlsym(library, name);
    memcpy(out, &symbol, sizeof symbol);
    return symbol != nullptr;
}

static const char *missing(struct gemm *gemm)
{
    struct gemm_cublas *call = &gemm->call;
    void *from = gemm->library;
    return !look_up(from, "cublasCreate_v2", &call->create)               ? "cublasCreate_v2"
           : !look_up(from, "cublasDestroy_v2", &call->destroy)           ? "cublasDestroy_v2"
           : !look_up(from, "cublasSetStream_v2", &call->set_stream)      ? "cublasSetStream_v2"
           : !look_up(from, "cublasSetWorkspace_v2", &call->set_workspace) ? "cublasSetWorkspace_v2"
           : !look_up(from, "cublasSetMathMode", &call->set_math)         ? "cublasSetMathMode"
           : !look_up(from, "cublasSetAtomicsMode", &call->set_atomics)   ? "cublasSetAtomicsMode"
           : !look_up(from, "cublasGetStatusName", &call->status_name)    ? "cublasGetStatusName"
           : !look_up(from, "cublasGemmEx", &call->one)                   ? "cublasGemmEx"
           : !look_up(from, "cublasGemmBatchedEx", &call->each)           ? "cublasGemmBatchedEx"
                                                                          : nullptr;
}

/* Creates the handle at the first product, so that devices without slabs save its memory and time. Setting a stream resets the
 * workspace, so the workspace is set after the stream. */
static bool prepare(struct gemm *gemm)
{
    struct gemm_cublas *call = &gemm->call;
    if (gemm->ready)
        return true;
    int error = gemm->workspace ? 0 : dev_alloc(&gemm->workspace, WORKSPACE);
    if (error) {
        dev_launched(gemm->stream, error, "memory for cuBLAS", __FILE__, __LINE__);
        return false;
    }
    int status = gemm->handle ? 0 : call->create(&gemm->handle);
    if (!status)
        status = call->set_stream(gemm->handle, dev_stream_of(gemm->stream));
    if (!status)
        status = call->set_workspace(gemm->handle, gemm->workspace, WORKSPACE);
    if (!status)
        status = call->set_math(gemm->handle, GEMM_NO_NARROW_SUMS);
    if (!status)
        status = call->set_atomics(gemm->handle, GEMM_NO_ATOMICS);
    if (status)
        dev_launched(gemm->stream, dev_reported(cudaErrorUnknown), call->status_name(status), __FILE__, __LINE__);
    gemm->ready = !status;
    return gemm->ready;
}

struct gemm *gemm_open(dev_stream stream, char *why, size_t room)
{
    struct gemm *gemm = new (std::nothrow) struct gemm();
    if (!gemm) {
        snprintf(why, room, "there is no memory for cuBLAS");
        return nullptr;
    }
    gemm->stream = stream;
    gemm->library = open_library(why, room);
    const char *name = gemm->library ? missing(gemm) : nullptr;
    if (name)
        snprintf(why, room, "libcublas.so.%d has no %s", CUDART_VERSION / 1000, name);
    if (!gemm->library || name)
        gemm_close(&gemm);
    return gemm;
}

void gemm_close(struct gemm **gemm)
{
    if (*gemm) {
        if ((*gemm)->handle)
            (*gemm)->call.destroy((*gemm)->handle);
        dev_free((*gemm)->workspace);    /* freeing NULL is a no-op */
        if ((*gemm)->library)
            dlclose((*gemm)->library);
        delete *gemm;
    }
    *gemm = nullptr;
}

/* Queues the products. cuBLAS is column-major: a row-major [rows][k] is its k x rows. */
void gemm_run(struct gemm *gemm, const struct gemm_args *a)
{
    const float one = 1, zero = 0, *beta = a->add ? &one : &zero;
    int status;
    if (!prepare(gemm))
        return;
    if (a->count > 0)
        status = gemm->call.each(gemm->handle, GEMM_TRANSPOSED, GEMM_PLAIN, a->outputs, a->rows, a->inputs, &one,
                                 (const void *const *)a->weight, CUDA_R_16BF, a->inputs, (const void *const *)a->in,
                                 CUDA_R_16BF, a->inputs, beta, (void *const *)a->out, CUDA_R_32F, a->outputs, a->count,
                                 GEMM_SUMS_F32, GEMM_DEFAULT_ALGORITHM);
    else
        status = gemm->call.one(gemm->handle, GEMM_TRANSPOSED, GEMM_PLAIN, a->outputs, a->rows, a->inputs, &one, a->weight,
                                CUDA_R_16BF, a->inputs, a->in, CUDA_R_16BF, a->inputs, beta, a->out, CUDA_R_32F, a->outputs,
                                GEMM_SUMS_F32, GEMM_DEFAULT_ALGORITHM);
    dev_launched(gemm->stream, status ? cudaErrorUnknown : cudaSuccess,
                 status ? gemm->call.status_name(status) : "a product of cuBLAS", __FILE__, __LINE__);
}

void gemm_run_floats(struct gemm *gemm, const struct gemm_floats *a)
{
    const float one = 1, zero = 0;
    if (!prepare(gemm))
        return;
    int status = gemm->call.one(gemm->handle, a->b_turned ? GEMM_TRANSPOSED : GEMM_PLAIN,
                                a->a_turned ? GEMM_TRANSPOSED : GEMM_PLAIN, a->columns, a->rows, a->depth, &one, a->b,
                                CUDA_R_32F, a->b_stride, a->a, CUDA_R_32F, a->a_stride, a->add ? &one : &zero, a->c,
                                CUDA_R_32F, a->c_stride, GEMM_SUMS_F32, GEMM_DEFAULT_ALGORITHM);
    dev_launched(gemm->stream, status ? cudaErrorUnknown : cudaSuccess,
                 status ? gemm->call.status_name(status) : "a product of cuBLAS", __FILE__, __LINE__);
}
