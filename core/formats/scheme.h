/* How one training step is spread: over micro-batches, over data-parallel ranks (replicas) and over pipeline stages;
 * and where gradients of parameters and optimizer state live meanwhile. The graph of a step, its static block and the
 * order of its data follow from it, so a plan file carries it and ckpt-train trains by it.
 *
 *     rank = replica * stages + stage                                  world = replicas * stages ranks
 *     batch of the data = (step * replicas + replica) * micro_batches + micro-batch
 *
 * Sums of gradients have one order, whatever the plan: within a replica micro-batch after micro-batch, each added to
 * what is there; then over replicas, replica 0 first. Then they are divided by micro_batches * replicas, a
 * multiplication with the reciprocal in float. */
#ifndef CKPT_CORE_FORMATS_SCHEME_H
#define CKPT_CORE_FORMATS_SCHEME_H

#include <stdbool.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "core/base/units.h"
#include "core/json/json.h"
#include "core/json/json_write.h"

enum { CKPT_MICRO_BATCHES_MAX = 4096, CKPT_RANKS_MAX = 4096 };

typedef struct ckpt_scheme {
    int micro_batches; /* of a rank in a step, >= 1 */
    int replicas;      /* data-parallel ranks (of each stage), >= 1 */
    int stages;        /* pipeline partitions, >= 1 */
    int stage;         /* 0 .. stages - 1: this one */
    /* [stages] names of the first layer of each stage; NULL: not yet chosen, or stages is 1 */
    const char *const *first_layer;
    bool apart; /* tied layers have copies of the parameter and gradients of their own even within one stage, as they
                   always have in different stages (ckpt_tied_group) */
    bool fused; /* gradients of parameters are buffers, live from the first backward that writes one to its update,
                   which follows as soon as nothing adds to it any more */
    bool shard_optimizer;        /* each replica keeps the optimizer state of its chunks of the parameters */
    bool overlap;                /* buckets are reduced while backward goes on */
    ckpt_bytes bucket_bytes;     /* gradients that are reduced together are at least so many bytes; >= 1 */
    int64_t network_bytes_per_s; /* from rank to rank; for times alone; >= 1 */
} ckpt_scheme;

/* One rank, one batch: everything 1, false, 25 MiB (PyTorch's DDP bucket_cap_mb), 10 GB/s. */
extern const ckpt_scheme ckpt_scheme_alone;

/* One rank, one micro-batch, static gradients? A scheme of zeros is plain, too. */
bool ckpt_scheme_is_plain(const ckpt_scheme *scheme);

/* The name of a step in traces: "net, stage 1 of 4" for stage 1, from 0, of graph "net"; the graph's own without stages. Errors: CKPT_NO_MEMORY. */
CKPT_MUST_USE ckpt_code ckpt_scheme_title(const ckpt_scheme *scheme, const char *graph, ckpt_arena *out,
                                          const char **title, ckpt_err *err);

/* Ranks in all. */
int ckpt_scheme_ranks(const ckpt_scheme *scheme);

/* The first number or combination that makes no sense, as CKPT_BAD_INPUT: sharding or overlap with one replica, a stage
 * that does not exist, counts out of range. */
CKPT_MUST_USE ckpt_code ckpt_scheme_check(const ckpt_scheme *scheme, ckpt_err *err);

/* The member "scheme" of a plan file; nothing is written for a plain scheme, and an absent member reads as
 * ckpt_scheme_alone. */
void ckpt_scheme_write(const ckpt_scheme *scheme, ckpt_json_writer *w);
CKPT_MUST_USE ckpt_code ckpt_scheme_read(const ckpt_item *plan, ckpt_arena *out, ckpt_scheme *scheme, ckpt_err *err);

#endif
