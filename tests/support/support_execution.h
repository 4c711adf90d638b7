/* ExecutionTraces made by hand: one training step as nodes, and the JSON that PyTorch would write of it. */
#ifndef CKPT_TESTS_SUPPORT_EXECUTION_H
#define CKPT_TESTS_SUPPORT_EXECUTION_H

#include "tests/support/support_core.h"

#include "imports/import.h"

enum { CKPT_TEST_TRACE_ROOM = 1 << 16, CKPT_TEST_ARGUMENTS = 6, CKPT_TEST_BY_HAND = 29 };

/* An input or output: a tensor of float with one dimension (none when elements is 0), or JSON as it is. */
typedef struct ckpt_test_argument {
    int tensor, storage, elements;
    const char *device; /* NULL: cuda:0 */
    const char *json;
} ckpt_test_argument;

typedef struct ckpt_test_node {
    int id, parent; /* its rf_id is its id too */
    const char *name;
    int scope, seq;
    const char *schema;
    ckpt_test_argument in[CKPT_TEST_ARGUMENTS], out[2];
} ckpt_test_node;

#define T(tensor, storage, elements)                                                                                   \
    {                                                                                                                  \
        tensor, storage, elements, NULL, NULL                                                                          \
    }
#define J(text)                                                                                                        \
    {                                                                                                                  \
        0, 0, 0, NULL, text                                                                                            \
    }
#define UNARY(name)  "aten::" name "(Tensor self) -> Tensor"
#define BINARY(name) "aten::" name ".Tensor(Tensor self, Tensor other) -> Tensor"

/* x * w, relu in place, a view, dropout of ops inside it, a sum; backward on another thread, which adds into the
 * gradient of w and uses the addresses of dropout's result again; an optimizer's step. Names are the ops'. */
extern const ckpt_test_node ckpt_test_by_hand[CKPT_TEST_BY_HAND];

/* Kineto events of kernels of that step: 1.5 and 0.25 us of node 20, by the op that launched them; 2.125 us of node 41
 * by the call that did. Node 20 is inside a module, and allocates up to 5000 bytes on its device and others elsewhere. */
extern const char *const ckpt_test_kernels;

/* The trace of nodes, at most CKPT_TEST_TRACE_ROOM long; static, until the next call. */
const char *ckpt_test_trace(const ckpt_test_node *nodes, int count, size_t *length);

/* Import `bytes`, at 1 GB/s or by `times`, a Kineto trace, where that is not NULL; what it notes is in
 * ckpt_test_notes. */
ckpt_code ckpt_test_import(const char *bytes, size_t count, const char *times, ckpt_arena *arena, ckpt_graph **graph,
                           ckpt_err *err);

/* Fails the test when `text` has no `part`. */
void ckpt_test_has(const char *text, const char *part);

#endif
