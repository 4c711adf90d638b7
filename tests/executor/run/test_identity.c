/* labels: contract; takes 65 s */
/* The promise, in both types: every strategy under every budget gives the bits of keep-all, in the memory that was predicted. Small
 * versions of a GPT, DenseNet-BC with dropout, ResNet, LSTM and U-Net, and a tied head. Walks the strategy table, so a
 * new strategy is covered the day it appears. The other networks of models/ are in test_identity_models, the full ones
 * in bench/bench_identity.sh. */
#include "tests/support/support_identity.h"
#include "tests/support/support_test.h"
#include "tests/support/support_train.h"

static bool all; /* strategies and budgets */

static void check_model(const char *file, const char *set)
{
    ckpt_identity of = {.file = file, .set = set, .dtype = "float32", .all = all, .steps = TEST_TRAIN_STEPS};
    ckpt_identity_check(&of);
    of.dtype = "bfloat16";
    ckpt_identity_check(&of);
}

static void byte_gpt(void **state)
{
    check_model("models/byte-gpt.json", "batch=2 tokens=16 hidden=32 blocks=3 heads=2 vocabulary=64");
}

/* dropout inside attention */
static void bert(void **state)
{
    check_model("models/bert-8.json",
                "batch=2 tokens=8 positions=8 hidden=16 blocks=2 heads=2 feed_forward=32 vocabulary=40");
}

static void attention(void **state)
{
    check_model("tests/models/attention-small.json", "");
}

static void densenet(void **state)
{
    check_model("models/densenet-bc-100-12-dropout.json", "batch=4 size=8 growth=4 layers=2");
}

/* layers that read nothing, broadcasting */
static void pointwise(void **state)
{
    check_model("tests/models/pointwise-small.json", "");
}

/* moving, reducing */
static void shapes(void **state)
{
    check_model("tests/models/shape-small.json", "");
}

static void resnet(void **state)
{
    check_model("tests/models/resnet-small.json", "");
}

static void lstm(void **state)
{
    check_model("models/lstm.json", "batch=2 hidden=16");
}

static void unet(void **state)
{
    check_model("tests/models/unet-small.json", "");
}

static void tied_head(void **state)
{
    check_model("tests/models/tied-head.json", "");
}

static void forked(void **state)
{
    check_model("tests/models/fork.json", "");
}

int main(void)
{
    all = ckpt_test_rounds(2, 1) == 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forked),    cmocka_unit_test(byte_gpt),  cmocka_unit_test(bert),
        cmocka_unit_test(attention), cmocka_unit_test(densenet),  cmocka_unit_test(pointwise),
        cmocka_unit_test(shapes),    cmocka_unit_test(resnet),    cmocka_unit_test(lstm),
        cmocka_unit_test(unet),      cmocka_unit_test(tied_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
