/* A double of libcupti for machines without a GPU: bin/libcupti_double.so exports the CUPTI functions that ckpt uses
 * and gives back activity records as bytes, through the buffers and callbacks it was registered with, in the layout of
 * the version it plays. Nothing runs on a device; what "ran" is scripted, on a clock of its own that starts at 10^12
 * ns.
 *
 *     CKPT_CUPTI=.../bin/libcupti_double.so \
 *     CKPT_CUPTI_DOUBLE_SCRIPT='*: kernel gemm 1000; kernel bias 200
 *                               7: copy to_host 4096 300' CKPT_CUPTI_DOUBLE='version=26; drop=3' ckpt-profile ...
 *
 * THE SCRIPT: rules, one to a line, "TAG: item; item" or "*: ..." for tags without a rule of their own. Whenever a
 * thread pops a tag (external correlation id) inside which it pushed no other, the items of its rule happen, as if the
 * thread had started them just before the pop. A line without "TAG:" happens at once when recording begins, untagged.
 *
 *     kernel NAME NS          on the current stream, after what that stream has; also a call cudaLaunchKernel
 *     copy WAY BYTES NS       WAY: to_host, to_device, on_device, host
 *     fill BYTES NS
 *     allocate BYTES ADDRESS  of device memory; a call cudaMalloc. ADDRESS as 0x...
 *     release ADDRESS         of what was allocated there
 *     host BYTES ADDRESS      allocates page-locked memory of the host
 *     call NS                 cudaDeviceSynchronize
 *     overhead NS
 *     range NAME / end        NVTX push and pop
 *     mark NAME               NVTX mark
 *     gap NS                  the host does nothing; its clock goes on
 *     stream N                for the items after it in this rule (7)
 *     driver / runtime        whose call the items after it are (runtime)
 *
 * THE CONTROLS, "name=value; name=value" in CKPT_CUPTI_DOUBLE (read when the library is first called) or by
 * ckpt_cupti_double_control:
 *
 *     version=130001          of cuptiGetVersion, and of the records; 26 is CUDA 12.8, 130202 is 13.2
 *     holder=NAME             NAME records this process already: subscribing is refused
 *     fail=FUNCTION:CODE      that function gives that CUptiResult (35: no permission, 15: driver too old, 999)
 *     refuse=KIND             that kind of activity (its number) cannot be enabled: CUPTI_ERROR_NOT_COMPATIBLE
 *     drop=N                  N records are told as dropped, once
 *     backwards=N             every N-th kernel, copy and fill ends before it starts
 *     cut=N                   every N-th buffer comes back 20 bytes short
 *     buffer=BYTES            no more than that is written into one buffer
 *     thread=1                buffers come back on a thread of the double's own
 *     reverse=1               the last record first
 *     running=1               kernels are not done yet: their records wait until running=0
 *     keep=1                  buffers do not come back before ckpt_cupti_double_deliver
 *     untimed=N               every N-th kernel, copy and fill has no times (0, 0)
 *
 * A STREAM: CKPT_CUPTI_DOUBLE_STREAM=FILE plays a file of records once, at the first flush, byte for byte
 * (double_stream.c says what is in it). CKPT_CUPTI_DOUBLE_WRITE=FILE writes all that is delivered as such a file. */
#ifndef CKPT_TESTS_CUPTI_DOUBLE_H
#define CKPT_TESTS_CUPTI_DOUBLE_H

#include <stdint.h>

/* Exported beside CUPTI's functions, for programs that opened the library (dlsym). */

/* Back to how it was loaded: nothing recorded, no subscriber, controls and files from the environment as it is now. */
void ckpt_cupti_double_reset(void);
int ckpt_cupti_double_control(const char *controls); /* 0, or -1: not understood */
/* Rules in place of those of the environment. 0, or -1. */
int ckpt_cupti_double_script(const char *rules);
/* Let these items happen now, on this thread, under the tags it has pushed. 0, or -1. */
int ckpt_cupti_double_run(const char *items);
/* One record as bytes, as CUPTI would put it in a buffer; `size` is the caller's word for it. */
void ckpt_cupti_double_record(const void *bytes, uint32_t size);
/* Give back what is there through the callbacks registered last, even after cuptiUnsubscribe. */
void ckpt_cupti_double_deliver(void);
/* What was asked of it: the kinds enabled (bit 1 << CUpti_ActivityKind), and calls of a function since the reset. */
uint64_t ckpt_cupti_double_enabled(void);
int ckpt_cupti_double_calls(const char *function);

#endif
