/* The cases of test_op_contract: every op on small, awkward shapes, then on long ones that take several threads,
 * tiles or strips. An op without two cases fails the test. */
#ifndef CKPT_TESTS_SUPPORT_CASES_H
#define CKPT_TESTS_SUPPORT_CASES_H

#include "ops/lowering/network.h"

/* How float inputs are filled. */
typedef enum ckpt_fill {
    CKPT_FILL_SMOOTH,   /* -1..1, at least 0.05 away from 0, where relu has its kink */
    CKPT_FILL_WIDE,     /* -4..10, at least 0.05 away from 0 and 6, the kinks of relu6 */
    CKPT_FILL_LARGE,    /* 0.5..1.5 of either sign: for divisors */
    CKPT_FILL_DISTINCT, /* a permutation of equally spaced numbers: no two maxima tie */
    CKPT_FILL_SHARES,   /* 0.05..1: for probabilities and roots */
} ckpt_fill;

typedef struct ckpt_case_input {
    int rank;
    int64_t dim[CKPT_RANK_MAX];
    int64_t limit; /* > 0: int32 below it; 0: float32 */
    bool fixed;    /* float32 whose gradient is not wanted */
    bool loss;     /* a scalar, float32 in a bfloat16 network too, whose gradient is wanted */
} ckpt_case_input;

enum { CKPT_CASE_INPUTS = 5, CKPT_CASE_ATTRS = 8, CKPT_CASE_NONE = -1 };

typedef struct ckpt_case {
    const char *op;
    int in_count; /* 0: as many as are written, at least one; CKPT_CASE_NONE; else the last one written stands for all
                     after it */
    ckpt_case_input in[CKPT_CASE_INPUTS];
    ckpt_attr attr[CKPT_CASE_ATTRS]; /* name NULL ends */
    ckpt_fill fill;
    bool ignores;  /* every third integer is -100: rows that do not count */
    int64_t pitch; /* on a GPU input 0 has it where the op reads one, else output 0; 0: none */
} ckpt_case;

extern const ckpt_case ckpt_cases[];
extern const int ckpt_case_count;

/* The input of that number. */
const ckpt_case_input *ckpt_case_in(const ckpt_case *c, int k);

/* -1..1, and moves the generator on. Then x[0..count-1], what the case says input k is filled with. */
double ckpt_case_random(uint64_t *generator);
void ckpt_case_fill(const ckpt_case *c, int k, int64_t count, uint64_t *generator, double *x);

/* A network around the case: float inputs whose gradient is wanted come out of a layer with parameters, the others
 * are model inputs; *node is the layer under test. */
ckpt_code ckpt_case_network(const ckpt_case *c, int threads, ckpt_arena *arena, const ckpt_network **network,
                            const ckpt_node **node, ckpt_err *err);
/* The same with activations of that type; threads may be CKPT_ON_GPU. */
ckpt_code ckpt_case_network_as(const ckpt_case *c, ckpt_dtype dtype, int threads, ckpt_arena *arena,
                               const ckpt_network **network, const ckpt_node **node, ckpt_err *err);

#endif
