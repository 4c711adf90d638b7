/* The case table, and the small networks its rows become. */
#include "tests/support/support_cases.h"

#include <math.h>

/* clang-format off */
#define INT(n, v)   {.name = (n), .kind = CKPT_INT, .integer = (v), .real = (v)}
#define REAL(n, v)  {.name = (n), .kind = CKPT_FLOAT, .real = (v)}
#define FLAG(n, v)  {.name = (n), .kind = CKPT_BOOL, .integer = (v)}
#define WORD(n, v)  {.name = (n), .kind = CKPT_STRING, .string = (v)}
#define LENGTH(...) ((int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define LIST(n, ...) \
    {.name = (n), .kind = CKPT_INTS, .ints = (const int64_t[]){__VA_ARGS__}, .int_count = LENGTH(__VA_ARGS__)}
#define F(...)      {.rank = LENGTH(__VA_ARGS__), .dim = {__VA_ARGS__}}
#define FIXED(...)  {.rank = LENGTH(__VA_ARGS__), .dim = {__VA_ARGS__}, .fixed = true}
#define IDS(l, ...) {.rank = LENGTH(__VA_ARGS__), .dim = {__VA_ARGS__}, .limit = (l)}
#define LOSS        {.rank = 1, .dim = {1}, .loss = true}
#define IN(...)     .in = {__VA_ARGS__}
#define AT(...)     .attr = {__VA_ARGS__}

const ckpt_case ckpt_cases[] = {
    {.op = "linear", IN(F(5, 7)), AT(INT("features", 3))},
    {.op = "linear", IN(F(2, 3, 17)), AT(INT("features", 5), FLAG("bias", 0))},
    {.op = "linear", IN(F(1, 1)), AT(INT("features", 1))},
    {.op = "linear", IN(F(33, 9)), AT(INT("features", 19))},
    {.op = "linear", IN(FIXED(6, 4)), AT(INT("features", 2))},

    {.op = "matmul", IN(F(5, 7), F(7, 3))},
    {.op = "matmul", IN(F(2, 3, 17), F(2, 5, 17)), AT(FLAG("transpose_y", 1))},
    {.op = "matmul", IN(F(2, 3, 1, 4, 9), FIXED(2, 3, 1, 9, 5))},
    {.op = "matmul", IN(FIXED(2, 1, 3), F(2, 4, 3)), AT(FLAG("transpose_y", 1))},
    {.op = "matmul", IN(F(1, 1), F(1, 1))},

    {.op = "conv2d", IN(F(2, 3, 7, 6)), AT(INT("out_channels", 4), INT("kernel_size", 3), INT("padding", 1))},
    {.op = "conv2d", IN(F(2, 4, 7, 9)),
     AT(INT("out_channels", 6), LIST("kernel_size", 3, 2), LIST("stride", 2, 3), LIST("padding", 1, 0),
        INT("groups", 2), FLAG("bias", 0))},
    {.op = "conv2d", IN(F(1, 5, 6, 5)),
     AT(INT("out_channels", 5), INT("kernel_size", 3), INT("stride", 2), INT("padding", 1), INT("groups", 5),
        FLAG("bias", 0))},
    {.op = "conv2d", IN(F(2, 4, 5, 5)), AT(INT("out_channels", 8), INT("kernel_size", 3), INT("groups", 4))},
    {.op = "conv2d", IN(F(3, 5, 3, 4)), AT(INT("out_channels", 7), INT("kernel_size", 1), FLAG("bias", 0))},
    {.op = "conv2d", IN(F(1, 16, 4, 4)),
     AT(INT("out_channels", 16), INT("kernel_size", 1), INT("stride", 2), FLAG("bias", 0))},
    {.op = "conv2d", IN(FIXED(2, 1, 8, 8)), AT(INT("out_channels", 3), INT("kernel_size", 5), INT("padding", 2))},
    {.op = "conv2d", IN(F(1, 1, 1, 1)), AT(INT("out_channels", 1), INT("kernel_size", 1))},
    {.op = "conv2d", IN(F(1, 2, 2, 3)), AT(INT("out_channels", 2), LIST("kernel_size", 4, 5), INT("padding", 2))},
    {.op = "conv2d", IN(F(2, 3, 9, 8)),
     AT(INT("out_channels", 4), INT("kernel_size", 3), INT("padding", 2), INT("dilation", 2))},
    {.op = "conv2d", IN(F(1, 4, 11, 7)),
     AT(INT("out_channels", 6), LIST("kernel_size", 3, 2), LIST("stride", 2, 1), LIST("padding", 3, 0),
        LIST("dilation", 3, 1), INT("groups", 2), FLAG("bias", 0))},
    {.op = "conv2d", IN(F(2, 5, 8, 8)),
     AT(INT("out_channels", 5), INT("kernel_size", 3), INT("padding", 2), INT("dilation", 2), INT("groups", 5))},
    {.op = "conv1d", IN(F(2, 9, 3)), AT(INT("out_channels", 4), INT("kernel_size", 3), INT("padding", 1))},
    {.op = "conv1d", IN(F(2, 11, 4)),
     AT(INT("out_channels", 6), INT("kernel_size", 4), INT("stride", 2), INT("padding", 3), INT("dilation", 2),
        INT("groups", 2), FLAG("bias", 0))},
    {.op = "conv1d", IN(F(1, 7, 5)), AT(INT("out_channels", 3), INT("kernel_size", 1), INT("stride", 2))},
    {.op = "conv1d", IN(FIXED(3, 8, 6)), AT(INT("out_channels", 6), INT("kernel_size", 5), INT("padding", 4), INT("groups", 6))},
    {.op = "conv3d", IN(F(2, 4, 5, 3, 3)), AT(INT("out_channels", 4), INT("kernel_size", 3), INT("padding", 1))},
    {.op = "conv3d", IN(F(1, 6, 5, 4, 4)),
     AT(INT("out_channels", 6), LIST("kernel_size", 3, 1, 2), LIST("stride", 2, 1, 1), LIST("padding", 1, 0, 1),
        LIST("dilation", 2, 1, 1), INT("groups", 2), FLAG("bias", 0))},
    {.op = "conv3d", IN(F(2, 3, 4, 2, 5)), AT(INT("out_channels", 7), INT("kernel_size", 1), LIST("stride", 1, 2, 1))},
    {.op = "conv3d", IN(F(1, 5, 4, 4, 3)), AT(INT("out_channels", 3), INT("kernel_size", 2), INT("groups", 3))},
    {.op = "conv_transpose1d", IN(F(2, 5, 3)), AT(INT("out_channels", 4), INT("kernel_size", 3), INT("stride", 2))},
    {.op = "conv_transpose1d", IN(F(1, 6, 4)),
     AT(INT("out_channels", 6), INT("kernel_size", 3), INT("stride", 3), INT("padding", 2), INT("output_padding", 1),
        INT("dilation", 2), INT("groups", 2), FLAG("bias", 0))},
    {.op = "conv_transpose1d", IN(F(2, 4, 5)), AT(INT("out_channels", 3), INT("kernel_size", 1))},
    {.op = "conv_transpose2d", IN(F(2, 3, 4, 5)), AT(INT("out_channels", 4), INT("kernel_size", 2), INT("stride", 2))},
    {.op = "conv_transpose2d", IN(F(1, 4, 5, 3)),
     AT(INT("out_channels", 6), LIST("kernel_size", 3, 4), LIST("stride", 2, 1), LIST("padding", 1, 2),
        LIST("output_padding", 1, 0), INT("groups", 2), FLAG("bias", 0))},
    {.op = "conv_transpose2d", IN(F(2, 5, 4, 4)),
     AT(INT("out_channels", 5), INT("kernel_size", 3), INT("stride", 2), INT("padding", 1), INT("groups", 5))},
    {.op = "conv_transpose2d", IN(F(1, 4, 3, 3)), AT(INT("out_channels", 5), INT("kernel_size", 1), INT("stride", 2))},
    {.op = "conv_transpose2d", IN(FIXED(2, 3, 3, 4)), AT(INT("out_channels", 2), INT("kernel_size", 3), INT("dilation", 2))},

    {.op = "batchnorm", IN(F(3, 4, 3, 5))},
    {.op = "batchnorm", IN(F(7, 5)), AT(REAL("eps", 1e-3), REAL("momentum", 0.3))},
    {.op = "batchnorm", IN(F(2, 1, 2, 1)), .fill = CKPT_FILL_DISTINCT},
    {.op = "batchnorm", IN(FIXED(2, 17, 2, 2))},
    {.op = "batchnorm", IN(F(3, 4, 3, 5)), AT(FLAG("frozen", 1), REAL("eps", 1e-2))},
    {.op = "batchnorm", IN(F(1, 7)), AT(FLAG("frozen", 1))},
    {.op = "batchnorm", IN(F(3, 8, 3, 5)), AT(FLAG("frozen", 1), FLAG("learned", 0))},
    {.op = "batchnorm", IN(FIXED(2, 17, 2, 2)), AT(FLAG("frozen", 1))},

    {.op = "layernorm", IN(F(5, 7))},
    {.op = "layernorm", IN(F(2, 3, 33)), AT(REAL("eps", 1e-3))},
    {.op = "layernorm", IN(F(9))},
    {.op = "layernorm", IN(F(1, 1, 2)), .fill = CKPT_FILL_DISTINCT},

    {.op = "rmsnorm", IN(F(5, 7))},
    {.op = "rmsnorm", IN(F(2, 3, 33)), AT(REAL("eps", 1e-3))},
    {.op = "rmsnorm", IN(F(9))},
    {.op = "rmsnorm", IN(FIXED(3, 1, 2))},
    {.op = "groupnorm", IN(F(2, 6, 3, 5)), AT(INT("groups", 3))},
    {.op = "groupnorm", IN(F(3, 7, 4)), AT(INT("groups", 1), REAL("eps", 1e-3))},
    {.op = "groupnorm", IN(F(5, 12)), AT(INT("groups", 4))},
    {.op = "groupnorm", IN(F(1, 2, 3, 2, 5)), AT(INT("groups", 5), FLAG("affine", 0))},
    {.op = "groupnorm", IN(FIXED(2, 8, 2, 2)), AT(INT("groups", 2))},
    {.op = "instancenorm", IN(F(2, 3, 4, 5))},
    {.op = "instancenorm", IN(F(3, 5, 2)), AT(FLAG("affine", 1))},
    {.op = "timestep_embedding", IN(F(5)), AT(INT("features", 8)), .fill = CKPT_FILL_WIDE},
    {.op = "timestep_embedding", IN(F(3)),
     AT(INT("features", 7), FLAG("flip", 1), REAL("shift", 1), REAL("max_period", 100)), .fill = CKPT_FILL_WIDE},
    {.op = "rope", IN(F(2, 5, 18)), AT(INT("heads", 3))},
    {.op = "rope", IN(F(3, 2, 8)), AT(INT("heads", 2), WORD("layout", "interleaved"), REAL("base", 100))},
    {.op = "rope", IN(F(1, 7, 22)), AT(INT("heads", 2), INT("rotary", 6), WORD("scaling", "linear"), REAL("factor", 4))},
    {.op = "rope", IN(F(2, 3, 30)), AT(INT("heads", 2), INT("rotary", 10), WORD("layout", "interleaved"))},
    {.op = "rope", IN(F(1, 40, 16)),
     AT(INT("heads", 1), WORD("scaling", "llama3"), REAL("factor", 8), REAL("high_freq_factor", 40), INT("original", 256))},
    {.op = "swiglu", .in_count = 2, IN(F(3, 17)), .fill = CKPT_FILL_WIDE},
    {.op = "swiglu", IN(F(2, 3, 14)), .fill = CKPT_FILL_WIDE},
    {.op = "swiglu", IN(F(2, 3, 4, 5), FIXED(2, 3, 4, 5))},
    {.op = "geglu", .in_count = 2, IN(F(3, 17)), .fill = CKPT_FILL_WIDE},
    {.op = "geglu", IN(F(5, 18)), AT(WORD("approximate", "tanh")), .fill = CKPT_FILL_WIDE},
    {.op = "geglu", IN(FIXED(7), F(7))},

    {.op = "relu", IN(F(3, 37))},
    {.op = "relu", IN(F(2, 3, 5, 4))},
    {.op = "relu6", IN(F(3, 37)), .fill = CKPT_FILL_WIDE},
    {.op = "relu6", IN(F(2, 3, 3, 3)), .fill = CKPT_FILL_WIDE},
    {.op = "gelu", IN(F(2, 51)), .fill = CKPT_FILL_WIDE},
    {.op = "gelu", IN(F(3, 5, 7)), AT(WORD("approximate", "tanh")), .fill = CKPT_FILL_WIDE},
    {.op = "gelu", IN(F(1)), AT(WORD("approximate", "none"))},
    {.op = "gelu", IN(F(2, 51)), AT(WORD("approximate", "sigmoid")), .fill = CKPT_FILL_WIDE},
    {.op = "tanh", IN(F(2, 51)), .fill = CKPT_FILL_WIDE},
    {.op = "tanh", IN(F(1))},
    {.op = "sigmoid", IN(F(2, 51)), .fill = CKPT_FILL_WIDE},
    {.op = "sigmoid", IN(F(2, 2, 3, 1))},
    {.op = "silu", IN(F(2, 51)), .fill = CKPT_FILL_WIDE},
    {.op = "silu", IN(F(1, 3, 2, 5))},

    {.op = "softmax", IN(F(5, 19)), .fill = CKPT_FILL_WIDE},
    {.op = "softmax", IN(F(2, 3, 4, 5)), AT(INT("axis", 1))},
    {.op = "softmax", IN(F(2, 3, 4, 5)), AT(INT("axis", 2))},
    {.op = "softmax", IN(F(3, 4, 5)), AT(INT("axis", 0))},
    {.op = "softmax", IN(F(3, 1))},
    {.op = "log_softmax", IN(F(5, 10)), AT(INT("axis", 1)), .fill = CKPT_FILL_WIDE},
    {.op = "log_softmax", IN(F(2, 3, 4, 5)), AT(INT("axis", 3))},
    {.op = "log_softmax", IN(F(2, 7, 3, 2)), AT(INT("axis", -3))},
    {.op = "log_softmax", IN(F(3, 4, 5)), AT(INT("axis", -2))},

    {.op = "dropout", IN(F(7, 13))},
    {.op = "dropout", IN(F(2, 3, 5, 4)), AT(REAL("p", 0.1))},
    {.op = "dropout", IN(F(3, 3)), AT(REAL("p", 0.0))},

    {.op = "embedding", IN(IDS(11, 3, 5)), AT(INT("rows", 11), INT("features", 7))},
    {.op = "embedding", IN(IDS(2, 40)), AT(INT("rows", 4), INT("features", 3))},
    {.op = "embedding", IN(IDS(1, 1)), AT(INT("rows", 1), INT("features", 1))},
    {.op = "positional_embedding", IN(F(3, 5, 7))},
    {.op = "positional_embedding", IN(F(1, 2, 3)), AT(INT("rows", 6))},
    {.op = "positional_embedding", IN(FIXED(2, 1, 4))},

    {.op = "attention", IN(F(2, 5, 18)), AT(INT("heads", 2), FLAG("causal", 1))},
    {.op = "attention", IN(F(1, 7, 12)), AT(INT("heads", 1))},
    {.op = "attention", IN(F(2, 6, 24)), AT(INT("heads", 4), FLAG("causal", 1), REAL("dropout", 0.3))},
    {.op = "attention", .in_count = 3, IN(F(2, 5, 6)), AT(INT("heads", 3))},
    {.op = "attention", .in_count = 3, IN(F(1, 1, 4)), AT(INT("heads", 2), FLAG("causal", 1))},
    {.op = "attention", IN(F(1, 9, 4), FIXED(1, 9, 4), F(1, 9, 4)), AT(INT("heads", 1), REAL("dropout", 0.5))},
    {.op = "attention", IN(F(1, 37, 12)), AT(INT("heads", 2), FLAG("causal", 1))},
    {.op = "attention", IN(F(2, 5, 24)), AT(INT("heads", 4), INT("kv_heads", 2), FLAG("causal", 1))},
    {.op = "attention", IN(F(1, 7, 15), F(1, 7, 3), F(1, 7, 3)), AT(INT("heads", 5), INT("kv_heads", 1))},
    {.op = "attention", IN(F(2, 6, 12), FIXED(2, 6, 4), F(2, 6, 4)),
     AT(INT("heads", 6), INT("kv_heads", 2), FLAG("causal", 1), REAL("dropout", 0.3))},
    {.op = "attention", IN(F(2, 5, 8), F(2, 3, 8), F(2, 3, 8)), AT(INT("heads", 2))},
    {.op = "relative_bias", .in_count = CKPT_CASE_NONE,
     AT(WORD("kind", "t5"), INT("heads", 3), INT("queries", 7), INT("keys", 25), INT("buckets", 8), INT("max_distance", 20))},
    {.op = "relative_bias", .in_count = CKPT_CASE_NONE,
     AT(WORD("kind", "t5"), INT("heads", 2), INT("queries", 40), INT("buckets", 7), INT("max_distance", 12),
        FLAG("bidirectional", 0))},
    {.op = "relative_bias", .in_count = CKPT_CASE_NONE, AT(WORD("kind", "swin"), INT("heads", 3), INT("window", 3))},
    {.op = "window_mask", .in_count = CKPT_CASE_NONE,
     AT(INT("height", 6), INT("width", 9), INT("window", 3), INT("shift", 1))},
    {.op = "window_mask", .in_count = CKPT_CASE_NONE,
     AT(INT("height", 4), INT("width", 8), INT("window", 4), LIST("shift", 0, 3))},
    {.op = "attention", IN(F(1, 3, 12), F(1, 9, 4), F(1, 9, 4)), AT(INT("heads", 3), INT("kv_heads", 1), REAL("dropout", 0.3))},
    {.op = "attention", IN(F(2, 9, 12)), AT(INT("heads", 2), FLAG("causal", 1), INT("window", 3))},
    {.op = "attention", IN(F(1, 40, 6)),
     AT(INT("heads", 1), FLAG("causal", 1), INT("window", 5), REAL("dropout", 0.2), REAL("scale", 0.9))},
    {.op = "attention", IN(F(1, 4, 6)), AT(INT("heads", 1), FLAG("causal", 1), INT("window", 9))},
    {.op = "attention", IN(F(2, 5, 12), F(2, 5, 5)), AT(INT("heads", 2), FLAG("bias", 1))},
    {.op = "attention", IN(F(2, 5, 12), FIXED(2, 5, 5)),
     AT(INT("heads", 2), FLAG("bias", 1), FLAG("causal", 1), INT("window", 2), REAL("dropout", 0.2))},
    {.op = "attention", IN(F(3, 4, 12), F(3, 7, 6), F(3, 7, 6), F(6, 4, 7)),
     AT(INT("heads", 6), INT("kv_heads", 3), FLAG("bias", 1), REAL("scale", 1))},
    {.op = "attention", IN(F(3, 4, 12), IDS(2, 3, 4)), AT(INT("heads", 2), FLAG("mask", 1))},
    {.op = "attention", IN(F(4, 2, 6), IDS(2, 4, 2)), AT(INT("heads", 1), FLAG("mask", 1), FLAG("causal", 1))},
    {.op = "attention", IN(F(4, 5, 12), IDS(2, 2, 5, 5)), AT(INT("heads", 2), FLAG("mask", 1), REAL("dropout", 0.2))},
    {.op = "attention", IN(F(4, 3, 8), F(4, 6, 4), F(4, 6, 4), F(2, 3, 6), IDS(2, 2, 3, 6)),
     AT(INT("heads", 2), INT("kv_heads", 1), FLAG("bias", 1), FLAG("mask", 1))},

    {.op = "add", .in_count = 2, IN(F(3, 17))},
    {.op = "add", .in_count = 3, IN(F(2, 3, 4, 5))},
    {.op = "add", IN(F(5), FIXED(5))},
    {.op = "mul", .in_count = 2, IN(F(3, 17))},
    {.op = "mul", IN(F(2, 3, 4, 5), F(2, 3, 1, 1))},
    {.op = "mul", IN(FIXED(2, 3, 4, 5), F(2, 3, 4, 5))},
    {.op = "mul", IN(F(2, 5, 1, 3), F(2, 5, 1, 1))},
    {.op = "add", IN(F(3, 4, 5), F(5))},
    {.op = "add", IN(F(2, 1, 3), F(4, 1))},
    {.op = "add", IN(FIXED(2, 3, 4, 5), F(3, 1, 1))},
    {.op = "add", IN(F(3, 4, 5), F(1, 1, 1, 1))},
    {.op = "sub", IN(F(2, 3, 4, 5), F(5))},
    {.op = "sub", IN(F(4, 5), F(2, 3, 1, 1))},
    {.op = "sub", .in_count = 2, IN(F(3, 17))},
    {.op = "mul", IN(F(3, 1), F(1, 4))},
    {.op = "mul", IN(F(2, 3, 4, 5), F(2, 1, 4, 5))},
    {.op = "mul", IN(F(2, 3, 4, 5), F(3, 4, 5))},
    {.op = "mul", IN(F(1), F(2, 3, 1, 5, 2))},
    {.op = "mul", IN(F(2, 3, 4, 5), F(2, 2, 3, 4, 5))},
    {.op = "mul", IN(F(1, 1), F(1))},
    {.op = "div", .in_count = 2, IN(F(3, 17)), .fill = CKPT_FILL_LARGE},
    {.op = "div", IN(F(2, 3, 1), F(1, 4)), .fill = CKPT_FILL_LARGE},
    {.op = "div", IN(F(2, 1, 3, 1, 2), F(3, 4, 2)), .fill = CKPT_FILL_LARGE},
    {.op = "div", IN(F(2, 3, 4, 5), F(2, 1, 1, 1)), .fill = CKPT_FILL_LARGE},
    {.op = "scale", IN(F(3, 17)), AT(REAL("factor", -1.5), REAL("offset", 0.25))},
    {.op = "scale", IN(F(2, 3, 4, 5))},
    {.op = "hardswish", IN(F(2, 51)), .fill = CKPT_FILL_WIDE},
    {.op = "hardswish", IN(F(1, 3, 2, 5)), .fill = CKPT_FILL_WIDE},
    {.op = "elu", IN(F(2, 51)), .fill = CKPT_FILL_WIDE},
    {.op = "elu", IN(F(2, 3, 5)), AT(REAL("alpha", 0.3))},
    {.op = "leaky_relu", IN(F(2, 51)), .fill = CKPT_FILL_WIDE},
    {.op = "leaky_relu", IN(F(1, 3, 2, 5)), AT(REAL("negative_slope", 0.0))},
    {.op = "softplus", IN(F(2, 51)), .fill = CKPT_FILL_WIDE},
    {.op = "softplus", IN(F(2, 51)), AT(REAL("beta", 3), REAL("threshold", 5)), .fill = CKPT_FILL_WIDE},
    {.op = "exp", IN(F(2, 51)), .fill = CKPT_FILL_WIDE},
    {.op = "exp", IN(F(1))},
    {.op = "pow", IN(F(3, 17)), AT(REAL("exponent", 2)), .fill = CKPT_FILL_WIDE},
    {.op = "pow", IN(F(3, 17)), AT(REAL("exponent", 3)), .fill = CKPT_FILL_WIDE},
    {.op = "pow", IN(F(3, 17)), AT(REAL("exponent", -1)), .fill = CKPT_FILL_LARGE},
    {.op = "pow", IN(F(3, 17)), AT(REAL("exponent", 0))},
    {.op = "pow", IN(F(2, 3, 4, 5)), AT(REAL("exponent", 0.5)), .fill = CKPT_FILL_SHARES},
    {.op = "pow", IN(F(2, 3, 4, 5)), AT(REAL("exponent", 1.7)), .fill = CKPT_FILL_SHARES},
    {.op = "drop_path", IN(F(9, 7)), AT(REAL("p", 0.4))},
    {.op = "drop_path", IN(F(7, 3, 2, 5))},
    {.op = "drop_path", IN(F(5)), AT(REAL("p", 0.6))},
    {.op = "parameter", .in_count = CKPT_CASE_NONE, AT(LIST("shape", 3, 5))},
    {.op = "parameter", .in_count = CKPT_CASE_NONE, AT(LIST("shape", 1, 7, 1, 1), WORD("init", "normal"), FLAG("decay", 1))},

    {.op = "concat", IN(F(2, 3, 4, 5), F(2, 1, 4, 5))},
    {.op = "concat", IN(F(2, 3), F(4, 3), F(1, 3)), AT(INT("axis", 0))},
    {.op = "concat", IN(F(2, 3, 2, 5), F(2, 3, 4, 5)), AT(INT("axis", -2))},
    {.op = "concat", .in_count = 64, IN(F(2, 1), F(2, 2), F(2, 3))},
    {.op = "concat", IN(F(3, 4))},
    {.op = "concat", IN(F(3, 4, 2), FIXED(3, 4, 2), F(3, 4, 2)), AT(INT("axis", 2))},
    {.op = "split", IN(F(2, 6, 3, 5)), AT(INT("parts", 3))},
    {.op = "split", IN(F(4, 3, 5)), AT(LIST("sizes", 1, 2))},
    {.op = "split", IN(F(2, 3, 2, 5)), AT(INT("axis", -1), LIST("sizes", 1, 3, 1))},
    {.op = "split", IN(F(64, 2)), AT(INT("axis", 0), INT("parts", 32))},

    {.op = "reshape", IN(F(2, 3, 4, 5)), AT(LIST("shape", 2, -1))},
    {.op = "reshape", IN(F(6, 10)), AT(LIST("shape", 3, 2, 5, 2))},
    {.op = "reshape", IN(F(2, 6, 2, 2)), AT(LIST("shape", 4, 3, 2, 2))},
    {.op = "flatten", IN(F(2, 3, 4, 5))},
    {.op = "flatten", IN(F(2, 3, 1, 5)), AT(INT("start_dim", 2))},
    {.op = "transpose", IN(F(3, 5)), AT(LIST("perm", 1, 0))},
    {.op = "transpose", IN(F(2, 3, 4, 5)), AT(LIST("perm", 0, 2, 3, 1))},
    {.op = "transpose", IN(F(2, 3, 4)), AT(LIST("perm", 2, 0, 1))},
    {.op = "transpose", IN(F(2, 1, 3, 2, 2, 3)), AT(LIST("perm", 5, 0, 3, 1, 4, 2))},
    {.op = "transpose", IN(F(4)), AT(LIST("perm", 0))},
    {.op = "transpose", IN(F(3, 4, 5)), AT(LIST("perm", 1, 0, 2))},

    {.op = "slice", IN(F(3, 7)), AT(INT("axis", 1), INT("start", 2), INT("end", -1))},
    {.op = "slice", IN(F(2, 3, 5, 4)), AT(INT("axis", 1), INT("start", -2))},
    {.op = "slice", IN(F(2, 3, 7, 4)), AT(INT("axis", 2), INT("start", 1), INT("step", 3))},
    {.op = "slice", IN(F(3, 2, 11)), AT(INT("axis", -1), INT("start", 2), INT("end", 10), INT("step", 4))},
    {.op = "slice", IN(F(5, 1, 3)), AT(INT("axis", 0), INT("start", 4))},
    {.op = "slice", IN(F(4, 3)), AT(INT("axis", 1), INT("start", 1), INT("end", 2))},
    {.op = "slice", IN(IDS(9, 3, 7)), AT(INT("axis", 1), INT("start", 1), INT("step", 2))},
    {.op = "pad", IN(F(3, 5)), AT(LIST("before", 1, 0), LIST("after", 0, 2))},
    {.op = "pad", IN(F(2, 3, 4, 5)), AT(LIST("before", 0, 1, 2, 0), LIST("after", 1, 0, 0, 3), REAL("value", -1.5))},
    {.op = "pad", IN(F(1, 1)), AT(INT("before", 2))},
    {.op = "pad", IN(IDS(9, 3, 2)), AT(LIST("before", 0, 1), INT("after", 1), REAL("value", -7))},
    {.op = "roll", IN(F(2, 3, 5, 4)), AT(LIST("shifts", -2, 1), LIST("axes", 2, 3))},
    {.op = "roll", IN(F(7)), AT(INT("shifts", 17), INT("axes", -1))},
    {.op = "roll", IN(F(3, 4, 5)), AT(LIST("shifts", 2), LIST("axes", 0, 1, 2))},
    {.op = "roll", IN(IDS(9, 3, 5)), AT(INT("shifts", -1), INT("axes", 1))},
    {.op = "tile", IN(F(1, 2, 3)), AT(LIST("repeats", 4, 1, 1))},
    {.op = "tile", IN(F(2, 3, 2, 3)), AT(LIST("repeats", 2, 3, 1, 2))},
    {.op = "tile", IN(F(3, 1)), AT(LIST("repeats", 1, 5))},
    {.op = "tile", IN(IDS(9, 3)), AT(LIST("repeats", 7))},
    {.op = "sum", IN(F(3, 7)), AT(INT("axis", -1))},
    {.op = "sum", IN(F(2, 3, 4, 5))},
    {.op = "sum", IN(F(2, 3, 4, 5)), AT(LIST("axis", 0, 2), FLAG("keepdim", 1))},
    {.op = "sum", IN(F(2, 3, 1, 2, 3)), AT(LIST("axis", 0))},
    {.op = "sum", IN(F(1, 1)), AT(LIST("axis", 0))},
    {.op = "mean", IN(F(3, 5, 7)), AT(INT("axis", 1))},
    {.op = "mean", IN(F(2, 3, 4, 5)), AT(LIST("axis", 2, 3))},
    {.op = "mean", IN(F(2, 3, 4, 5)), AT(LIST("axis", -2))},
    {.op = "mean", IN(F(2, 3, 4, 5)), AT(LIST("axis", 1), FLAG("keepdim", 1))},
    {.op = "mean", IN(F(2, 2, 3, 2, 2)), AT(LIST("axis", 1, 3, 4))},
    {.op = "max", IN(F(3, 7)), AT(INT("axis", 1)), .fill = CKPT_FILL_DISTINCT},
    {.op = "max", IN(F(2, 3, 4, 5)), AT(LIST("axis", 3, 1), FLAG("keepdim", 1)), .fill = CKPT_FILL_DISTINCT},
    {.op = "max", IN(F(2, 3, 4)), AT(INT("axis", 0)), .fill = CKPT_FILL_DISTINCT},
    {.op = "max", IN(F(5)), .fill = CKPT_FILL_DISTINCT},
    {.op = "gather", IN(F(5, 3), IDS(5, 7))},
    {.op = "gather", IN(F(2, 4, 3), IDS(4, 2, 3)), AT(INT("axis", 1))},
    {.op = "gather", IN(F(3, 4), IDS(4, 5)), AT(INT("axis", -1))},
    {.op = "gather", IN(F(2, 3, 4, 2), IDS(3, 2, 2)), AT(INT("axis", 1))},
    {.op = "gather", IN(F(2, 6, 3), IDS(6, 2, 2)), AT(INT("axis", 1))},
    {.op = "gather", IN(F(6), IDS(6, 2, 3, 2, 2))},
    {.op = "gather", IN(IDS(9, 4, 3), IDS(4, 5))},
    {.op = "cumsum", IN(F(3, 7)), AT(INT("axis", 1))},
    {.op = "cumsum", IN(F(2, 3, 4, 5)), AT(INT("axis", 1))},
    {.op = "cumsum", IN(F(2, 3, 4, 5)), AT(INT("axis", -2))},
    {.op = "maxpool2d", IN(F(2, 3, 6, 6)), AT(INT("kernel_size", 2)), .fill = CKPT_FILL_DISTINCT},
    {.op = "maxpool2d", IN(F(1, 5, 7, 8)),
     AT(INT("kernel_size", 3), INT("stride", 2), INT("padding", 1)), .fill = CKPT_FILL_DISTINCT},
    {.op = "maxpool2d", IN(F(2, 1, 5, 4)),
     AT(LIST("kernel_size", 2, 3), LIST("stride", 1, 2)), .fill = CKPT_FILL_DISTINCT},
    {.op = "maxpool2d", IN(F(1, 1, 1, 1)), AT(INT("kernel_size", 1)), .fill = CKPT_FILL_DISTINCT},
    {.op = "maxpool2d", IN(F(1, 3, 19, 18)), AT(INT("kernel_size", 16), INT("stride", 2)), .fill = CKPT_FILL_DISTINCT},
    {.op = "maxpool2d", IN(F(1, 2, 19, 18)), AT(LIST("kernel_size", 17, 16), INT("stride", 1), INT("padding", 2)),
     .fill = CKPT_FILL_DISTINCT},
    {.op = "avgpool2d", IN(F(2, 3, 6, 6)), AT(INT("kernel_size", 2))},
    {.op = "avgpool2d", IN(F(1, 5, 7, 8)), AT(INT("kernel_size", 3), INT("stride", 2), INT("padding", 1))},
    {.op = "avgpool2d", IN(F(2, 2, 5, 4)), AT(LIST("kernel_size", 1, 3), LIST("stride", 3, 1), LIST("padding", 0, 1))},
    {.op = "adaptive_maxpool2d", IN(F(2, 3, 7, 6)), AT(LIST("output_size", 3, 4)), .fill = CKPT_FILL_DISTINCT},
    {.op = "adaptive_maxpool2d", IN(F(1, 2, 3, 5)), AT(LIST("output_size", 4, 5)), .fill = CKPT_FILL_DISTINCT},
    {.op = "adaptive_maxpool2d", IN(F(1, 3, 19, 18)), AT(INT("output_size", 2)), .fill = CKPT_FILL_DISTINCT},
    {.op = "adaptive_avgpool2d", IN(F(2, 3, 7, 6)), AT(LIST("output_size", 3, 4))},
    {.op = "adaptive_avgpool2d", IN(F(1, 5, 3, 5)), AT(LIST("output_size", 7, 1))},
    {.op = "adaptive_avgpool2d", IN(F(2, 2, 6, 4)), AT(LIST("output_size", 3, 2))},
    {.op = "global_avgpool", IN(F(2, 3, 5, 4))},
    {.op = "global_avgpool", IN(F(3, 17, 1, 1))},
    {.op = "upsample", IN(F(2, 3, 4, 5))},
    {.op = "upsample", IN(F(2, 3, 4, 5)), AT(WORD("mode", "bilinear"))},
    {.op = "upsample", IN(F(1, 5, 3, 1)), AT(INT("scale", 3), WORD("mode", "bilinear"))},
    {.op = "upsample", IN(F(1, 2, 1, 2)), AT(INT("scale", 3))},
    {.op = "upsample", IN(F(1, 2, 2, 2)), AT(INT("scale", 1), WORD("mode", "bilinear"))},

    {.op = "lstm_cell", IN(F(3, 5)), AT(INT("features", 4))},
    {.op = "lstm_cell", IN(F(3, 5), F(3, 7), F(3, 7)), AT(INT("features", 7))},
    {.op = "lstm_cell", IN(FIXED(1, 1), F(1, 1), F(1, 1)), AT(INT("features", 1))},
    {.op = "lstm_cell", IN(F(9, 3), FIXED(9, 2), F(9, 2)), AT(INT("features", 2))},

    {.op = "lstm", IN(F(3, 4, 5)), AT(INT("hidden", 4))},
    {.op = "lstm", IN(F(2, 3, 5), F(2, 7), F(2, 7)), AT(INT("hidden", 7), FLAG("reverse", 1))},
    {.op = "lstm", IN(FIXED(1, 1, 1), F(1, 1), FIXED(1, 1)), AT(INT("hidden", 1), FLAG("bias", 0))},
    {.op = "gru", IN(F(3, 4, 5)), AT(INT("hidden", 4))},
    {.op = "gru", IN(F(2, 3, 5), F(2, 7)), AT(INT("hidden", 7), FLAG("reverse", 1))},
    {.op = "gru", IN(FIXED(3, 1, 2), F(3, 1)), AT(INT("hidden", 1), FLAG("bias", 0))},

    {.op = "moe", IN(F(5, 6)), AT(INT("experts", 4), INT("hidden", 3))},
    {.op = "moe", IN(F(2, 5, 7)), AT(INT("experts", 3), INT("hidden", 5), INT("top", 1), FLAG("normalize", 0))},
    {.op = "moe", IN(FIXED(9, 3)), AT(INT("experts", 5), INT("hidden", 4), INT("top", 3), REAL("capacity", 0.5))},

    {.op = "cross_entropy", IN(F(5, 7), IDS(7, 5)), .fill = CKPT_FILL_WIDE},
    {.op = "cross_entropy", IN(F(3, 4, 11), IDS(11, 3, 4)), .ignores = true},
    {.op = "cross_entropy", IN(F(2, 3, 4, 5), IDS(3, 2, 4, 5)), .ignores = true},
    {.op = "cross_entropy", IN(F(1, 2), IDS(2, 1)), AT(INT("ignore_index", 7))},
    {.op = "linear_cross_entropy", IN(F(5, 7), IDS(6, 5)), AT(INT("features", 6))},
    {.op = "linear_cross_entropy", IN(F(1, 3), IDS(4, 1)), AT(INT("features", 4), INT("ignore_index", 7))},
    {.op = "linear_cross_entropy", IN(F(37, 5), IDS(6, 37)), AT(INT("features", 6), INT("unit", 16)), .ignores = true},
    {.op = "linear_cross_entropy", IN(F(2, 16, 3), IDS(9, 2, 16)),
     AT(INT("features", 9), INT("unit", 16), FLAG("bias", 0)), .ignores = true},
    {.op = "linear_cross_entropy", IN(FIXED(17, 5), IDS(3, 17)), AT(INT("features", 3), INT("unit", 16))},
    {.op = "cross_entropy", IN(F(5, 7), IDS(7, 5)), AT(REAL("label_smoothing", 0.1))},
    {.op = "cross_entropy", IN(F(2, 3, 4, 5), IDS(3, 2, 4, 5)), AT(REAL("label_smoothing", 1)), .ignores = true},
    {.op = "linear_cross_entropy", IN(F(37, 5), IDS(6, 37)),
     AT(INT("features", 6), INT("unit", 16), REAL("label_smoothing", 0.2)), .ignores = true},
    {.op = "nll_loss", IN(F(5, 7), IDS(7, 5))},
    {.op = "nll_loss", IN(F(1, 3), IDS(3, 1))},
    {.op = "mse", .in_count = 2, IN(F(3, 17))},
    {.op = "mse", IN(F(2, 3, 2, 5), FIXED(2, 3, 2, 5))},
    {.op = "l1", .in_count = 2, IN(F(3, 17))},
    {.op = "l1", IN(F(2, 3, 2, 5), FIXED(2, 3, 2, 5))},
    {.op = "huber", .in_count = 2, IN(F(3, 17))},
    {.op = "huber", IN(FIXED(2, 3, 2, 5), F(2, 3, 2, 5)), AT(REAL("delta", 0.3))},
    {.op = "bce", .in_count = 2, IN(F(3, 17)), .fill = CKPT_FILL_SHARES},
    {.op = "bce", IN(F(2, 3, 2, 5), FIXED(2, 3, 2, 5)), .fill = CKPT_FILL_WIDE},
    {.op = "kl", .in_count = 2, IN(F(3, 17)), .fill = CKPT_FILL_SHARES},
    {.op = "kl", IN(F(2, 3, 2, 5), FIXED(2, 3, 2, 5)), .fill = CKPT_FILL_SHARES},
    {.op = "total", IN(LOSS)},
    {.op = "scale", IN(LOSS), AT(REAL("factor", 0.02))},
    {.op = "total", .in_count = 3, IN(LOSS)},

    /* Long enough for the paths that only long tensors take: several threads, tiles, strips. */
    {.op = "linear", IN(F(70, 130)), AT(INT("features", 90))},
    {.op = "linear", IN(F(3, 50, 65)), AT(INT("features", 33), FLAG("bias", 0))},
    {.op = "matmul", IN(F(3, 70, 65), F(3, 65, 90))},
    {.op = "matmul", IN(F(6, 50, 33), F(6, 70, 33)), AT(FLAG("transpose_y", 1))},
    {.op = "conv2d", IN(F(2, 16, 20, 20)), AT(INT("out_channels", 24), INT("kernel_size", 3), INT("padding", 1))},
    {.op = "conv2d", IN(F(2, 16, 9, 11)), AT(INT("out_channels", 32), INT("kernel_size", 3), INT("padding", 1))},
    {.op = "conv2d", IN(FIXED(1, 32, 8, 8)), AT(INT("out_channels", 16), INT("kernel_size", 3), FLAG("bias", 0))},
    {.op = "conv2d", IN(F(2, 40, 17, 17)),
     AT(INT("out_channels", 40), INT("kernel_size", 3), INT("stride", 2), INT("padding", 1), INT("groups", 40),
        FLAG("bias", 0))},
    {.op = "conv2d", IN(F(4, 64, 10, 10)), AT(INT("out_channels", 32), INT("kernel_size", 1), FLAG("bias", 0))},
    {.op = "conv2d", IN(FIXED(2, 3, 33, 33)), AT(INT("out_channels", 32), INT("kernel_size", 7), INT("stride", 2), INT("padding", 3))},
    {.op = "conv2d", IN(F(2, 32, 20, 20)),
     AT(INT("out_channels", 24), INT("kernel_size", 3), INT("padding", 4), INT("dilation", 4))},
    {.op = "conv1d", IN(F(2, 300, 32)), AT(INT("out_channels", 40), INT("kernel_size", 3), INT("stride", 2), INT("padding", 1))},
    {.op = "conv3d", IN(F(1, 8, 9, 9, 16)), AT(INT("out_channels", 32), INT("kernel_size", 3), INT("padding", 1))},
    {.op = "conv_transpose1d", IN(F(2, 100, 32)), AT(INT("out_channels", 24), INT("kernel_size", 4), INT("stride", 2), INT("padding", 1))},
    {.op = "conv_transpose2d", IN(F(2, 32, 12, 12)), AT(INT("out_channels", 16), INT("kernel_size", 2), INT("stride", 2))},
    {.op = "batchnorm", IN(F(8, 33, 16, 16))},
    {.op = "batchnorm", IN(F(300, 300))},
    {.op = "batchnorm", IN(F(8, 33, 16, 16)), AT(FLAG("frozen", 1))},
    {.op = "batchnorm", IN(F(8, 33, 16, 16)), AT(FLAG("frozen", 1), FLAG("learned", 0))},
    {.op = "layernorm", IN(F(150, 257))},
    {.op = "layernorm", IN(F(2, 100, 64))},
    {.op = "rmsnorm", IN(F(150, 257))},
    {.op = "rmsnorm", IN(F(2, 100, 64))},
    {.op = "groupnorm", IN(F(3, 48, 18, 20)), AT(INT("groups", 8))},
    {.op = "groupnorm", IN(F(2, 1100, 264)), AT(INT("groups", 11))},
    {.op = "instancenorm", IN(F(2, 33, 20, 22)), AT(FLAG("affine", 1))},
    {.op = "timestep_embedding", IN(F(70)), AT(INT("features", 320)), .fill = CKPT_FILL_DISTINCT},
    {.op = "rope", IN(F(3, 70, 192)), AT(INT("heads", 6))},
    {.op = "rope", IN(F(2, 90, 160)), AT(INT("heads", 2), INT("rotary", 48), WORD("layout", "interleaved"))},
    {.op = "swiglu", .in_count = 2, IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "swiglu", IN(F(40, 1100)), .fill = CKPT_FILL_WIDE},
    {.op = "geglu", .in_count = 2, IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "geglu", IN(F(40, 1100)), AT(WORD("approximate", "tanh")), .fill = CKPT_FILL_WIDE},
    {.op = "relu", IN(F(130, 300))},
    {.op = "relu6", IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "gelu", IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "gelu", IN(F(130, 300)), AT(WORD("approximate", "tanh")), .fill = CKPT_FILL_WIDE},
    {.op = "gelu", IN(F(130, 300)), AT(WORD("approximate", "sigmoid")), .fill = CKPT_FILL_WIDE},
    {.op = "tanh", IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "sigmoid", IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "silu", IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "softmax", IN(F(150, 257)), .fill = CKPT_FILL_WIDE},
    {.op = "softmax", IN(F(4, 33, 20, 20)), AT(INT("axis", 1))},
    {.op = "softmax", IN(F(4, 20, 33, 20)), AT(INT("axis", 2))},
    {.op = "log_softmax", IN(F(100, 1000)), .fill = CKPT_FILL_WIDE},
    {.op = "log_softmax", IN(F(4, 20, 20, 33)), AT(INT("axis", 3))},
    {.op = "dropout", IN(F(8, 33, 12, 14)), AT(REAL("p", 0.25))},
    {.op = "embedding", IN(IDS(50, 4, 300)), AT(INT("rows", 60), INT("features", 130))},
    {.op = "positional_embedding", IN(F(4, 60, 130)), AT(INT("rows", 64))},
    {.op = "attention", IN(F(2, 150, 192)), AT(INT("heads", 2), FLAG("causal", 1))},
    {.op = "attention", IN(F(1, 130, 144)), AT(INT("heads", 2), REAL("dropout", 0.1))},
    {.op = "attention", .in_count = 3, IN(F(2, 70, 80)), AT(INT("heads", 1), FLAG("causal", 1), REAL("dropout", 0.2))},
    {.op = "attention", IN(F(2, 80, 160)), AT(INT("heads", 6), INT("kv_heads", 2), FLAG("causal", 1))},
    {.op = "attention", IN(F(1, 90, 32), F(1, 130, 32), F(1, 130, 32)), AT(INT("heads", 2))},
    {.op = "relative_bias", .in_count = CKPT_CASE_NONE, AT(WORD("kind", "t5"), INT("heads", 4), INT("queries", 150))},
    {.op = "relative_bias", .in_count = CKPT_CASE_NONE, AT(WORD("kind", "swin"), INT("heads", 8), INT("window", 7))},
    {.op = "window_mask", .in_count = CKPT_CASE_NONE,
     AT(INT("height", 28), INT("width", 21), INT("window", 7), INT("shift", 3))},
    {.op = "attention", IN(F(1, 150, 96)), AT(INT("heads", 2), FLAG("causal", 1), INT("window", 40))},
    {.op = "attention", IN(F(2, 70, 48), F(2, 70, 70), IDS(2, 2, 70)), AT(INT("heads", 2), FLAG("bias", 1), FLAG("mask", 1))},
    /* more keys than a panel has */
    {.op = "attention", IN(F(1, 60, 8), F(1, 1100, 8), F(1, 1100, 8)), AT(INT("heads", 2))},
    {.op = "attention", IN(F(1, 530, 12)), AT(INT("heads", 2), FLAG("causal", 1), REAL("dropout", 0.1))},
    {.op = "attention", IN(F(1, 700, 9)), AT(INT("heads", 1), FLAG("causal", 1), INT("window", 300))},
    {.op = "attention", IN(F(2, 33, 8), F(2, 600, 8), F(2, 600, 8), F(2, 33, 600), IDS(2, 2, 600)),
     AT(INT("heads", 2), FLAG("bias", 1), FLAG("mask", 1), REAL("dropout", 0.2))},
    {.op = "add", .in_count = 3, IN(F(130, 300))},
    {.op = "mul", .in_count = 2, IN(F(130, 300))},
    {.op = "mul", IN(F(4, 70, 12, 14), F(4, 70, 1, 1))},
    {.op = "add", IN(F(8, 100, 65), F(65))},
    {.op = "add", IN(F(4, 33, 20, 20), F(20, 20))},
    {.op = "sub", IN(F(300, 130), F(300, 1))},
    {.op = "mul", IN(F(4, 33, 20, 20), F(33, 1, 1))},
    {.op = "mul", IN(F(4, 33, 20, 20), F(4, 1, 20, 20))},
    {.op = "mul", IN(F(2, 1, 300, 70), F(1, 300, 1))},
    {.op = "div", IN(F(1), F(130, 300)), .fill = CKPT_FILL_LARGE},
    {.op = "scale", IN(F(130, 300)), AT(REAL("factor", 3))},
    {.op = "hardswish", IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "elu", IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "leaky_relu", IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "softplus", IN(F(130, 300)), .fill = CKPT_FILL_WIDE},
    {.op = "exp", IN(F(130, 300))},
    {.op = "pow", IN(F(130, 300)), AT(REAL("exponent", 1.5)), .fill = CKPT_FILL_SHARES},
    {.op = "drop_path", IN(F(6, 33, 20, 20)), AT(REAL("p", 0.5))},
    {.op = "parameter", .in_count = CKPT_CASE_NONE, AT(LIST("shape", 130, 300))},
    {.op = "concat", IN(F(8, 33, 12, 12), F(8, 20, 12, 12))},
    {.op = "concat", IN(F(4, 100, 30), F(4, 60, 30))},
    {.op = "split", IN(F(8, 53, 12, 12)), AT(LIST("sizes", 33, 20))},
    {.op = "split", IN(F(4, 160, 30)), AT(LIST("sizes", 100, 60))},
    {.op = "reshape", IN(F(8, 33, 12, 14)), AT(LIST("shape", 8, -1))},
    {.op = "flatten", IN(F(8, 33, 12, 14))},
    {.op = "transpose", IN(F(40, 50, 30)), AT(LIST("perm", 2, 0, 1))},
    {.op = "transpose", IN(F(20, 10, 100)), AT(LIST("perm", 1, 0, 2))},
    {.op = "transpose", IN(F(8, 33, 12, 14)), AT(LIST("perm", 1, 0, 3, 2))},
    {.op = "slice", IN(F(40, 50, 30)), AT(INT("axis", 1), INT("start", 3), INT("end", -5))},
    {.op = "slice", IN(F(4, 33, 24, 14)), AT(INT("axis", 2), INT("start", 1), INT("step", 2))},
    {.op = "slice", IN(F(3, 20000)), AT(INT("axis", 1), INT("start", 3), INT("step", 3))},
    {.op = "pad", IN(F(4, 33, 12, 14)), AT(LIST("before", 0, 0, 3, 2), LIST("after", 0, 1, 0, 5))},
    {.op = "pad", IN(F(2, 17000)), AT(LIST("before", 1, 5000), LIST("after", 0, 6000), REAL("value", 0.5))},
    {.op = "roll", IN(F(4, 33, 14, 14)), AT(LIST("shifts", -3), LIST("axes", 2, 3))},
    {.op = "roll", IN(F(3, 20000)), AT(LIST("shifts", 7000), LIST("axes", 1))},
    {.op = "tile", IN(F(1, 50, 30)), AT(LIST("repeats", 20, 1, 1))},
    {.op = "tile", IN(F(2, 3, 3)), AT(LIST("repeats", 3, 300, 2))},
    {.op = "sum", IN(F(200, 300))},
    {.op = "sum", IN(F(4, 33, 24, 14)), AT(LIST("axis", 0, 2, 3))},
    {.op = "sum", IN(F(3, 20000)), AT(INT("axis", 1))},
    {.op = "mean", IN(F(8, 50, 130)), AT(INT("axis", 1))},
    {.op = "mean", IN(F(130, 300)), AT(INT("axis", 1), FLAG("keepdim", 1))},
    {.op = "mean", IN(F(4, 33, 24, 14)), AT(LIST("axis", 1))},
    {.op = "max", IN(F(130, 300)), AT(INT("axis", 1)), .fill = CKPT_FILL_DISTINCT},
    {.op = "max", IN(F(8, 50, 130)), AT(INT("axis", 1)), .fill = CKPT_FILL_DISTINCT},
    {.op = "max", IN(F(40000)), .fill = CKPT_FILL_DISTINCT},
    {.op = "gather", IN(F(60, 130), IDS(60, 4, 100))},
    {.op = "gather", IN(F(8, 50, 130), IDS(50, 30)), AT(INT("axis", 1))},
    {.op = "gather", IN(F(30, 500), IDS(500, 700)), AT(INT("axis", 1))},
    {.op = "cumsum", IN(F(130, 300)), AT(INT("axis", 1))},
    {.op = "cumsum", IN(F(8, 50, 130)), AT(INT("axis", 1))},
    {.op = "maxpool2d", IN(F(4, 33, 24, 24)), AT(INT("kernel_size", 3), INT("stride", 2), INT("padding", 1)),
     .fill = CKPT_FILL_DISTINCT},
    {.op = "avgpool2d", IN(F(4, 33, 24, 24)), AT(INT("kernel_size", 2))},
    {.op = "adaptive_maxpool2d", IN(F(4, 33, 24, 23)), AT(INT("output_size", 7)), .fill = CKPT_FILL_DISTINCT},
    {.op = "adaptive_avgpool2d", IN(F(4, 33, 24, 23)), AT(INT("output_size", 7))},
    {.op = "global_avgpool", IN(F(8, 70, 9, 9))},
    {.op = "upsample", IN(F(4, 33, 9, 11)), AT(WORD("mode", "bilinear"))},
    {.op = "upsample", IN(F(4, 33, 9, 11))},
    {.op = "lstm_cell", IN(F(40, 70), F(40, 65), F(40, 65)), AT(INT("features", 65))},
    {.op = "moe", IN(F(2, 100, 24)), AT(INT("experts", 4), INT("hidden", 40))},
    {.op = "lstm", IN(F(20, 3, 40), F(20, 33), F(20, 33)), AT(INT("hidden", 33))},
    {.op = "gru", IN(F(20, 3, 40), F(20, 33)), AT(INT("hidden", 33))},
    {.op = "cross_entropy", IN(F(3, 60, 300), IDS(300, 3, 60)), .ignores = true},
    {.op = "cross_entropy", IN(F(2, 21, 20, 20), IDS(21, 2, 20, 20)), .ignores = true},
    {.op = "linear_cross_entropy", IN(F(3, 60, 17), IDS(131, 3, 60)), AT(INT("features", 131), INT("unit", 64)),
     .ignores = true},
    {.op = "nll_loss", IN(F(200, 50), IDS(50, 200))},
    {.op = "mse", .in_count = 2, IN(F(130, 300))},
    {.op = "l1", .in_count = 2, IN(F(130, 300))},
    {.op = "huber", .in_count = 2, IN(F(130, 300)), AT(REAL("delta", 0.5))},
    {.op = "bce", .in_count = 2, IN(F(130, 300)), .fill = CKPT_FILL_SHARES},
    {.op = "kl", .in_count = 2, IN(F(130, 300)), .fill = CKPT_FILL_SHARES},
    {.op = "cross_entropy", IN(F(3, 60, 300), IDS(300, 3, 60)), AT(REAL("label_smoothing", 0.1)), .ignores = true},
};
/* clang-format on */
const int ckpt_case_count = sizeof ckpt_cases / sizeof ckpt_cases[0];

static int written_inputs(const ckpt_case *c)
{
    int count = CKPT_CASE_INPUTS;
    while (count > 1 && c->in[count - 1].rank == 0) {
        count--;
    }
    return count;
}

const ckpt_case_input *ckpt_case_in(const ckpt_case *c, int k)
{
    const int last = written_inputs(c) - 1;
    return &c->in[k < last ? k : last];
}

/* Layers "w<k>" (linear from one number) and "x<k>" (reshape) make an input that has parameters above it; "x<k>" is the
 * loss of that number where the input is one. */
static void add_source(const ckpt_case_input *in, int k, int one, ckpt_arena *arena, ckpt_layer *layer)
{
    const ckpt_shape shape = {in->rank, {in->dim[0], in->dim[1], in->dim[2], in->dim[3], in->dim[4], in->dim[5]}};
    const int64_t count = ckpt_shape_count(&shape);
    ckpt_attr *const attr = CKPT_NEW(arena, ckpt_attr, 2);
    ckpt_ref *const from = CKPT_NEW(arena, ckpt_ref, 3);
    attr[0] = (ckpt_attr){.name = "features", .kind = CKPT_INT, .integer = count, .real = (double)count};
    attr[1] = (ckpt_attr){.name = "shape", .kind = CKPT_INTS, .ints = in->dim, .int_count = in->rank};
    from[0] = (ckpt_ref){-1 - one, 0};
    from[1] = (ckpt_ref){2 * k, 0};
    from[2] = from[0];
    const ckpt_layer base = {.in_count = 1, .attr_count = 1, .tie = -1, .stage = -1};
    layer[0] = layer[1] = base;
    layer[0].name = ckpt_arena_format(arena, "w%d", k);
    layer[0].op = "linear";
    layer[0].in = &from[0];
    layer[0].attr = &attr[0];
    layer[1].name = ckpt_arena_format(arena, "x%d", k);
    layer[1].op = "reshape";
    layer[1].in = &from[1];
    layer[1].attr = &attr[1];
    if (in->loss) {
        layer[1].op = "mse";
        layer[1].in_count = 2;
        layer[1].attr_count = 0;
    }
}

double ckpt_case_random(uint64_t *generator)
{
    /* splitmix64, Steele et al. 2014 */
    uint64_t z = (*generator += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1;
}

void ckpt_case_fill(const ckpt_case *c, int k, int64_t count, uint64_t *generator, double *x)
{
    const ckpt_case_input *const in = ckpt_case_in(c, k);
    for (int64_t i = 0; i < count; i++) {
        const double u = ckpt_case_random(generator);
        x[i] = (u < 0 ? -1 : 1) * (0.05 + 0.95 * fabs(u));
        if (in->limit > 0) {
            x[i] = c->ignores && i % 3 == 1 ? -100 : floor((u + 1) / 2 * (double)in->limit);
        } else if (c->fill == CKPT_FILL_SHARES) {
            x[i] = fabs(x[i]);
        } else if (c->fill == CKPT_FILL_WIDE) {
            x[i] = 3 + 7 * u;
            x[i] = fabs(x[i]) < 0.05 ? 0.05 : x[i];
            x[i] = fabs(x[i] - 6) < 0.05 ? 5.95 : x[i];
        } else if (c->fill == CKPT_FILL_LARGE) {
            x[i] = (u < 0 ? -1 : 1) * (0.5 + fabs(u));
        } else if (c->fill == CKPT_FILL_DISTINCT) {
            x[i] = fmax(4.0 / (double)count, 0.004) * ((double)i + 0.5 - (double)count / 2);
        }
    }
    for (int64_t i = count - 1; c->fill == CKPT_FILL_DISTINCT && i > 0; i--) {
        const int64_t j = (int64_t)((ckpt_case_random(generator) + 1) / 2 * (double)i);
        const double a = x[i];
        x[i] = x[j];
        x[j] = a;
    }
}

ckpt_code ckpt_case_network(const ckpt_case *c, int threads, ckpt_arena *arena, const ckpt_network **network,
                            const ckpt_node **node, ckpt_err *err)
{
    return ckpt_case_network_as(c, CKPT_FLOAT32, threads, arena, network, node, err);
}

ckpt_code ckpt_case_network_as(const ckpt_case *c, ckpt_dtype dtype, int threads, ckpt_arena *arena,
                               const ckpt_network **network, const ckpt_node **node, ckpt_err *err)
{
    const int in_count = c->in_count == CKPT_CASE_NONE ? 0 : c->in_count > 0 ? c->in_count : written_inputs(c);
    ckpt_model *const model = CKPT_NEW(arena, ckpt_model, 1);
    ckpt_tensor *const input = CKPT_NEW(arena, ckpt_tensor, in_count + 1);
    ckpt_layer *const layer = CKPT_NEW(arena, ckpt_layer, 2 * in_count + 1);
    ckpt_ref *const from = CKPT_NEW(arena, ckpt_ref, in_count);
    *model = (ckpt_model){
        .source = "case", .name = c->op, .input = input, .layer = layer, .optimizer = "sgd", .dtype = dtype};
    input[0] = (ckpt_tensor){.name = "one", .shape = {2, {1, 1}}};
    model->input_count = 1;
    for (int k = 0; k < in_count; k++) {
        const ckpt_case_input *const in = ckpt_case_in(c, k);
        if (in->limit == 0 && !in->fixed) {
            from[k] = (ckpt_ref){model->layer_count + 1, 0};
            add_source(in, model->layer_count / 2, 0, arena, &layer[model->layer_count]);
            model->layer_count += 2;
            continue;
        }
        ckpt_tensor *const t = &input[model->input_count];
        t->name = ckpt_arena_format(arena, "x%d", k);
        t->dtype = in->limit > 0 ? CKPT_INT32 : CKPT_FLOAT32;
        t->shape.rank = in->rank;
        for (int d = 0; d < in->rank; d++) {
            t->shape.dim[d] = in->dim[d];
        }
        from[k] = (ckpt_ref){-1 - model->input_count, 0};
        model->input_count++;
    }
    ckpt_layer *const last = &layer[model->layer_count++];
    *last = (ckpt_layer){
        .name = "node", .op = c->op, .in = from, .in_count = in_count, .attr = c->attr, .tie = -1, .stage = -1};
    while (last->attr_count < CKPT_CASE_ATTRS && c->attr[last->attr_count].name != NULL) {
        last->attr_count++;
    }
    CKPT_TRY(ckpt_network_infer(model, threads, arena, network, err));
    *node = &(*network)->node[model->layer_count - 1];
    return CKPT_OK;
}
