/* labels: unit */
/* Schemes: their place in a plan file, and what a network makes of them: stages, ties, buckets. What the
 * graph of a scheme is: test_ops_scheme.c. */
#include "tests/support/support_network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/formats/plan.h"
#include "core/formats/scheme.h"
#include "tests/support/support_core.h"

static void senseless_schemes_are_refused(void **state)
{
    const struct {
        ckpt_scheme change; /* fields that are not 0 replace those of ckpt_scheme_alone */
        const char *wanted;
    } cases[] = {
        {{.micro_batches = 5000}, "found 5000 micro-batches, wanted 1 to 4096"},
        {{.replicas = 4096, .stages = 2}, "found 4096 replicas of 2 stages"},
        {{.stages = 2, .stage = 2}, "found stage 2, wanted 0 to 1"},
        {{.shard_optimizer = true}, "add --replicas"},
        {{.overlap = true}, "add --replicas"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ckpt_scheme scheme = ckpt_scheme_alone;
        const ckpt_scheme *const change = &cases[i].change;
        scheme.micro_batches = change->micro_batches > 0 ? change->micro_batches : 1;
        scheme.replicas = change->replicas > 0 ? change->replicas : 1;
        scheme.stages = change->stages > 0 ? change->stages : 1;
        scheme.stage = change->stage;
        scheme.shard_optimizer = change->shard_optimizer;
        scheme.overlap = change->overlap;
        ckpt_err err = {0};
        assert_int_equal(ckpt_scheme_check(&scheme, &err), CKPT_BAD_INPUT);
        assert_non_null(strstr(err.msg, cases[i].wanted));
    }
}

/* ---- files ---- */

static const char *const head =
    "{ \"format\": \"ckpt-plan/1\", \"graph\": { \"name\": \"t\", \"sha256\": "
    "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\" }, \"budget_bytes\": 10, \"verdict\": "
    "\"fits\", \"summary\": { \"peak_bytes\": 0, \"static_bytes\": 0, \"arena_bytes\": 0, \"time_ns\": 0 }";

static ckpt_code read_back(const char *members, ckpt_arena *arena, ckpt_plan **plan, ckpt_err *err)
{
    char text[4096];
    const int length =
        snprintf(text, sizeof text, "%s%s,\n \"layers\": {}, \"steps\": [], \"places\": [] }\n", head, members);
    return ckpt_plan_read(ckpt_test_file("scheme_plan.json", text, (size_t)length), arena, plan, err);
}

static void same_scheme(const ckpt_scheme *a, const ckpt_scheme *b)
{
    assert_int_equal(a->micro_batches, b->micro_batches);
    assert_int_equal(a->replicas, b->replicas);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->stage, b->stage);
    assert_int_equal(a->fused, b->fused);
    assert_int_equal(a->apart, b->apart);
    assert_int_equal(a->shard_optimizer, b->shard_optimizer);
    assert_int_equal(a->overlap, b->overlap);
    assert_int_equal(a->bucket_bytes, b->bucket_bytes);
    assert_int_equal(a->network_bytes_per_s, b->network_bytes_per_s);
    for (int s = 0; a->stages > 1 && s < a->stages; s++) {
        assert_string_equal(a->first_layer[s], b->first_layer[s]);
    }
}

static void plans_carry_their_scheme(void **state)
{
    const char *const first[] = {"a", "h.3.\"x", "z"};
    ckpt_scheme scheme = {.micro_batches = 8,
                          .replicas = 2,
                          .stages = 3,
                          .stage = 1,
                          .first_layer = first,
                          .fused = true,
                          .apart = true,
                          .shard_optimizer = true,
                          .overlap = true,
                          .bucket_bytes = 77,
                          .network_bytes_per_s = 123};
    ckpt_text text;
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    ckpt_plan *plan = NULL;
    ckpt_text_init(&text);
    ckpt_json_writer w;
    ckpt_text_add(&text, ","); /* behind another member */
    ckpt_json_begin(&w, &text);
    ckpt_scheme_write(&scheme, &w);
    CHECK_OK(ckpt_text_end(&text, &err), err);
    CHECK_OK(read_back(text.bytes, &arena, &plan, &err), err);
    same_scheme(&plan->scheme, &scheme);
    ckpt_text_fini(&text);
    CHECK_OK(read_back("", &arena, &plan, &err), err);
    same_scheme(&plan->scheme, &ckpt_scheme_alone);
    ckpt_text_init(&text);
    ckpt_json_begin(&w, &text);
    ckpt_scheme_write(&plan->scheme, &w);
    CHECK_OK(ckpt_text_end(&text, &err), err);
    assert_int_equal(text.length, 0); /* plans of one rank are what they were */
    ckpt_text_fini(&text);
}

static void bad_schemes_in_plans_are_refused_with_their_place(void **state)
{
    const char *const cases[][2] = {
        {",\n\"scheme\": 3", "2:11"},
        {",\n\"scheme\": { \"micro_batches\": 0 }", "wanted"},
        {",\n\"scheme\": { \"replicas\": 1.5 }", "wanted"},
        {",\n\"scheme\": { \"gradients\": \"none\" }", "found \"none\", wanted \"static\" or \"fused\""},
        {",\n\"scheme\": { \"shard\": \"optimizer\" }", "add --replicas"},
        {",\n\"scheme\": { \"stages\": 2 }", "first_layers"},
        {",\n\"scheme\": { \"stages\": 2, \"first_layers\": [\"a\"] }", "found 1 first layers"},
        {",\n\"scheme\": { \"stages\": 2, \"stage\": 2, \"first_layers\": [\"a\", \"b\"] }", "wanted"},
        {",\n\"scheme\": { \"replicas\": 4096, \"stages\": 4096, \"first_layers\": [] }", "found 0 first layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CKPT_TEST_ARENA(arena);
        ckpt_err err = {0};
        ckpt_plan *plan = NULL;
        assert_int_equal(read_back(cases[i][0], &arena, &plan, &err), CKPT_BAD_INPUT);
        if (strstr(err.msg, cases[i][1]) == NULL) {
            fail_msg("%s: %s", cases[i][0], err.msg);
        }
    }
}

/* ---- networks ---- */

/* a -> b -> c (tied to a when `tie`) -> loss */
static const char *chain(const char *tie, const char *optimizer)
{
    static char text[2048];
    snprintf(text, sizeof text,
             "{ \"format\": \"ckpt-model/1\", \"name\": \"chain\",\n"
             "  \"inputs\": [ { \"name\": \"x\", \"shape\": [4, 8] }, { \"name\": \"y\", \"shape\": [4, 8] } ],\n"
             "  \"layers\": [ { \"name\": \"a\", \"op\": \"linear\", \"in\": [\"x\"], \"features\": 8 },\n"
             "    { \"name\": \"b\", \"op\": \"linear\", \"features\": 8 },\n"
             "    { \"name\": \"c\", \"op\": \"linear\", \"features\": 8%s },\n"
             "    { \"name\": \"loss\", \"op\": \"mse\", \"in\": [\"c\", \"y\"] } ],\n"
             "  \"optimizer\": { \"name\": \"sgd\"%s } }\n",
             tie, optimizer);
    return text;
}

static const ckpt_network *infer(const char *text, ckpt_arena *arena)
{
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    ckpt_err err = {0};
    CHECK_OK(ckpt_model_read(ckpt_test_file("scheme_model.json", text, strlen(text)), NULL, 0, arena, &model, &err),
             err);
    CHECK_OK(ckpt_network_infer(model, 1, arena, &network, &err), err);
    return network;
}

static void stages_are_cut_where_they_are_told_to(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    const ckpt_network *const network = infer(chain("", ""), &arena);
    const ckpt_network *spread = NULL;
    const char *const good[] = {"a", "c"};
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.stages = 2;
    scheme.first_layer = good;
    CHECK_OK(ckpt_network_spread(network, &scheme, &arena, &spread, &err), err);
    const int wanted[] = {0, 0, 1, 1};
    for (int n = 0; n < 4; n++) {
        assert_int_equal(spread->stage_of[n], wanted[n]);
    }
    const char *const bad[][2] = {{"b", "c"}, {"a", "a"}, {"a", "nothing"}};
    const char *const why[] = {"is not the model's first", "does not come after", "does not have"};
    for (int i = 0; i < 3; i++) {
        scheme.first_layer = bad[i];
        assert_int_equal(ckpt_network_spread(network, &scheme, &arena, &spread, &err), CKPT_BAD_INPUT);
        assert_non_null(strstr(err.msg, why[i]));
        err = (ckpt_err){0};
    }
}

static void tied_layers_of_two_stages_have_copies(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    const ckpt_network *const network = infer(chain(", \"tie\": \"a\"", ""), &arena);
    const ckpt_network *spread = NULL;
    const char *const cut[][2] = {{"a", "c"}, {"a", "loss"}};
    for (int apart = 0; apart < 2; apart++) {
        for (int i = 0; i < 2; i++) { /* over the cut; both before it */
            ckpt_scheme scheme = ckpt_scheme_alone;
            scheme.stages = 2;
            scheme.first_layer = cut[i];
            scheme.apart = apart == 1;
            CHECK_OK(ckpt_network_spread(network, &scheme, &arena, &spread, &err), err);
            const bool copies = i == 0 || apart == 1;
            assert_int_equal(spread->tied_group_count, copies ? 2 : 0); /* weight and bias */
            for (int k = 0; k < 2; k++) {
                assert_int_equal(network->node[2].param[k].tied, 0); /* the model's own is as it was */
                assert_int_equal(spread->node[2].param[k].tied, copies ? -1 : 0);
                assert_int_equal(spread->node[2].param[k].copy_of, copies ? 0 : -1);
                assert_int_equal(spread->node[0].param[k].copy_of, -1);
                if (copies) {
                    assert_int_equal(spread->tied_group[k].owner, 0);
                    assert_int_equal(spread->tied_group[k].param, k);
                    assert_int_equal(spread->tied_group[k].holder_count, 2);
                    assert_int_equal(spread->tied_group[k].holder[0], 2); /* backward comes to it first */
                    assert_int_equal(spread->tied_group[k].holder[1], 0);
                }
            }
        }
    }
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.stages = 2;
    scheme.first_layer = cut[0];
    scheme.replicas = 2;
    scheme.shard_optimizer = true;
    assert_int_equal(ckpt_network_spread(network, &scheme, &arena, &spread, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "layers a and c share parameters over stages"));
}

static void the_norm_of_fused_gradients_is_refused(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_err err = {0};
    const ckpt_network *const network = infer(chain("", ", \"clip_norm\": 0.5, \"loss_scale\": 8"), &arena);
    const ckpt_network *spread = NULL;
    assert_true(network->clip_norm == 0.5 && network->loss_scale == 8);
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.fused = true;
    assert_int_equal(ckpt_network_spread(network, &scheme, &arena, &spread, &err), CKPT_BAD_INPUT);
    assert_non_null(strstr(err.msg, "--gradients static"));
}

/* Pieces of one bucket, written down element by element. */
static int64_t walk(const ckpt_network *network, const ckpt_bucket *bucket, int64_t from, int64_t to, int *seen)
{
    ckpt_piece piece = {.node = -1};
    int64_t at = from, all = 0;
    while (ckpt_bucket_next(network, bucket, from, to, &piece)) {
        assert_int_equal(piece.at, at);
        assert_true(piece.count > 0 && piece.at + piece.count <= to);
        const ckpt_param *const param = &network->node[piece.node].param[piece.param];
        assert_true(param->tied < 0);
        assert_true(piece.first >= 0 && piece.first + piece.count <= ckpt_shape_count(&param->tensor.shape));
        for (int64_t i = 0; i < piece.count; i++) {
            seen[(piece.node * CKPT_PARAM_MAX + piece.param) * 64 + piece.first + i]++;
        }
        at += piece.count;
        all += piece.count;
    }
    return all;
}

static void buckets_hold_every_gradient_once(void **state)
{
    const ckpt_bytes sizes[] = {1, 4 * 72, 4 * 100, 1 << 20};
    const int wanted[] = {3, 3, 2, 1}; /* a, b and c have 64 + 8 elements each */
    for (int i = 0; i < 4; i++) {
        for (int tied = 0; tied < 2; tied++) {
            for (int replicas = 2; replicas <= 5; replicas++) {
                CKPT_TEST_ARENA(arena);
                ckpt_err err = {0};
                ckpt_scheme scheme = ckpt_scheme_alone;
                scheme.replicas = replicas;
                scheme.bucket_bytes = sizes[i];
                const ckpt_network *spread = NULL;
                const ckpt_bucket *bucket = NULL;
                int count = 0;
                CHECK_OK(ckpt_network_spread(infer(chain(tied ? ", \"tie\": \"a\"" : "", ""), &arena), &scheme, &arena,
                                             &spread, &err),
                         err);
                CHECK_OK(ckpt_network_buckets(spread, &arena, &bucket, &count, &err), err);
                assert_int_equal(count, tied ? (wanted[i] == 3 ? 2 : 1) : wanted[i]);
                /* c's gradient is complete first; tied to a, b's is */
                assert_string_equal(spread->node[bucket[0].node[0]].name, tied ? "b" : "c");
                int seen[4 * CKPT_PARAM_MAX * 64] = {0};
                ckpt_bytes shard = 0;
                for (int b = 0; b < count; b++) {
                    assert_int_equal(bucket[b].chunk % 16, 0);
                    assert_true(bucket[b].chunk * replicas >= bucket[b].count);
                    assert_true((bucket[b].chunk - 16) * replicas < bucket[b].count);
                    assert_int_equal(bucket[b].shard, shard);
                    assert_int_equal(bucket[b].staging_bytes, (replicas - 1) * bucket[b].chunk * 4);
                    shard += bucket[b].chunk * 4;
                    int64_t all = 0;
                    for (int r = 0; r < replicas; r++) {
                        const int64_t from = r * bucket[b].chunk, to = from + bucket[b].chunk;
                        const int64_t end = to < bucket[b].count ? to : bucket[b].count;
                        all += from < end ? walk(spread, &bucket[b], from, end, seen) : 0;
                    }
                    assert_int_equal(all, bucket[b].count);
                }
                for (int n = 0; n < 4; n++) {
                    for (int k = 0; k < 2; k++) {
                        const bool own = n < (tied ? 2 : 3);
                        for (int e = 0; e < (k == 0 ? 64 : 8); e++) {
                            assert_int_equal(seen[(n * CKPT_PARAM_MAX + k) * 64 + e], own ? 1 : 0);
                        }
                    }
                }
            }
        }
    }
}

static ckpt_code spread_starved(void *context, ckpt_arena *arena, ckpt_err *err)
{
    ckpt_scheme scheme = ckpt_scheme_alone;
    scheme.replicas = 2;
    const ckpt_network *spread = NULL;
    const ckpt_bucket *bucket = NULL;
    int count = 0;
    ckpt_code code = ckpt_network_spread(context, &scheme, arena, &spread, err);
    return code == CKPT_OK ? ckpt_network_buckets(spread, arena, &bucket, &count, err) : code;
}

static void no_memory_is_reported(void **state)
{
    CKPT_TEST_ARENA(arena);
    ckpt_network network = *infer(chain("", ""), &arena);
    assert_true(ckpt_test_starve_arena(spread_starved, &network) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(senseless_schemes_are_refused),
        cmocka_unit_test(plans_carry_their_scheme),
        cmocka_unit_test(bad_schemes_in_plans_are_refused_with_their_place),
        cmocka_unit_test(stages_are_cut_where_they_are_told_to),
        cmocka_unit_test(tied_layers_of_two_stages_have_copies),
        cmocka_unit_test(the_norm_of_fused_gradients_is_refused),
        cmocka_unit_test(buckets_hold_every_gradient_once),
        cmocka_unit_test(no_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
