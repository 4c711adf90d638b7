/* labels: unit */
/* Shape inference of the ops with windows, axes and several outputs: what they give, and what they say about models
 * that are wrong. Each row is a whole model file, as a user would write it. */
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "ops/lowering/network.h"
#include "ops/whole_update.h"
#include "tests/support/support_test.h"

typedef struct row {
    const char *op, *attributes; /* JSON after the op: ", \"stride\": 2" */
    const char *inputs;          /* shapes, separated by ';'; 'i' before one: int32 */
    const char *wanted;          /* shapes of all outputs, or a part of the error message */
} row;

static const row rows[] = {
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 3", "[2,3,9,7]", "[2, 8, 7, 5]"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": [3,1], \"stride\": [2,3], \"padding\": [1,0]", "[2,3,9,7]",
     "[2, 8, 5, 3]"},
    {"conv2d", ", \"out_channels\": 6, \"kernel_size\": 3, \"groups\": 3, \"padding\": 1", "[2,3,9,7]", "[2, 6, 9, 7]"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 3, \"groups\": 2", "[2,3,9,7]",
     "groups is 2, input 0 is [2, 3, 9, 7]"},
    {"conv2d", ", \"out_channels\": 0, \"kernel_size\": 3", "[2,3,9,7]", "out_channels is 0"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 10", "[2,3,9,7]", "does not fit input 0 [2, 3, 9, 7]"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 0", "[2,3,9,7]", "\"kernel_size\" is 0"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 3, \"stride\": 0", "[2,3,9,7]", "\"stride\" is 0"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": [3,3,3]", "[2,3,9,7]", "3 elements"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 3, \"dilation\": [2,3]", "[2,3,9,7]", "[2, 8, 5, 1]"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 3, \"dilation\": 5", "[2,3,9,7]", "taps being 5 apart"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 3, \"dilation\": 0", "[2,3,9,7]", "\"dilation\" is 0"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 2147483647, \"dilation\": 2147483647", "[2,3,9,7]",
     "does not fit"},
    {"conv1d", ", \"out_channels\": 8, \"kernel_size\": 3, \"stride\": 2, \"padding\": 1", "[2,9,3]", "[2, 5, 8]"},
    {"conv1d", ", \"out_channels\": 8, \"kernel_size\": [3,3]", "[2,9,3]", "2 elements, wanted one number"},
    {"conv1d", ", \"out_channels\": 8, \"kernel_size\": 3", "[2,3,9,7]", "[2, 3, 9, 7], wanted [N, L, C]"},
    {"conv3d", ", \"out_channels\": 8, \"kernel_size\": [3,1,2]", "[2,4,5,6,3]", "[2, 2, 5, 5, 8]"},
    {"conv3d", ", \"out_channels\": 8, \"kernel_size\": [3,1]", "[2,4,5,6,3]",
     "2 elements, wanted one number or three"},
    {"conv3d", ", \"out_channels\": 8, \"kernel_size\": 3", "[2,3,9,7]", "[2, 3, 9, 7], wanted [N, D, H, W, C]"},
    {"conv_transpose1d", ", \"out_channels\": 8, \"kernel_size\": 4, \"stride\": 2, \"padding\": 1", "[2,9,3]",
     "[2, 18, 8]"},
    {"conv_transpose2d",
     ", \"out_channels\": 8, \"kernel_size\": 3, \"stride\": 2, \"padding\": 1, \"output_padding\": [1,0]", "[2,3,9,7]",
     "[2, 8, 18, 13]"},
    {"conv_transpose2d", ", \"out_channels\": 8, \"kernel_size\": 3, \"output_padding\": 1", "[2,3,9,7]",
     "\"output_padding\" is 1, wanted less than stride 1"},
    {"conv_transpose2d", ", \"out_channels\": 8, \"kernel_size\": 1, \"padding\": 4", "[2,3,9,7]", "cuts off all"},
    {"conv_transpose2d", ", \"out_channels\": 8, \"kernel_size\": 3, \"groups\": 2", "[2,3,9,7]",
     "groups must divide both channel counts"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 3", "[2,3,9]", "[2, 3, 9], wanted [N, C, H, W]"},
    {"conv2d", ", \"out_channels\": 8, \"kernel_size\": 3", "i[2,3,9,7]", "int32 [2, 3, 9, 7]"},
    {"conv2d", ", \"out_channels\": 4611686018427387904, \"kernel_size\": 3", "[2,3,9,7]", "4611686018427387904"},
    {"batchnorm", "", "[2,3,4,5]", "[2, 3, 4, 5]"},
    {"batchnorm", "", "[6,3]", "[6, 3]"},
    {"batchnorm", "", "[6,3,2]", "[6, 3, 2], wanted [N, C, H, W] or [N, C]"},
    {"batchnorm", "", "[1,3]", "one value per channel"},
    {"batchnorm", ", \"eps\": 0.0", "[6,3]", "eps is 0"},
    {"batchnorm", ", \"frozen\": true", "[1,3]", "[1, 3]"},
    {"batchnorm", ", \"frozen\": true, \"learned\": false", "[1,3]", "[1, 3]"},
    {"batchnorm", ", \"learned\": false", "[6,3]", "learned is false and frozen is false"},
    {"batchnorm", ", \"momentum\": 1.5", "[6,3]", "momentum is 1.5"},
    {"maxpool2d", ", \"kernel_size\": 2", "[2,3,7,8]", "[2, 3, 3, 4]"},
    {"maxpool2d", ", \"kernel_size\": 3, \"stride\": 2, \"padding\": 1", "[2,3,7,8]", "[2, 3, 4, 4]"},
    {"maxpool2d", ", \"kernel_size\": 3, \"padding\": 2", "[2,3,7,8]", "at most half of kernel_size 3"},
    {"avgpool2d", ", \"kernel_size\": [1,2]", "[2,3,7,8]", "[2, 3, 7, 4]"},
    {"avgpool2d", ", \"kernel_size\": 9", "[2,3,7,8]", "9 x 9 does not fit input 0 [2, 3, 7, 8]"},
    {"adaptive_avgpool2d", ", \"output_size\": [3,9]", "[2,3,7,8]", "[2, 3, 3, 9]"},
    {"adaptive_avgpool2d", ", \"output_size\": 0", "[2,3,7,8]", "\"output_size\" is 0"},
    {"adaptive_maxpool2d", ", \"output_size\": 5", "[2,3,7,8]", "[2, 3, 5, 5]"},
    {"adaptive_maxpool2d", ", \"output_size\": 5", "[2,7,8]", "wanted [N, C, H, W]"},
    {"global_avgpool", "", "[2,3,7,8]", "[2, 3, 1, 1]"},
    {"global_avgpool", "", "[2,3]", "wanted [N, C, H, W]"},
    {"upsample", ", \"scale\": 3", "[2,3,7,8]", "[2, 3, 21, 24]"},
    {"upsample", ", \"scale\": 0", "[2,3,7,8]", "scale is 0"},
    {"upsample", ", \"mode\": \"cubic\"", "[2,3,7,8]", "nearest|bilinear"},
    {"softmax", ", \"axis\": -2", "[2,3,7]", "[2, 3, 7]"},
    {"log_softmax", ", \"axis\": 3", "[2,3,7]", "\"axis\" is 3"},
    {"softmax", "", "[]", "input 0 is a scalar, wanted at least one dim"},
    {"nll_loss", "", "[4,10];i[4]", "[]"},
    {"nll_loss", "", "[4,10];i[5]", "[4, 10] and targets are [5]"},
    {"nll_loss", "", "[4,10];[4]", "wanted int32"},
    {"embedding", ", \"rows\": 10, \"features\": 4", "i[2,3]", "[2, 3, 4]"},
    {"parameter", ", \"shape\": [2,3]", "", "[2, 3]"},
    {"parameter", ", \"shape\": [2,3]", "[2,3]", "1 input, wanted 0"},
    {"parameter", "", "", "\"shape\" is missing"},
    {"add", "", "[2,3,4,5];[3,1,1]", "[2, 3, 4, 5]"},
    {"sub", "", "[5];[2,1,1]", "[2, 1, 5]"},
    {"mul", "", "[2,3,4];[2,4]", "input 0 has shape [2, 3, 4] and input 1 [2, 4]"},
    {"embedding", ", \"rows\": 10, \"features\": 4", "[2,3]", "wanted int32"},
    {"embedding", ", \"rows\": 3000000000, \"features\": 4", "i[2,3]", "rows is 3000000000"},
    {"embedding", ", \"rows\": 10, \"features\": 4", "i[2,3,4]", "ids are [2, 3, 4]"},
    {"positional_embedding", "", "[2,3,4]", "[2, 3, 4]"},
    {"positional_embedding", ", \"rows\": 2", "[2,3,4]", "rows is 2, but input 0 [2, 3, 4] has 3 positions"},
    {"attention", ", \"heads\": 2", "[2,5,12]", "[2, 5, 4]"},
    {"attention", ", \"heads\": 3", "[2,5,12];[2,5,12];[2,5,12]", "[2, 5, 12]"},
    {"attention", ", \"heads\": 3", "[2,5,12]", "heads is 3, kv_heads 3, wanted 9 equal parts of input 0 [2, 5, 12]"},
    {"attention", ", \"heads\": 2", "[2,5,12];[2,5,12]", "2 inputs of [2, 5, 12]"},
    {"attention", ", \"heads\": 4, \"kv_heads\": 2", "[2,5,24]", "[2, 5, 12]"},
    {"relative_bias", ", \"kind\": \"t5\", \"heads\": 4, \"queries\": 6, \"keys\": 9", "", "[4, 6, 9]"},
    {"relative_bias", ", \"kind\": \"t5\", \"heads\": 4", "", "\"queries\" is 0"},
    {"relative_bias", ", \"kind\": \"t5\", \"heads\": 4, \"queries\": 6, \"buckets\": 31", "", "wanted an even number"},
    {"relative_bias", ", \"kind\": \"t5\", \"heads\": 4, \"queries\": 6, \"max_distance\": 32", "",
     "\"max_distance\" is 32, wanted 33"},
    {"relative_bias", ", \"kind\": \"t5\", \"heads\": 4, \"queries\": 6, \"window\": 7", "", "\"window\" is 7"},
    {"relative_bias", ", \"kind\": \"swin\", \"heads\": 3, \"window\": 7", "", "[3, 49, 49]"},
    {"relative_bias", ", \"kind\": \"swin\", \"heads\": 3, \"queries\": 49", "", "\"window\" is 0"},
    {"window_mask", ", \"height\": 14, \"width\": 21, \"window\": 7, \"shift\": 3", "", "[6, 49, 49]"},
    {"window_mask", ", \"height\": 14, \"width\": 21, \"window\": 7, \"shift\": [0, 7]", "", "shift [0, 7]"},
    {"window_mask", ", \"height\": 14, \"width\": 20, \"window\": 7, \"shift\": 3", "", "width 20, window 7"},
    {"attention", ", \"heads\": 4, \"kv_heads\": 1", "[2,5,12];[2,5,3];[2,5,3]", "[2, 5, 12]"},
    {"attention", ", \"heads\": 4, \"kv_heads\": 3", "[2,5,24]", "kv_heads is 3, wanted a divisor of heads, 4"},
    {"attention", ", \"heads\": 4, \"kv_heads\": 2", "[2,5,12];[2,5,12];[2,5,12]", "wanted [B, S, 6]"},
    {"attention", ", \"heads\": 2", "[2,5,12];[2,6,12];[2,6,12]", "[2, 5, 12]"},
    {"attention", ", \"heads\": 2", "[2,5,12];[2,6,12];[2,7,12]", "query is [2, 5, 12] and input 2 is [2, 7, 12]"},
    {"attention", ", \"heads\": 2", "[2,5,12];[1,6,12];[1,6,12]", "query is [2, 5, 12] and input 1 is [1, 6, 12]"},
    {"attention", ", \"heads\": 2, \"causal\": true", "[2,5,12];[2,6,12];[2,6,12]", "causal, but 5 queries and 6 keys"},
    {"attention", ", \"heads\": 2, \"window\": 3", "[2,5,12]", "window is 3, but causal is false"},
    {"attention", ", \"heads\": 2, \"scale\": -1.0", "[2,5,12]", "\"scale\" is -1"},
    {"attention", ", \"heads\": 2, \"bias\": true", "[2,5,12];[2,5,5]", "[2, 5, 4]"},
    {"attention", ", \"heads\": 2, \"bias\": true", "[2,5,12];[2,5,4]", "the bias is [2, 5, 4], wanted [2, 5, 5]"},
    {"attention", ", \"heads\": 2, \"bias\": true", "[2,5,12];i[2,5,5]", "int32 [2, 5, 5], wanted float32"},
    {"attention", ", \"heads\": 2, \"mask\": true", "[2,5,12];i[2,5]", "[2, 5, 4]"},
    {"attention", ", \"heads\": 2, \"mask\": true", "[4,5,12];i[2,5,5]", "[4, 5, 4]"},
    {"attention", ", \"heads\": 2, \"mask\": true", "[4,5,12];i[3,5,5]", "with a divisor G of 4"},
    {"attention", ", \"heads\": 2, \"mask\": true", "[2,5,12];[2,5]", "float32 [2, 5], wanted int32"},
    {"attention", ", \"heads\": 2, \"mask\": true", "[2,5,12]", "1 input of [2, 5, 12]"},
    {"attention", ", \"heads\": 2, \"bias\": true, \"mask\": true", "[2,5,4];[2,6,4];[2,6,4];[2,5,6];i[2,6]",
     "[2, 5, 4]"},
    {"attention", ", \"heads\": 2, \"dropout\": 1.0", "[2,5,12]", "\"dropout\" is 1"},
    {"concat", "", "[2,3,4];[2,5,4]", "[2, 8, 4]"},
    {"concat", ", \"axis\": -1", "[2,3,4];[2,3,1]", "[2, 3, 5]"},
    {"concat", "", "[2,3,4];[2,3,5]", "input 0 is [2, 3, 4] and input 1 is [2, 3, 5]: they may differ only in dim 1"},
    {"concat", "", "[2,3,4];[2,3]", "[2, 3]"},
    {"concat", ", \"axis\": 5", "[2,3]", "\"axis\" is 5"},
    {"split", ", \"parts\": 3", "[2,6]", "[2, 2] [2, 2] [2, 2]"},
    {"split", ", \"axis\": 0, \"sizes\": [1,4]", "[5,2]", "[1, 2] [4, 2]"},
    {"split", ", \"parts\": 4", "[2,6]", "parts is 4, wanted a divisor of dim 1 of input 0 [2, 6]"},
    {"split", ", \"sizes\": [1,4]", "[2,6]", "must add up to dim 1 of input 0 [2, 6]"},
    {"split", ", \"sizes\": [7,-1]", "[2,6]", "each at least 1"},
    {"split", ", \"sizes\": [3,3], \"parts\": 2", "[2,6]", "wanted one of the two"},
    {"split", "", "[2,6]", "wanted one of the two"},
    {"split", ", \"parts\": 33", "[2,66]", "2 to 32 pieces"},
    {"transpose", ", \"perm\": [2,0,1]", "[2,3,4]", "[4, 2, 3]"},
    {"transpose", ", \"perm\": [0,1]", "[2,3,4]", "perm has 2 numbers, but input 0 is [2, 3, 4]"},
    {"transpose", ", \"perm\": [0,1,1]", "[2,3,4]", "perm[2] is 1"},
    {"transpose", ", \"perm\": [0,1,3]", "[2,3,4]", "perm[2] is 3"},
    {"tokens", "", "[2,3,4,5]", "[2, 20, 3]"},
    {"tokens", "", "[2,20,3]", "[2, 20, 3], wanted [N, C, H, W]"},
    {"image", ", \"height\": 4, \"width\": 5", "[2,20,3]", "[2, 3, 4, 5]"},
    {"image", ", \"height\": 4, \"width\": 4", "[2,20,3]", "width is 4, but input 0 [2, 20, 3] has 20 tokens"},
    {"image", ", \"height\": 4, \"width\": 5", "[2,3,4,5]", "wanted [N, H*W, C]"},
    {"slice", ", \"axis\": -1, \"start\": 1", "[2,3,7]", "[2, 3, 6]"},
    {"slice", ", \"axis\": 2, \"start\": -6, \"end\": -1, \"step\": 2", "[2,3,7]", "[2, 3, 3]"},
    {"slice", ", \"axis\": 2, \"end\": 7, \"step\": 9", "i[2,3,7]", "[2, 3, 1]"},
    {"slice", ", \"axis\": 2, \"start\": 7", "[2,3,7]", "start is 7, end is 0, step is 1, wanted a piece of dim 2"},
    {"slice", ", \"axis\": 2, \"start\": 3, \"end\": 3", "[2,3,7]", "wanted a piece of dim 2 of input 0 [2, 3, 7]"},
    {"slice", ", \"axis\": 2, \"end\": 8", "[2,3,7]", "end is 8"},
    {"slice", ", \"axis\": 2, \"start\": -8", "[2,3,7]", "start is -8"},
    {"slice", ", \"axis\": 2, \"step\": 0", "[2,3,7]", "step is 0"},
    {"slice", ", \"axis\": 3", "[2,3,7]", "\"axis\" is 3"},
    {"pad", ", \"before\": [0,1,0], \"after\": 2", "[2,3,7]", "[4, 6, 9]"},
    {"pad", ", \"before\": [0,1]", "[2,3,7]",
     "\"before\" has 2 numbers, wanted one or one for each dim of input 0 [2, 3, 7]"},
    {"pad", ", \"after\": [0,1,-1]", "[2,3,7]", "\"after\" is -1 for dim 2"},
    {"pad", ", \"value\": 0.5", "i[2]", "value is 0.5, wanted a whole number"},
    {"roll", ", \"shifts\": [1,-9], \"axes\": [-1,0]", "[2,3,7]", "[2, 3, 7]"},
    {"roll", ", \"shifts\": [1,2], \"axes\": [1]", "[2,3,7]", "\"shifts\" has 2 numbers and \"axes\" 1"},
    {"roll", ", \"shifts\": 1, \"axes\": [1,-2]", "[2,3,7]", "\"axes\" has -2, wanted each of 3 dims at most once"},
    {"roll", ", \"shifts\": 1, \"axes\": []", "[2,3,7]", "\"axes\" 0, wanted an axis or more"},
    {"roll", ", \"shifts\": 1, \"axes\": 3", "[2,3,7]", "\"axes\" has 3"},
    {"gather", "", "[5,3];i[7,2]", "[7, 2, 3]"},
    {"gather", ", \"axis\": -1", "i[5,3];i[]", "[5]"},
    {"gather", ", \"axis\": 1", "[5,3,4];i[7,2]", "[5, 7, 2, 4]"},
    {"gather", "", "[5,3];[7,2]", "input 1 is float32 [7, 2], wanted int32"},
    {"gather", ", \"axis\": 2", "[5,3];i[7]", "\"axis\" is 2"},
    {"gather", "", "[5,3,4,2];i[7,2,2,2]", "the output would have 7 dims, wanted at most 6"},
    {"cumsum", ", \"axis\": 1", "[5,3]", "[5, 3]"},
    {"cumsum", ", \"axis\": 2", "[5,3]", "\"axis\" is 2"},
    {"cumsum", ", \"axis\": 0", "i[5]", "wanted float32"},
    {"tile", ", \"repeats\": [4,1,2]", "[2,3,7]", "[8, 3, 14]"},
    {"tile", ", \"repeats\": [4,1]", "[2,3,7]", "\"repeats\" has 2 numbers, but input 0 is [2, 3, 7]"},
    {"tile", ", \"repeats\": [4,1,0]", "[2,3,7]", "\"repeats\" is 0 for dim 2"},
    {"sum", "", "[2,3,7]", "[]"},
    {"sum", ", \"keepdim\": true", "[2,3,7]", "[1, 1, 1]"},
    {"mean", ", \"axis\": [-1,0]", "[2,3,7]", "[3]"},
    {"mean", ", \"axis\": 1, \"keepdim\": true", "[2,3,7]", "[2, 1, 7]"},
    {"mean", ", \"axis\": [1,-2]", "[2,3,7]", "\"axis\" has -2, wanted each of 3 dims at most once"},
    {"max", ", \"axis\": 3", "[2,3,7]", "\"axis\" has 3"},
    {"max", "", "i[2,3,7]", "wanted float32"},
    {"lstm_cell", ", \"features\": 4", "[2,3]", "[2, 4] [2, 4]"},
    {"lstm_cell", ", \"features\": 4", "[2,3];[2,4];[2,4]", "[2, 4] [2, 4]"},
    {"lstm_cell", ", \"features\": 4", "[2,3];[2,4];[2,5]", "input 2 is [2, 5], wanted [2, 4]"},
    {"lstm_cell", ", \"features\": 4", "[2,3];[2,4]", "2 inputs, input 0 is [2, 3]"},
    {"lstm_cell", ", \"features\": 0", "[2,3]", "features is 0"},
    {"lstm", ", \"hidden\": 4", "[2,5,3]", "[2, 5, 4] [2, 4] [2, 4]"},
    {"lstm", ", \"hidden\": 4", "[2,5,3];[2,4]",
     "2 inputs, input 0 is [2, 5, 3], hidden is 4; wanted x [B, T, C] alone or with h0 and c0"},
    {"lstm", ", \"hidden\": 4", "[2,3]", "1 input, input 0 is [2, 3]"},
    {"gru", ", \"hidden\": 4", "[2,5,3];[2,4]", "[2, 5, 4] [2, 4]"},
    {"gru", ", \"hidden\": 4", "[2,5,3];[2,5]", "input 1 is [2, 5], wanted [2, 4]"},
    {"moe", ", \"experts\": 4, \"hidden\": 6", "[2,5,3]", "[2, 5, 3] []"},
    {"moe", ", \"experts\": 4, \"hidden\": 6, \"top\": 5", "[5,3]", "\"top\" is 5"},
    {"moe", ", \"experts\": 0, \"hidden\": 6", "[5,3]", "\"experts\" is 0"},
    {"moe", ", \"experts\": 4, \"hidden\": 6", "[2,3,4,5]", "wanted [N, C] or [B, T, C]"},
    {"moe", ", \"experts\": 4, \"hidden\": 6, \"capacity\": -1.0", "[5,3]", "\"capacity\" is -1"},
    {"gru", ", \"hidden\": 0", "[2,5,3]", "hidden is 0"},
};

/* The row as a model file. */
static void write_model(const row *r, const char *path, char *text, size_t room)
{
    size_t length = (size_t)snprintf(text, room, "{\"format\": \"ckpt-model/1\", \"name\": \"row\", \"inputs\": [");
    int count = 0;
    for (const char *at = r->inputs; *at != '\0'; count++) {
        const bool ids = *at == 'i';
        at += ids;
        const size_t end = strcspn(at, ";");
        length +=
            (size_t)snprintf(text + length, room - length, "%s{\"name\": \"x%d\", \"shape\": %.*s, \"dtype\": \"%s\"}",
                             count > 0 ? ", " : "", count, (int)end, at, ids ? "int32" : "float32");
        at += end + (at[end] == ';');
    }
    length += (size_t)snprintf(text + length, room - length,
                               "], \"layers\": [{\"name\": \"layer\", \"op\": \"%s\", \"in\": [", r->op);
    for (int k = 0; k < count; k++) {
        length += (size_t)snprintf(text + length, room - length, "%s\"x%d\"", k > 0 ? ", " : "", k);
    }
    length += (size_t)snprintf(text + length, room - length, "]%s}]}", r->attributes);
    ckpt_err err = {0};
    assert_true(length < room);
    CHECK_OK(ckpt_file_write(path, text, length, &err), err);
}

static void test_shapes_and_messages(void **state)
{
    const char *const path = ckpt_work_file("ops_shapes.json");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *const r = &rows[i];
        static char file[4096];
        char shown[32 * CKPT_SHAPE_TEXT] = "";
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        const ckpt_model *model = NULL;
        const ckpt_network *network = NULL;
        write_model(r, path, file, sizeof file);
        CHECK_OK(ckpt_model_read(path, NULL, 0, &arena, &model, &err), err);
        if (ckpt_network_infer(model, 2, &arena, &network, &err) == CKPT_OK) {
            for (int k = 0; k < network->node[0].out_count; k++) {
                char shape[CKPT_SHAPE_TEXT];
                (void)strcat(shown, k > 0 ? " " : "");
                (void)strcat(shown, ckpt_shape_show(&network->node[0].out[k].shape, shape));
            }
            CHECK(strcmp(shown, r->wanted) == 0, "row %zu, %s: gives %s, wanted %s", i, file, shown, r->wanted);
        } else {
            CHECK(strstr(err.msg, r->wanted) != NULL, "row %zu, %s: says \"%s\", wanted \"%s\"", i, file, err.msg,
                  r->wanted);
            CHECK(strstr(err.msg, "ops_shapes.json:1:") != NULL && strstr(err.msg, r->op) != NULL,
                  "row %zu: \"%s\" names no place or no op", i, err.msg);
        }
    }
}

/* Of tensors as large as a shape may be: a workspace that 63 bits do not hold saturates, and is not a negative one. */
static void workspaces_of_the_largest_do_not_wrap(void **state)
{
    static const row largest[] = {
        {"groupnorm", ", \"groups\": 1", "[1,1152921504606846976]", ""},
        {"batchnorm", "", "[2,576460752303423488]", ""},
        {"layernorm", "", "[2,576460752303423488]", ""},
        {"mul", "", "[1073741824,1073741824];[1073741824,1]", ""},
        {"sum", ", \"axis\": 0", "[1,1152921504606846976]", ""},
        {"lstm", ", \"hidden\": 268435456", "[1073741824,1,1]", ""},
        {"conv1d", ", \"out_channels\": 1073741824, \"kernel_size\": 1, \"groups\": 1073741824",
         "[1,1073741824,1073741824]", ""},
    };
    const char *const path = ckpt_work_file("ops_largest.json");
    for (size_t i = 0; i < 2 * sizeof largest / sizeof largest[0]; i++) {
        static char file[4096];
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        const ckpt_model *model = NULL;
        const ckpt_network *network = NULL;
        write_model(&largest[i / 2], path, file, sizeof file);
        CHECK_OK(ckpt_model_read(path, NULL, 0, &arena, &model, &err), err);
        CHECK_OK(ckpt_network_infer(model, i % 2 == 0 ? 2 : CKPT_ON_GPU, &arena, &network, &err), err);
        const ckpt_node *const node = &network->node[0];
        ckpt_bytes forward = node->forward_workspace_bytes, backward = node->backward_workspace_bytes;
        if (i % 2 == 1 && node->op->gpu_workspace != NULL) {
            node->op->gpu_workspace(node, &forward, &backward);
        }
        CHECK(forward >= 0 && backward >= 0, "%s, %d threads: %lld and %lld bytes", node->op->name, node->threads,
              (long long)forward, (long long)backward);
    }
    const ckpt_matrix square = {.stack = 1, .rows = 760000000, .columns = 760000000, .hidden = true};
    const ckpt_matrix tall = {.stack = 1, .rows = INT64_C(1) << 60, .columns = 1};
    assert_true(ckpt_muon_space_of(&square, false).bytes == INT64_MAX);
    assert_true(ckpt_adafactor_space_of(&tall).bytes == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes_and_messages),
                                       cmocka_unit_test(workspaces_of_the_largest_do_not_wrap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
