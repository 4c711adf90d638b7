/* Small steps that tests of the API build call by call: a chain of layers, forward and backward; a relu in variants. */
#ifndef CKPT_TESTS_LIBCKPT_API_GRAPH_H
#define CKPT_TESTS_LIBCKPT_API_GRAPH_H

#include <stdio.h>

#include "include/ckpt.h"

/* Layer i has an activation of 1000 + 10 i bytes that its backward reads, and takes 100 + i ns forward. `graph` is not
 * finished. */
static inline void build_chain(ckpt_graph *graph, int layers)
{
    char name[32];
    int32_t before = -1;
    int32_t activation[64];
    ckpt_graph_add_static(graph, "weights", 5000);
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "a%d", i);
        activation[i] = ckpt_graph_add_buffer(graph, name, 1000 + 10 * i, CKPT_BUFFER_ACTIVATION);
        snprintf(name, sizeof name, "layer.%d", i);
        const int32_t op = ckpt_graph_add_op(graph, name, CKPT_PHASE_FORWARD, 100 + i, 16);
        ckpt_op_layer(graph, op, name, "linear");
        ckpt_op_writes(graph, op, activation[i]);
        if (i > 0) {
            ckpt_op_reads(graph, op, activation[i - 1]);
        }
    }
    for (int i = layers - 1; i >= 0; i--) {
        snprintf(name, sizeof name, "g%d", i);
        const int32_t gradient = ckpt_graph_add_buffer(graph, name, 1000 + 10 * i, CKPT_BUFFER_GRADIENT);
        snprintf(name, sizeof name, "layer.%d/backward", i);
        const int32_t op = ckpt_graph_add_op(graph, name, CKPT_PHASE_BACKWARD, 200 + i, 0);
        ckpt_op_writes(graph, op, gradient);
        ckpt_op_reads(graph, op, activation[i]);
        if (before >= 0) {
            ckpt_op_reads(graph, op, before);
        }
        before = gradient;
    }
    ckpt_graph_add_output(graph, before);
}

/* A relu between two products. Its backward reads the output, or bits that an optional op packs; the first product has an
 * inexact variant that is faster with workspace. `graph` is not finished. */
static inline void build_ways(ckpt_graph *graph)
{
    const int32_t x = ckpt_graph_add_buffer(graph, "x", 1000, CKPT_BUFFER_ACTIVATION);
    const int32_t y = ckpt_graph_add_buffer(graph, "y", 1000, CKPT_BUFFER_ACTIVATION);
    const int32_t m = ckpt_graph_add_buffer(graph, "m", 32, CKPT_BUFFER_SAVED);
    const int32_t z = ckpt_graph_add_buffer(graph, "z", 100, CKPT_BUFFER_ACTIVATION);
    const int32_t gy = ckpt_graph_add_buffer(graph, "gy", 1000, CKPT_BUFFER_GRADIENT);
    const int32_t gx = ckpt_graph_add_buffer(graph, "gx", 1000, CKPT_BUFFER_GRADIENT);
    const int32_t a = ckpt_graph_add_op(graph, "a", CKPT_PHASE_FORWARD, 1000, 0);
    const int32_t relu = ckpt_graph_add_op(graph, "relu", CKPT_PHASE_FORWARD, 100, 0);
    const int32_t pack = ckpt_graph_add_op(graph, "pack", CKPT_PHASE_FORWARD, 30, 0);
    const int32_t b = ckpt_graph_add_op(graph, "b", CKPT_PHASE_FORWARD, 1000, 0);
    const int32_t b_grad = ckpt_graph_add_op(graph, "b/grad", CKPT_PHASE_BACKWARD, 500, 0);
    const int32_t relu_grad = ckpt_graph_add_op(graph, "relu/grad", CKPT_PHASE_BACKWARD, 120, 0);
    const int32_t bits = ckpt_op_variant(graph, relu_grad, "bits", 110, 0, 1);
    const int32_t winograd = ckpt_op_variant(graph, a, "winograd", 400, 300, 0);
    ckpt_op_own_variant(graph, a, "plain");
    ckpt_op_optional(graph, pack, 1);
    ckpt_op_writes(graph, a, x);
    ckpt_op_writes(graph, winograd, x);
    ckpt_op_reads(graph, relu, x);
    ckpt_op_writes(graph, relu, y);
    ckpt_op_inplace(graph, relu, y, x);
    ckpt_op_reads(graph, pack, y);
    ckpt_op_writes(graph, pack, m);
    ckpt_op_reads(graph, b, y);
    ckpt_op_writes(graph, b, z);
    ckpt_op_reads(graph, b_grad, z);
    ckpt_op_writes(graph, b_grad, gy);
    ckpt_op_reads(graph, relu_grad, gy);
    ckpt_op_reads(graph, relu_grad, y);
    ckpt_op_writes(graph, relu_grad, gx);
    ckpt_op_inplace(graph, relu_grad, gx, gy);
    ckpt_op_reads(graph, bits, gy);
    ckpt_op_reads(graph, bits, m);
    ckpt_op_writes(graph, bits, gx);
    ckpt_op_inplace(graph, bits, gx, gy);
}

#endif
