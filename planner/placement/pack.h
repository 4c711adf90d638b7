/* Placement as a problem of its own: buffers in a CSV file, offsets in another. */
#ifndef CKPT_PLANNER_PLACEMENT_PACK_H
#define CKPT_PLANNER_PLACEMENT_PACK_H

#include "core/base/text.h"
#include "planner/placement/allocate.h"

/* Buffers as a file has them: columns id, lower, upper, size in any order, found by their names in the first line;
 * other columns are not looked at. A buffer takes `size` bytes during [lower, upper). */
typedef struct ckpt_pack_row {
    const char *id; /* not terminated */
    size_t id_length;
    int64_t lower, upper;
    ckpt_bytes size;
    int line, column; /* of its id, from 1 */
} ckpt_pack_row;

typedef struct ckpt_pack {
    const ckpt_pack_row *row;
    ckpt_allocation *allocation; /* of each row; steps are numbers of moments at which something begins or ends */
    int count;
    ckpt_bytes live; /* the most that is live at once */
} ckpt_pack;

/* Errors: CKPT_BAD_INPUT (the message names line and column), CKPT_OVERFLOW, CKPT_IO, CKPT_NO_MEMORY.
 * Cost: O(bytes + n log n). */
CKPT_MUST_USE ckpt_code ckpt_pack_read(const char *path, ckpt_arena *out, ckpt_pack **pack, ckpt_err *err);

/* id,lower,upper,size,offset in the order of the file. */
void ckpt_pack_write(const ckpt_pack *pack, ckpt_text *text);

/* Read `path`, pack, write `output` ("-": standard output).
 *
 *   capacity   as ckpt_bytes_parse has it, percentages of the live bound; NULL: the live bound
 *   options    effort (a hard problem gets more than a plan's allocations do), deadline and stop
 *   summary    one line is added
 *   within     set: the packing takes no more than the capacity; else it is the best that was found
 *
 * Errors: as ckpt_pack_read. */
CKPT_MUST_USE ckpt_code ckpt_pack_file(const char *path, const char *output, const char *capacity,
                                       const ckpt_plan_options *options, ckpt_text *summary, bool *within,
                                       ckpt_err *err);

#endif
