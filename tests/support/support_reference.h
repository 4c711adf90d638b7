/* The forward of every op, a second time: in double, from the formula, in plain loops, slow. Written without looking
 * at kernels/, so that the two can only agree by both being right.
 *
 * Every tensor here is in the order it is written in ([N, C, H, W] with W fastest), whatever memory order the kernels
 * use; whoever compares reorders. Integer tensors hold their integers as doubles. */
#ifndef CKPT_TESTS_SUPPORT_REFERENCE_H
#define CKPT_TESTS_SUPPORT_REFERENCE_H

#include "ops/op.h"
#include "ops/optimizer.h"

typedef struct ckpt_reference {
    const ckpt_node *node;
    const double *const *in;
    const double *const *param;
    double *const *out;
    double *const *saved;
    double *const *stat; /* read when evaluating, else moved on by one step */
    uint64_t seed, step;
    bool evaluating;
} ckpt_reference;

/* False when there is no reference for this op. */
bool ckpt_reference_forward(const ckpt_reference *r);

/* One step of an optimizer on one value; slot[0..slots-1] are its state. False when there is no reference. */
bool ckpt_reference_update(const ckpt_optimizer *optimizer, const double *hyper, bool decay, uint64_t step,
                           double *param, double grad, double *slot);

/* What every optimizer is tested with; hyperparameters in the order of the optimizer's own list. */
typedef struct ckpt_setting {
    const char *optimizer;
    double hyper[CKPT_HYPER_MAX];
} ckpt_setting;
extern const ckpt_setting ckpt_settings[];
extern const int ckpt_setting_count;

/* Those that update a parameter as a whole: one step on it. `slot`: the state as numbers, moments in 8 bits as what they
 * stand for. False when there is no reference. */
bool ckpt_reference_update_whole(const ckpt_optimizer *optimizer, const double *hyper, bool decay,
                                 const ckpt_matrix *matrix, uint64_t step, double *param, const double *grad,
                                 double *const *slot);
extern const ckpt_setting ckpt_whole_settings[];
extern const int ckpt_whole_setting_count;

/* Philox4x32-10's word for `element` under the convention of docs: key = seed, counter = (element / 4, step,
 * layer << 8 | stream), word element % 4. Then whether dropout keeps the element. */
uint32_t ckpt_reference_philox(uint64_t seed, uint64_t step, uint32_t layer, uint32_t stream, uint64_t element);
bool ckpt_reference_keeps(uint32_t word, double p);

/* One function per op, in support_reference*.c. */
typedef void ckpt_reference_op(const ckpt_reference *r);
ckpt_reference_op ckpt_reference_l1, ckpt_reference_huber, ckpt_reference_bce, ckpt_reference_kl, ckpt_reference_total,
    ckpt_reference_recurrent, ckpt_reference_moe;
ckpt_reference_op ckpt_reference_conv2d, ckpt_reference_batchnorm, ckpt_reference_maxpool2d, ckpt_reference_avgpool2d,
    ckpt_reference_global_avgpool, ckpt_reference_upsample, ckpt_reference_softmax, ckpt_reference_log_softmax,
    ckpt_reference_attention, ckpt_reference_relative_bias, ckpt_reference_window_mask, ckpt_reference_lstm_cell,
    ckpt_reference_embedding, ckpt_reference_positional_embedding, ckpt_reference_cross_entropy,
    ckpt_reference_linear_cross_entropy, ckpt_reference_nll_loss, ckpt_reference_mse, ckpt_reference_layernorm,
    ckpt_reference_linear, ckpt_reference_matmul, ckpt_reference_slice, ckpt_reference_pad, ckpt_reference_roll;

ckpt_reference_op ckpt_reference_tile, ckpt_reference_sum, ckpt_reference_mean, ckpt_reference_max,
    ckpt_reference_gather, ckpt_reference_cumsum;

ckpt_reference_op ckpt_reference_conv_transpose, ckpt_reference_adaptive_maxpool2d, ckpt_reference_adaptive_avgpool2d;
ckpt_reference_op ckpt_reference_rmsnorm, ckpt_reference_rope, ckpt_reference_swiglu, ckpt_reference_geglu;
ckpt_reference_op ckpt_reference_groupnorm, ckpt_reference_timestep_embedding;

#endif
