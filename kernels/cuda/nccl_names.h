/* NCCL's names, as far as nccl.c uses them. The library is opened at run time and its interface is that of its soname
 * (libnccl.so.2), so a build without nccl.h takes what stands here; one with it lets the compiler check the calls. */
#ifndef CKPT_KERNELS_CUDA_NCCL_NAMES_H
#define CKPT_KERNELS_CUDA_NCCL_NAMES_H

#ifdef CKPT_HAVE_NCCL_H
#include <nccl.h>
#else
#include <cuda_runtime_api.h>
#include <stddef.h>

typedef struct ncclComm *ncclComm_t;
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;
typedef enum { ncclSuccess = 0, ncclInProgress = 7 } ncclResult_t;
typedef enum { ncclUint8 = 1 } ncclDataType_t;

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int count, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *code);
const char *ncclGetErrorString(ncclResult_t code);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
#endif

#endif
