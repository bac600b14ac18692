/* Lists where cuBLAS may be: writes the i-th path to try for the library `name`, "" if its folder is not known; returns false
 * after the last one. The order:
 *
 *     the loader's search path; the plug-in's folder; then relative to the folder of the compiler, `nvcc`:
 *         ../lib64, ../lib                 in an installed toolkit, in conda's, and in PyPI's from 13 on (nvidia/cu13)
 *         ../targets/x86_64-linux/lib      in conda's and NVIDIA's own
 *         ../../cublas/lib                 in PyPI's up to 12, with one folder per component
 *         ../lib/python3.N/site-packages/nvidia/PART/lib       in the Python environment that installed nvcc
 *     /usr/local/cuda/lib64; and the folders of wheels (nvidia/cublas/lib, nvidia/cu13/lib) in the system's Python and conda's
 *
 * plugin, nvcc: files; NULL or "": not known. path: GEMM_PATH bytes; a path that does not fit becomes "", and a path with stars
 * is a pattern for gemm_file. */
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

/* Writes the n-th file to try for a path of gemm_path (the path itself, or the n-th match of its pattern); returns false after
 * the last one. */
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
