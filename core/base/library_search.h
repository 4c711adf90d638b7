/* Opening a library of NVIDIA's at run time, wherever it was installed: with the CUDA toolkit, by the system, or with a
 * Python (the wheels that PyTorch brings, .../site-packages/nvidia/cu13/lib, nvidia/nccl/lib, ...). */
#ifndef CKPT_CORE_BASE_LIBRARY_SEARCH_H
#define CKPT_CORE_BASE_LIBRARY_SEARCH_H

typedef struct ckpt_library {
    const char *const *name; /* of the file, the preferred one first; NULL ends the list */
    const char *package;     /* the folder below nvidia/ that older wheels have it in: "cuda_cupti" */
} ckpt_library;

/* NULL: there is none. Every name is looked for in one place after the other:
 *   1. among the libraries that this process has loaded
 *   2. beside its libcudart, libcublasLt or libcudnn, which then are of the same installation
 *   3. where the loader looks: LD_LIBRARY_PATH, the system's folders
 *   4. in $CUDA_HOME, $CUDA_PATH, the wheels of $VIRTUAL_ENV, /usr/local/cuda
 * Symbols stay local; dlclose closes it. */
void *ckpt_library_open(const ckpt_library *library);

#endif
