/* Where cuBLAS may lie: the i-th path to try for the library `name`, "" where a place is not known, false behind the last one.
 *
 *     wherever the loader looks; beside the plug-in; then by the compiler, which is `nvcc` and has its library
 *         ../lib64, ../lib                 in an installed toolkit, in conda's, and in PyPI's (nvidia/cu13) from 13 on
 *         ../targets/x86_64-linux/lib      in conda's and NVIDIA's own
 *         ../../cublas/lib                 in PyPI's up to 12: a folder for each part
 *     /usr/local/cuda/lib64
 *
 * plugin, nvcc: files; NULL or "": not known. path: GEMM_PATH bytes; a path that does not fit is "". */
#ifndef MOE_KERNELS_CUDA_GEMM_PATH_H
#define MOE_KERNELS_CUDA_GEMM_PATH_H

#include <stdio.h>
#include <string.h>

enum { GEMM_PATH = 1024 };

static inline bool gemm_path(int i, const char *plugin, const char *nvcc, const char *name, char *path)
{
    enum base { NONE, PLUGIN, NVCC };
    static const struct {
        enum base base;
        const char *folder;
    } place[] = {
        {NONE, ""}, {PLUGIN, ""}, {NVCC, "../lib64/"}, {NVCC, "../lib/"}, {NVCC, "../targets/x86_64-linux/lib/"},
        {NVCC, "../../cublas/lib/"}, {NONE, "/usr/local/cuda/lib64/"},
    };
    if (i >= (int)(sizeof place / sizeof *place))
        return false;
    const char *file = place[i].base == PLUGIN ? plugin : place[i].base == NVCC ? nvcc : NULL;
    const char *slash = file ? strrchr(file, '/') : NULL;
    int length = slash ? (int)(slash - file) + 1 : 0;
    bool known = length || place[i].base == NONE;
    if (!known || snprintf(path, GEMM_PATH, "%.*s%s%s", length, length ? file : "", place[i].folder, name) >= GEMM_PATH)
        path[0] = '\0';
    return true;
}

#endif
