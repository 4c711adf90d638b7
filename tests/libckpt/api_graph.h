/* A small step that tests of the API build call by call: a chain of layers, forward and backward. */
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

#endif
