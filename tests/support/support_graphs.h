/* Graphs for planner tests, and a replay of plans that shares nothing with the planner's own. */
#ifndef CKPT_TESTS_SUPPORT_GRAPHS_H
#define CKPT_TESTS_SUPPORT_GRAPHS_H

#include "core/formats/plan.h"

typedef struct ckpt_dice {
    uint64_t state;
} ckpt_dice;
int ckpt_dice_roll(ckpt_dice *dice, int sides); /* 0 .. sides - 1 */

/* A chain of n blocks: forward i reads a(i-1), writes a(i) and s(i); backward i reads the gradient of a(i), s(i),
 * a(i-1) and, by chance, a(i). All sizes are 1 .. size_max times `unit`, all times 1 .. time_max. */
ckpt_graph *ckpt_test_chain(ckpt_arena *arena, uint64_t seed, int n, int size_max, ckpt_bytes unit, int time_max);

/* A chain of n blocks of 1 to 3 ops: inside a block, op reads op, and either backward reads nothing of that or the last
 * op also reads what enters the block, so that strict cuts are between blocks only. What backward reads is up to
 * chance, but for the input of each block, which its own backward reads, and something that does not cross behind it,
 * which fixes where its backward starts; the gradient that leaves a block is added to. The backward of forward op f of
 * F is op 2F - 1 - f.
 *
 *   first   room for n + 1: first forward op of each block, and F */
ckpt_graph *ckpt_test_blocks(ckpt_arena *arena, uint64_t seed, int n, int size_max, int time_max, int *first);

/* A step of random shape: skip connections, several outputs, saved tensors, workspaces, in-place pairs, gradients that
 * several ops add to, ops that may not run again, flagged segments, empty buffers, an output, updates at the end. */
ckpt_graph *ckpt_test_step(ckpt_arena *arena, uint64_t seed, int forward_ops);

/* Plain replay with one flag per buffer: fails the test with `what` unless every step is legal, every buffer in
 * memory has a place that no other in memory touches (byte by byte comparison of all pairs), and peak, time and budget
 * are as the plan says; with copies the time is only tested
 * to be no less than that of the runs. */
void ckpt_test_replay(const ckpt_graph *graph, const ckpt_plan *plan, const char *what);

/* Peak (static not counted) and time of an order of runs, every buffer kept from its write to its last use before the
 * next write, or until an op whose every in-place pair allows it writes over it. Quadratic. No copies. */
void ckpt_test_measure(const ckpt_graph *graph, const int *order, int count, ckpt_bytes *peak, ckpt_ns *time);

/* Keep-all's peak in bytes, static ones included. */
ckpt_bytes ckpt_test_keep_all(const ckpt_graph *graph, ckpt_arena *arena);

#endif
