/* The machine block: which machine, software and command made a recorded file. */
#ifndef CKPT_CORE_FORMATS_MACHINE_H
#define CKPT_CORE_FORMATS_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/json/json_write.h"

/* Every text may be "", never NULL. */
typedef struct ckpt_machine {
    const char *device; /* "cpu: AMD EPYC, 2 threads" */
    const char *driver; /* GPU driver; "" on the CPU */
    const char *clocks;
    const char *libraries; /* "oneDNN 2.6.3, glibc 2.36" */
    const char *commit;    /* of ckpt, as built */
    const char *command;
    const char *date; /* UTC, ISO 8601 */
    int threads;      /* of the CPU's kernels; 0: unknown, and on a GPU */
    bool gpu;         /* "target": "gpu" in the file, else "cpu", the default */
} ckpt_machine;

/* Fill what the host can tell: processor, kernel, date, commit; `libraries` and `command` are copied from the
 * arguments. The block is that of the CPU; ckpt_machine_set_gpu makes it a GPU's. */
CKPT_MUST_USE ckpt_code ckpt_machine_read(int threads, const char *libraries, int argc, char *const *argv,
                                          ckpt_arena *out, ckpt_machine *machine, ckpt_err *err);
/* Turns the block into one of a GPU called `device`: its name, its driver if the system tells it, target gpu, no
 * threads. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_machine_set_gpu(ckpt_machine *machine, const char *device, ckpt_arena *out, ckpt_err *err);

enum { CKPT_THREADS_MAX = 1024 };

/* Online processors, 1 to CKPT_THREADS_MAX: the default of --threads if neither plan nor profile has a number. */
int ckpt_machine_threads(void);

/* What the processor calls itself, or "unknown processor". */
void ckpt_machine_processor(char *name, size_t room);

/* The member "machine" of a file. */
void ckpt_machine_write(const ckpt_machine *machine, ckpt_json_writer *w);

#endif
