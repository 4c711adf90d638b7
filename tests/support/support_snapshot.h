/* What tests of memory snapshots share: importing with the notes kept, sums worked out again, and pickles made of texts
 * that look like Python. */
#ifndef CKPT_TESTS_SUPPORT_SNAPSHOT_H
#define CKPT_TESTS_SUPPORT_SNAPSHOT_H

#include "tests/support/support_core.h"

#include "imports/import.h"

#define SNAPSHOT(name) ckpt_source_file("tests/imports/" name)

/* What it notes is in ckpt_test_notes. */
ckpt_code ckpt_test_snapshot_import(const char *path, ckpt_arena *arena, ckpt_trace **trace, ckpt_err *err);

/* The pickle of what looks like Python: {'a': [1, 'x', N]}, N for None. Gives its size. */
enum { CKPT_TEST_PICKLE_ROOM = 1 << 17 };
size_t ckpt_test_pickle(const char *text, char bytes[CKPT_TEST_PICKLE_ROOM]);

/* The same of such a pickle. */
ckpt_code ckpt_test_snapshot_text(const char *text, ckpt_arena *arena, ckpt_trace **trace, ckpt_err *err);

/* Bytes allocated after an event, those outside not counted; and whether it allocates or frees. */
ckpt_bytes ckpt_test_allocated(const ckpt_event *event);
bool ckpt_test_is_memory(const ckpt_event *event);

/* Every event's bytes against a list of what is allocated, searched from its start; the peak against all of them; and
 * the trace must be one that its own reader takes. */
void ckpt_test_snapshot_sums(const ckpt_trace *trace);

/* Pieces of such texts. */
#define ALLOC(address, size)    "{'action':'alloc','addr':" #address ",'size':" #size "},"
#define FREE(address, size)     "{'action':'free_completed','addr':" #address ",'size':" #size "},"
#define ASK(address, size)      "{'action':'free_requested','addr':" #address ",'size':" #size "},"
#define SEGMENT(address, total) "{'address':" #address ",'total_size':" #total ",'allocated_size':1,'blocks':["
#define USED(size, asked)       "{'size':" #size ",'requested_size':" #asked ",'state':'active_allocated'},"
#define UNUSED(size)            "{'size':" #size ",'requested_size':0,'state':'inactive'},"

#endif
