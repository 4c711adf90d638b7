/* labels: contract */
/* Every file under models/ reads, infers, lowers and passes the graph's check, and has as many parameters as the
 * network it names is published with. A file without a row here fails. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "ops/lowering/network.h"
#include "tests/support/support_test.h"

typedef struct published {
    const char *file;
    int64_t parameters; /* trainable values, tied ones once */
    const char *set;    /* NULL, or one --set that must change the plan's size but no parameter */
} published;

static const published table[] = {
    /* The sum over its four layers: 32896 + 8256 + 2080 + 330. */
    {"mlp.json", 43562, "batch=3"},
    {"mlp-1000.json", 4 * (1000 * 1000 + 1000), "batch=3"},
    /* The same sum: OneFlow's documentation has the same four layers as two modules. */
    {"oneflow-graph.json", 43562, "batch=3"},
    /* 50 (100 + 1) + 20 (50 + 1) + 5 (20 + 1) of pytorch_memonger's tutorial. */
    {"sequential-100.json", 5050 + 1020 + 105, "batch=3"},
    /* 128 (32 + 1) + 32 (128 + 1) of the wrapped block, and the last linear layer. */
    {"fairscale-ffn.json", 4224 + 4128 + 33, "tokens=3"},
    /* PyTorch examples, mnist/main.py: torchinfo gives 1,199,882. */
    {"mnist-conv.json", 1199882, "batch=3"},
    /* 20 (25 + 1) + 64 (500 + 1) of the documentation's Sequential, and 64 * 10 + 10. */
    {"conv-relu.json", 520 + 32064 + 650, "batch=3"},
    /* Karpathy's nanoGPT counts 10.65 M for 65 characters and no biases; the formula of GPT-2 with these sizes. */
    {"byte-gpt.json", 10844160, "batch=2"},
    /* Hugging Face, gpt2 and gpt2-xl: GPT2LMHeadModel.num_parameters(). */
    {"gpt2-124m.json", 124439808, "tokens=64"},
    {"gpt2-1.5b.json", 1557611200, "tokens=64"},
    /* Hugging Face, meta-llama/Llama-3.2-1B and Qwen/Qwen3-0.6B: num_parameters() of LlamaForCausalLM and
     * Qwen3ForCausalLM, tied heads once. */
    {"llama-3.2-1b.json", 1235814400, "tokens=64"},
    {"qwen3-0.6b.json", 596049920, "tokens=64"},
    /* Hugging Face, bert-large-uncased, BertForMaskedLM: 335,174,458 (BertModel's 335,141,888 without its pooler of
     * 1,049,600, with the head's 1,082,170). */
    {"bert-large.json", 335174458, "tokens=64"},
    /* The same formula with 8 layers of 768. */
    {"bert-8.json", 93753914, "tokens=64"},
    /* Hugging Face, bert-base-uncased, BertForMaskedLM.num_parameters(): 109,514,298 (BertModel of 109,482,240 without its
     * pooler of 590,592, with the head of 622,650). */
    {"bert-base.json", 109514298, "tokens=64"},
    /* torchvision's documentation: vit_b_16. */
    {"vit-b-16.json", 86567656, "batch=2"},
    /* Hugging Face, t5-small, T5ForConditionalGeneration.num_parameters(); Raffel et al. 2020 say about 60 million. */
    {"t5-small.json", 60506624, "tokens=32"},
    /* torchvision's documentation: vgg16 138,357,544; resnet50 25,557,032; mobilenet_v2 3,504,872. */
    {"vgg16.json", 138357544, "batch=2"},
    {"resnet50.json", 25557032, "size=64"},
    /* torchvision's documentation: swin_t 28,288,354; convnext_tiny 28,589,128. */
    {"swin-t.json", 28288354, "batch=2"},
    {"convnext-t.json", 28589128, "size=64"},
    {"mobilenetv2.json", 3504872, "size=64"},
    /* torchvision's documentation: efficientnet_b0 5,288,548. */
    {"efficientnet-b0.json", 5288548, "size=64"},
    /* milesial/Pytorch-UNet, bilinear: 17,262,977 with 1 class; each further class is 64 weights and a bias. */
    {"unet.json", 17262977 + 65, "size=32"},
    /* Hugging Face, stable-diffusion-v1-5/unet: UNet2DConditionModel.num_parameters(). */
    {"sd-unet.json", 859520964, "size=32"},
    /* andreasveit/densenet-pytorch and Huang et al. 2016, table 2 (0.8 M). */
    {"densenet-bc-100-12.json", 769162, "batch=2"},
    {"densenet-bc-100-12-dropout.json", 769162, "batch=2"},
    /* Embedding 256 x 256, torch.nn.LSTM(256, 256) with 526,336, linear 256 x 256 + 256. */
    {"lstm.json", 65536 + 526336 + 65792, "batch=2"},
    /* Hugging Face, openai/whisper-tiny: WhisperForConditionalGeneration.num_parameters(), the encoder's sinusoidal
     * positions counted, the tied head once. */
    {"whisper-tiny.json", 37760640, "tokens=64"},
    /* Hugging Face, MixtralForCausalLM(MixtralConfig of these sizes, head not tied).num_parameters(). */
    {"mixtral-small.json", 13379840, "tokens=16"},
    /* Embedding 256 x 256, torch.nn.GRU(256, 512, 2) with 2,758,656, linear 512 x 256 + 256. */
    {"gru-lm.json", 65536 + 2758656 + 131328, "tokens=16"},
};
enum { TABLE_COUNT = sizeof table / sizeof table[0] };

typedef struct measured {
    int64_t parameters, buffer_bytes;
    int layers;
} measured;

/* Two layers that any kernel treats alike. */
static bool same_work(const ckpt_node *a, const ckpt_node *b)
{
    if (a->op != b->op || a->in_count != b->in_count || a->out_count != b->out_count || a->grad_in != b->grad_in) {
        return false;
    }
    for (int k = 0; k < a->in_count; k++) {
        if (!ckpt_shape_equal(&a->in[k].shape, &b->in[k].shape)) {
            return false;
        }
    }
    for (int k = 0; k < a->out_count; k++) {
        if (!ckpt_shape_equal(&a->out[k].shape, &b->out[k].shape)) {
            return false;
        }
    }
    for (int k = 0; k < a->param_count || k < b->param_count; k++) {
        if (!ckpt_shape_equal(&a->param[k].tensor.shape, &b->param[k].tensor.shape)) {
            return false;
        }
    }
    return true;
}

/* Every layer of every network, at its real size and at the row's other one, finds a kernel that fits the op's stated
 * allowance: a plan made without a profile can be executed. (Depthwise filters larger than the
 * image did not: size=64.) */
static void test_allowances_are_enough(void **state)
{
    static const int thread_counts[] = {1, 2, 7, 16, 2};
    for (int i = 0; i < 5 * TABLE_COUNT; i++) {
        const int row = i / 5, threads = thread_counts[i % 5], set_count = i % 5 == 4 && table[row].set != NULL;
        char path[512];
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        const ckpt_model *model = NULL;
        const ckpt_network *network = NULL;
        ckpt_device *device = NULL;
        (void)snprintf(path, sizeof path, "%s/models/%s", ckpt_source_dir(), table[row].file);
        CHECK_OK(ckpt_model_read(path, &table[row].set, set_count, &arena, &model, &err), err);
        CHECK_OK(ckpt_network_infer(model, threads, &arena, &network, &err), err);
        CHECK_OK(ckpt_device_open("cpu", threads, &device, &err), err);
        for (int n = 0; n < network->node_count; n++) {
            const ckpt_node *const node = &network->node[n];
            bool known = node->alias;
            for (int m = 0; m < n && !known; m++) {
                known = same_work(&network->node[m], node);
            }
            if (!known) {
                ckpt_bound_kernel bound = {0};
                const ckpt_code code = ckpt_device_bind(device, node, node->forward_workspace_bytes,
                                                        node->backward_workspace_bytes, NULL, &bound, &err);
                CHECK(code == CKPT_OK, "%s, %d threads: %s", table[row].file, threads, err.msg);
                ckpt_device_unbind(&bound);
            }
        }
        ckpt_device_close(device);
    }
}

/* What lowering one model file gives. */
static measured lower(const char *file, const char *set)
{
    char path[512];
    ckpt_arena arena;
    ckpt_err err = {0};
    measured result = {0};
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    const ckpt_device_model *device = NULL;
    const ckpt_lowered *lowered = NULL;
    ckpt_static_layout layout;
    (void)snprintf(path, sizeof path, "%s/models/%s", ckpt_source_dir(), file);
    ckpt_arena_init(&arena);
    CHECK_OK(ckpt_model_read(path, &set, set == NULL ? 0 : 1, &arena, &model, &err), err);
    CHECK_OK(ckpt_network_infer(model, 2, &arena, &network, &err), err);
    CHECK_OK(ckpt_device_model_find("cpu", &arena, &device, &err), err);
    CHECK_OK(ckpt_network_lower(network, NULL, device, &arena, &lowered, &err), err);
    CHECK_OK(ckpt_network_statics(network, &arena, &layout, &err), err);
    ckpt_graph graph = *lowered->graph;
    CHECK_OK(ckpt_graph_check(&graph, &arena, &err), err);

    result.layers = network->node_count;
    CHECK(network->loss_node == network->node_count - 1, "%s cannot be trained: loss node %d of %d", file,
          network->loss_node, network->node_count);
    for (int i = 0; i < network->node_count; i++) {
        const ckpt_node *const node = &network->node[i];
        for (int k = 0; k < node->param_count; k++) {
            if (node->param[k].tied < 0) {
                result.parameters += ckpt_shape_count(&node->param[k].tensor.shape);
            }
        }
        CHECK((node->in_count > 0 || node->op->in_max == 0) && node->out_count > 0,
              "%s: layer %s reads or writes nothing", file, node->name);
    }
    CHECK(layout.weight_bytes >= 4 * result.parameters, "%s: the weights' section is too small", file);
    for (int b = 0; b < graph.buffer_count; b++) {
        result.buffer_bytes += graph.buffer[b].bytes;
    }
    ckpt_arena_fini(&arena);
    return result;
}

static void test_published_parameter_counts(void **state)
{
    for (int i = 0; i < TABLE_COUNT; i++) {
        const measured plain = lower(table[i].file, NULL);
        CHECK(plain.parameters == table[i].parameters, "%s has %lld parameters, published are %lld", table[i].file,
              (long long)plain.parameters, (long long)table[i].parameters);
        const measured other = lower(table[i].file, table[i].set);
        CHECK(other.parameters == table[i].parameters, "%s: --set %s changes the parameters from %lld to %lld",
              table[i].file, table[i].set, (long long)table[i].parameters, (long long)other.parameters);
        CHECK(other.buffer_bytes < plain.buffer_bytes, "%s: --set %s does not make the step smaller (%lld, %lld bytes)",
              table[i].file, table[i].set, (long long)plain.buffer_bytes, (long long)other.buffer_bytes);
    }
}

/* GPT-2's dropout is one number: behind the embeddings, in attention and twice in each block. */
static void test_gpt2_with_dropout(void **state)
{
    const measured none = lower("gpt2-124m.json", NULL), some = lower("gpt2-124m.json", "dropout=0.1");
    assert_int_equal(some.parameters, 124439808);
    assert_int_equal(some.layers - none.layers, 1 + 2 * 12);
}

static void test_every_file_has_a_row(void **state)
{
    DIR *const folder = opendir(ckpt_source_file("models"));
    assert_non_null(folder);
    int found = 0;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        const size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0) {
            continue;
        }
        bool listed = false;
        for (int i = 0; i < TABLE_COUNT; i++) {
            listed = listed || strcmp(table[i].file, entry->d_name) == 0;
        }
        CHECK(listed, "models/%s has no row in this test: say how many parameters it is published with", entry->d_name);
        found++;
    }
    (void)closedir(folder);
    CHECK(found == TABLE_COUNT, "%d files under models/, %d rows here", found, TABLE_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_file_has_a_row),
        cmocka_unit_test(test_published_parameter_counts),
        cmocka_unit_test(test_gpt2_with_dropout),
        cmocka_unit_test(test_allowances_are_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
