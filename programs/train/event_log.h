/* A log for TensorBoard: records of a length, a checksum, a protobuf message `Event` and a checksum.
 * Source: tensorflow/core/lib/io/record_writer.h (format of records, masked CRC-32C), tensorflow/core/util/event.proto and
 * tensorflow/core/framework/summary.proto (fields 1 and 2 of Event, 3 file_version, 5 summary; Summary.value 1; of a value
 * 1 tag, 2 simple_value). */
#ifndef CKPT_PROGRAMS_TRAIN_EVENT_LOG_H
#define CKPT_PROGRAMS_TRAIN_EVENT_LOG_H

#include "programs/train/append.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ckpt_event_log {
    ckpt_append records;
    char path[4096];
} ckpt_event_log;

/* A new file events.out.tfevents.<seconds>.<host>.<process> in `folder`, which is made if it is not there. TensorBoard reads
 * all files of a folder, so a resumed run adds one. Errors: CKPT_IO. */
CKPT_MUST_USE ckpt_code ckpt_event_log_open(ckpt_event_log *log, const char *folder, ckpt_err *err);
void ckpt_event_log_add(ckpt_event_log *log, uint64_t step, const char *tag, double value);
CKPT_MUST_USE ckpt_code ckpt_event_log_close(ckpt_event_log *log, ckpt_err *err);

#endif
