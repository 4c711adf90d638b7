/* A spool is the file in which libckpt_inject.so leaves what a process did on its GPUs. ckpt-profile reads it when the
 * process has ended. The process may be killed at any moment, so the file is only appended to, and its end may be cut.
 *
 *     "ckptspol" version process program     then records: length kind ...; every number a LEB128 varint
 *
 * A name is written once and then given by number; times are differences. An activity takes about 20 bytes. The file is
 * closed between two writes: a program that closes all descriptors and opens its own files could otherwise get our
 * bytes in them. */
#ifndef CKPT_CUPTI_SPOOL_H
#define CKPT_CUPTI_SPOOL_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "cupti/activity.h"

typedef struct ckpt_spool ckpt_spool;

typedef struct ckpt_spool_options {
    const char *folder;    /* absolute: the program may go elsewhere */
    const char *program;   /* its name */
    int64_t limit_bytes;   /* of the file; 0: CKPT_SPOOL_LIMIT */
    int64_t reserve_bytes; /* to leave free on the disk for the program; 0: CKPT_SPOOL_RESERVE */
} ckpt_spool_options;

#define CKPT_SPOOL_LIMIT   ((int64_t)32 << 20) /* 800 000 kernels and their calls: ckpt-view needs 1.7 GB for it */
#define CKPT_SPOOL_RESERVE ((int64_t)64 << 20)

/* What a process says besides its activities. The last word of each kind counts. */
typedef enum ckpt_spool_word {
    CKPT_SPOOL_RECORDER, /* the recorder, its cost and its losses */
    CKPT_SPOOL_REFUSED,  /* why nothing could be recorded */
    CKPT_SPOOL_STOPPED,  /* why recording ended before the program */
    CKPT_SPOOL_ENDED,    /* the program ended by exit: the spool is complete */
    CKPT_SPOOL_WORD_COUNT
} ckpt_spool_word;

/* A new file of its own in the folder, "<process>-<n>.spool". Errors: CKPT_IO, CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_spool_create(const ckpt_spool_options *options, ckpt_spool **spool, ckpt_err *err);

/* For one thread at a time. These cannot fail: if the file cannot grow (disk full, limit, folder gone), recording
 * stops, and the file says so if it still can. They keep errno. Cost: about 0.1 us, and one write in ten thousand
 * calls. */
void ckpt_spool_add(ckpt_spool *spool, const ckpt_activity *activity);
void ckpt_spool_say(ckpt_spool *spool, ckpt_spool_word word, const char *text);
void ckpt_spool_flush(ckpt_spool *spool); /* afterwards everything added is in the file and survives the process */
bool ckpt_spool_stopped(const ckpt_spool *spool);
void ckpt_spool_destroy(ckpt_spool *spool); /* without a flush; the file stays; NULL is fine */

typedef struct ckpt_spool_content {
    uint32_t process;
    const char *program;                     /* "" when the file was cut before it */
    const char *word[CKPT_SPOOL_WORD_COUNT]; /* NULL: not said */
    bool cut;                                /* the last record is not whole: it is left out */
    const ckpt_activity *activity;           /* in order of arrival */
    int count;
} ckpt_spool_content;

/* Errors: CKPT_BAD_INPUT (no spool, another version, a record that no spool has; with the byte), CKPT_IO,
 * CKPT_NO_MEMORY. Cost: O(bytes). */
CKPT_MUST_USE ckpt_code ckpt_spool_read(const char *path, ckpt_arena *out, ckpt_spool_content *content, ckpt_err *err);

#endif
