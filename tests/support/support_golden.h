/* Golden pictures: committed outputs, refreshed by CKPT_UPDATE_GOLDEN=1; and a made-up training step to draw. */
#ifndef CKPT_TESTS_SUPPORT_GOLDEN_H
#define CKPT_TESTS_SUPPORT_GOLDEN_H

#include "core/formats/graph.h"
#include "core/formats/trace.h"

/* Compare with tests/golden/<name>, or write it when CKPT_UPDATE_GOLDEN is 1. Fails the test naming the first line
 * that differs. */
void ckpt_golden_check(const char *name, const char *bytes, size_t length);

typedef struct ckpt_golden_step {
    int layers;
    int segment;     /* layers between kept activations; 0: keep all */
    ckpt_bytes unit; /* bytes of an ordinary activation; 0: one million */
    bool measured;   /* slower clock, a little outside the arena */
    int wrong_step;  /* this event has `wrong_bytes` more activations; -1 or wrong_bytes 0: none */
    ckpt_bytes wrong_bytes;
} ckpt_golden_step;

/* A chain of layers trained with recomputed segments, each buffer at the lowest free address. Lives in `arena`; asserts
 * that memory suffices. */
const ckpt_trace *ckpt_golden_trace(const ckpt_golden_step *step, ckpt_arena *arena);

/* A chain-like graph "h.0.norm", "h.0.linear", "h.0.relu", ... of that many layers, with a skip over each block; and a
 * plan that recomputes the layers of every odd block and offloads one. */
const ckpt_graph *ckpt_golden_graph(int layers, ckpt_arena *arena);
const ckpt_plan *ckpt_golden_plan(const ckpt_graph *graph, ckpt_arena *arena);

/* Blocks "h.0.conv", "h.0.relu", "h.0.pack" whose ops have variants: a convolution has an inexact one that is faster with
 * workspace, a relu's backward reads the output or the bits that the optional pack writes. And a plan that runs the
 * convolutions of all blocks below `fast` by their variant and those relus' backward from bits. Bound to the graph; it has
 * no allocations. */
const ckpt_graph *ckpt_golden_ways(int blocks, ckpt_arena *arena);
const ckpt_plan *ckpt_golden_ways_plan(const ckpt_graph *graph, int fast, ckpt_arena *arena);

#endif
