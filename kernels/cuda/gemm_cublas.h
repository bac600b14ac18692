/* The few functions of cuBLAS that gemm.cu calls, as its C interface has declared them since version 11: a handle is a pointer,
 * enumerations are ints. So the plug-in builds with a toolkit without cuBLAS, and opens cuBLAS at run time. If the library's
 * own header is present, the numbers are checked against it. */
#ifndef MOE_KERNELS_CUDA_GEMM_CUBLAS_H
#define MOE_KERNELS_CUDA_GEMM_CUBLAS_H

#include <cuda_runtime.h>
#include <library_types.h>
#if defined(__has_include)
#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define GEMM_HEADER 1
#endif
#endif

enum { GEMM_PLAIN = 0, GEMM_TRANSPOSED = 1, GEMM_DEFAULT_ALGORITHM = -1, GEMM_SUMS_F32 = 68, GEMM_NO_NARROW_SUMS = 16,
       GEMM_NO_ATOMICS = 0 };

#ifdef GEMM_HEADER
static_assert((int)CUBLAS_OP_N == GEMM_PLAIN && (int)CUBLAS_OP_T == GEMM_TRANSPOSED, "cublasOperation_t");
static_assert((int)CUBLAS_GEMM_DEFAULT == GEMM_DEFAULT_ALGORITHM, "cublasGemmAlgo_t");
static_assert((int)CUBLAS_COMPUTE_32F == GEMM_SUMS_F32, "cublasComputeType_t");
static_assert((int)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION == GEMM_NO_NARROW_SUMS, "cublasMath_t");
static_assert((int)CUBLAS_ATOMICS_NOT_ALLOWED == GEMM_NO_ATOMICS, "cublasAtomicsMode_t");
static_assert(sizeof(cublasComputeType_t) == sizeof(int) && sizeof(cublasGemmAlgo_t) == sizeof(int), "enumerations are ints");
#endif

struct gemm_cublas {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*set_workspace)(void *handle, void *workspace, size_t bytes);
    int (*set_math)(void *handle, int mode);
    int (*set_atomics)(void *handle, int mode);
    const char *(*status_name)(int status);
    int (*one)(void *handle, int a_op, int b_op, int m, int n, int k, const void *alpha, const void *a, cudaDataType a_type,
               int a_stride, const void *b, cudaDataType b_type, int b_stride, const void *beta, void *c, cudaDataType c_type,
               int c_stride, int sums, int algorithm);
    int (*each)(void *handle, int a_op, int b_op, int m, int n, int k, const void *alpha, const void *const *a,
                cudaDataType a_type, int a_stride, const void *const *b, cudaDataType b_type, int b_stride, const void *beta,
                void *const *c, cudaDataType c_type, int c_stride, int count, int sums, int algorithm);
};

#endif
