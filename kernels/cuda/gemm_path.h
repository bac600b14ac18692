/* Where cuBLAS may lie: the i-th path to try for the library `name`, "" where a folder is not known, false after the last one.
 *
 *     wherever the loader looks; beside the plug-in; then by the compiler, which is `nvcc` and has its library in
 *         ../lib64, ../lib                 in an installed toolkit, in conda's, and in PyPI's (nvidia/cu13) from 13 on
 *         ../targets/x86_64-linux/lib      in conda's and NVIDIA's own
 *         ../../cublas/lib                 in PyPI's up to 12: a folder for each part
 *         ../lib/python3.N/site-packages/nvidia/PART/lib       in the environment of Python whose program it is
 *     /usr/local/cuda/lib64; and where wheels have it (nvidia/cublas/lib, nvidia/cu13/lib), in the system's Python and conda's
 *
 * plugin, nvcc: files; NULL or "": not known. path: GEMM_PATH bytes; a path that does not fit is "", and one with stars stands
 * for the files that gemm_file finds. */
#ifndef MOE_KERNELS_CUDA_GEMM_PATH_H
#define MOE_KERNELS_CUDA_GEMM_PATH_H

#include <glob.h>
#include <stdio.h>
#include <string.h>

enum { GEMM_PATH = 1024 };

static inline bool gemm_path(int i, const char *plugin, const char *nvcc, const char *name, char *path)
{
    enum base { NONE, PLUGIN, NVCC };
    static const struct {
        enum base base;
        const char *folder;
    } candidate[] = {
        {NONE, ""}, {PLUGIN, ""}, {NVCC, "../lib64/"}, {NVCC, "../lib/"}, {NVCC, "../targets/x86_64-linux/lib/"},
        {NVCC, "../../cublas/lib/"}, {NVCC, "../lib/python3*/site-packages/nvidia/*/lib/"},
        {NONE, "/usr/local/cuda/lib64/"}, {NONE, "/usr/local/lib/python3*/dist-packages/nvidia/*/lib/"},
        {NONE, "/usr/local/lib/python3*/site-packages/nvidia/*/lib/"},
        {NONE, "/opt/conda/lib/python3*/site-packages/nvidia/*/lib/"},
    };
    if (i >= (int)(sizeof candidate / sizeof *candidate))
        return false;
    const char *file = candidate[i].base == PLUGIN ? plugin : candidate[i].base == NVCC ? nvcc : NULL;
    const char *slash = file ? strrchr(file, '/') : NULL;
    int length = slash ? (int)(slash - file) + 1 : 0;
    bool known = length || candidate[i].base == NONE;
    if (!known || snprintf(path, GEMM_PATH, "%.*s%s%s", length, length ? file : "", candidate[i].folder, name) >= GEMM_PATH)
        path[0] = '\0';
    return true;
}

/* Returns the n-th file to try for a path of gemm_path: the path itself, or its expansions; false after the last one. */
static inline bool gemm_file(const char *path, int n, char *file)
{
    glob_t found;
    if (!path[0] || (!strchr(path, '*') && n > 0))
        return false;
    if (!strchr(path, '*'))
        return snprintf(file, GEMM_PATH, "%s", path) < GEMM_PATH;
    int error = glob(path, 0, NULL, &found);
    bool more = !error && (size_t)n < found.gl_pathc && snprintf(file, GEMM_PATH, "%s", found.gl_pathv[n]) < GEMM_PATH;
    globfree(&found);
    return more;
}

#endif
