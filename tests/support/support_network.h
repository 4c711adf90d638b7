/* Small models written in C, so that tests of ops and lowering depend on no file reader.
 *
 *     test_model m;
 *     test_model_init(&m);
 *     test_input(&m, "x", CKPT_FLOAT32, 2, (int64_t[]){4, 8});
 *     test_layer(&m, "fc", "linear", "x", "features=16 bias=false");
 *     test_layer(&m, "act", "relu", "", "");                            -- reads the layer before
 *
 * Attributes are "name=value": 3 is an integer, 0.5 a number, true and false are that, [2,-1] is a list, anything
 * else a text. */
#ifndef CKPT_TESTS_SUPPORT_NETWORK_H
#define CKPT_TESTS_SUPPORT_NETWORK_H

#include "ops/lowering/network.h"

enum { TEST_LAYERS = 256, TEST_INPUTS = 4, TEST_REFS = 64, TEST_ATTRS = 12 };

typedef struct test_model {
    ckpt_arena arena; /* of the model; results go there too */
    ckpt_model model;
    ckpt_tensor input[TEST_INPUTS];
    ckpt_layer layer[TEST_LAYERS];
    ckpt_attr optimizer_attr[TEST_ATTRS];
} test_model;

void test_model_init(test_model *m);
/* The same, with float inputs "x" and "t" of [rows, columns]. */
void test_model_rows(test_model *m, int64_t rows, int64_t columns);
void test_model_fini(test_model *m);
void test_input(test_model *m, const char *name, ckpt_dtype dtype, int rank, const int64_t *dim);
/* `in`: "a b:1", separated by spaces; "": the layer before, or input 0; "-": none. */
ckpt_layer *test_layer(test_model *m, const char *name, const char *op, const char *in, const char *attrs);
void test_optimizer(test_model *m, const char *name, const char *attrs);

/* Infer and lower without failing, or fail the test with the message. */
const ckpt_network *test_infer(test_model *m);
const ckpt_lowered *test_lower(test_model *m);
/* The names of a list, separated by spaces, as one text in the model's arena. */
const char *test_names(test_model *m, const ckpt_graph *graph, ckpt_list list);

/* Lowering reports that memory is out; every place that takes some is the one that finds none, for some start. */
void test_lower_starved(const ckpt_network *network);

#endif
