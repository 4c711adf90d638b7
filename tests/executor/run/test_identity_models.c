/* labels: contract; long under sanitizers; takes 160 s */
/* The promise for the networks of models/, small: under tight budgets every strategy, one half of them in float32, the
 * others in bfloat16, gives the bits of keep-all, in the memory that was predicted (support_identity.h); with all rounds
 * in float32 every strategy under every budget. test_identity has the others, bench/bench_identity.sh the full ones. */
#include "tests/support/support_identity.h"
#include "tests/support/support_test.h"
#include "tests/support/support_train.h"

#include <string.h>

typedef struct network {
    const char *file, *set;
    bool large; /* its plans take minutes: with all rounds only; test_gpu_models has it in every run */
} network;

#define LANGUAGE "batch=2 tokens=8 hidden=16 blocks=1 heads=4 vocabulary=29"

static const network networks[] = {
    {"models/llama-3.2-1b.json", LANGUAGE " kv_heads=2 feed_forward=24", false},
    {"models/qwen3-0.6b.json", LANGUAGE " kv_heads=2 head=4 feed_forward=24", false},
    {"models/mixtral-small.json", LANGUAGE " kv_heads=2 feed_forward=8 experts=4", false},
    {"models/gpt2-124m.json", LANGUAGE " positions=8 dropout=0.1", false},
    {"models/bert-base.json", LANGUAGE " positions=8 feed_forward=24", false},
    {"models/t5-small.json", LANGUAGE " source=12 head_size=4 feed_forward=24", false},
    {"models/vit-b-16.json", "batch=2 size=16 patch=4 hidden=16 blocks=2 heads=4 feed_forward=24 classes=7", false},
    {"models/swin-t.json", "batch=2 size=64 window=2 width=4 heads=1 classes=7", false},
    {"models/convnext-t.json", "batch=2 size=32 width=4 classes=7", false},
    {"models/efficientnet-b0.json", "batch=2 size=32 width=8 classes=7", false},
    {"models/sd-unet.json", "batch=1 size=8 channels=4 words=3 text=4 heads=1 groups=2", true},
    {"models/whisper-tiny.json", LANGUAGE " frames=12 mels=4 positions=8 feed_forward=24", false},
    {"models/gru-lm.json", "batch=2 tokens=8 features=8 hidden=8 layers=2 vocabulary=29", false},
};
static bool all; /* strategies and budgets, in float32 */
static int steps;
enum { NETWORKS = sizeof networks / sizeof *networks };

static void check(void **state)
{
    const network *const one = *state;
    ckpt_identity of = {.file = one->file, .set = one->set, .dtype = "float32", .all = all, .steps = steps};
    ckpt_identity_check(&of);
    of.dtype = "bfloat16";
    of.all = false;
    ckpt_identity_check(&of);
}

/* Arguments: parts of the files' names to look at; none: all. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[NETWORKS] = {0};
    size_t count = 0;
    steps = (int)ckpt_test_rounds(TEST_TRAIN_STEPS, 3);
    all = ckpt_test_rounds(2, 1) == 2;
    for (int i = 0; i < NETWORKS; i++) {
        bool chosen = argc < 2 && (all || !networks[i].large);
        for (int k = 1; k < argc; k++) {
            chosen = chosen || strstr(networks[i].file, argv[k]) != NULL;
        }
        if (chosen) {
            tests[count++] = (struct CMUnitTest){
                .name = networks[i].file, .test_func = check, .initial_state = (void *)(uintptr_t)&networks[i]};
        }
    }
    return _cmocka_run_group_tests("identity_models", tests, count, NULL, NULL);
}
