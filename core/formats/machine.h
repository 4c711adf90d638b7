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
    bool gpu;         /* "target": "gpu" in the file, else "cpu", where absent too */
} ckpt_machine;

/* Fill what the host can tell: processor, kernel, date, commit; `libraries` and `command` are copied from the
 * arguments. `device` is the processor and `gpu` false: for a GPU the caller sets those, and `driver`. */
CKPT_MUST_USE ckpt_code ckpt_machine_read(int threads, const char *libraries, int argc, char *const *argv,
                                          ckpt_arena *out, ckpt_machine *machine, ckpt_err *err);
/* The same block for a GPU called `device`: its name, its driver where the system tells, target gpu, no threads. */
CKPT_MUST_USE ckpt_code ckpt_machine_set_gpu(ckpt_machine *machine, const char *device, ckpt_arena *out, ckpt_err *err);
enum { CKPT_THREADS_MAX = 1024 };

/* Online processors, 1 to CKPT_THREADS_MAX: what --threads defaults to where neither plan nor profile says. */
int ckpt_machine_threads(void);

/* What the processor calls itself, or "unknown processor". */
void ckpt_machine_processor(char *name, size_t room);

/* The member "machine" of a file. */
void ckpt_machine_write(const ckpt_machine *machine, ckpt_json_writer *w);

#endif
