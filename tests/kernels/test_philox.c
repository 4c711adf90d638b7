/* labels: unit */
/* Philox compared with the authors' known answers (Random123, kat_vectors); its counters, uniforms, the keep threshold,
 * and the function that computes many blocks at once. */
#include "tests/support/support_test.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/vector.h"
#include "kernels/philox.h"

static void known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        ckpt_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void block_places_seed_step_layer_and_stream(void **state)
{
    const uint32_t counter[4] = {0x9abcdef0, 0x12345678, 0x55667788, 0xabcdef07};
    const uint32_t key[2] = {0x89abcdef, 0x01234567};
    uint32_t wanted[4], found[4];
    ckpt_philox(counter, key, wanted);
    ckpt_philox_block(UINT64_C(0x0123456789abcdef), UINT64_C(0x1122334455667788), 0xabcdef, 7,
                      UINT64_C(0x123456789abcdef0), found);
    assert_memory_equal(found, wanted, sizeof wanted);
}

static void uniform_is_never_zero_and_reaches_one(void **state)
{
    assert_true(ckpt_philox_uniform(0) == 0x1p-32f);
    assert_true(ckpt_philox_uniform(UINT32_MAX) == 1.0f);
    assert_true(ckpt_philox_uniform(0x7fffffff) == 0.5f);
    double sum = 0.0;
    const int count = 1 << 16;
    for (int i = 0; i < count; i++) {
        uint32_t out[4];
        ckpt_philox_block(1, 2, 3, 4, (uint64_t)i, out);
        for (int w = 0; w < 4; w++) {
            sum += (double)ckpt_philox_uniform(out[w]);
        }
    }
    /* Standard deviation of the mean of 2^18 uniforms: 0.29 / 512. Five of them. */
    assert_true(fabs(sum / (4.0 * count) - 0.5) < 5 * 0.29 / 512);
}

/* The integer test must agree with the comparison of uniforms, on both sides of the threshold and far away. */
static void threshold_is_the_comparison(void **state)
{
    static const double p[] = {0.0, 1e-12, 0.1, 0.25, 0.3, 0.5, 0.7, 0.9, 0.999999, 1.0 - 0x1p-53, 1.0, 2.0};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
        const uint64_t threshold = ckpt_philox_threshold(p[i]);
        assert_true(threshold <= UINT64_C(1) << 32);
        for (int64_t step = -300; step <= 300; step++) {
            const int64_t word = (int64_t)threshold + step;
            if (word >= 0 && word <= (int64_t)UINT32_MAX) {
                const bool kept = (double)ckpt_philox_uniform((uint32_t)word) > p[i];
                CHECK(kept == (word >= (int64_t)threshold), "p %g, word %lld", p[i], (long long)word);
            }
        }
    }
    assert_int_equal(ckpt_philox_threshold(0.0), 0);
    assert_int_equal(ckpt_philox_threshold(1.0), UINT64_C(1) << 32);
}

/* Many blocks at once have the words of single blocks: for all lengths around the chunk, and with a carry from the low
 * to the high word of the block number inside a chunk. */
static void many_blocks_are_the_same_blocks(void **state)
{
    static const uint64_t first[] = {0, 4, 1000, UINT64_C(4) * 0xfffffff0, (UINT64_C(1) << 40) - 64};
    static const int64_t length[] = {1, 2, 3, 4, 5, 63, 255, 256, 257, 515, 1024};
    for (size_t f = 0; f < sizeof first / sizeof *first; f++) {
        for (size_t l = 0; l < sizeof length / sizeof *length; l++) {
            uint32_t words[1025];
            memset(words, 0xee, sizeof words);
            ckpt_vector_philox(UINT64_C(0xfeedfacecafebeef), 7, 11, 1, first[f], length[l], words);
            for (int64_t i = 0; i < length[l]; i++) {
                uint32_t four[4];
                const uint64_t element = first[f] + (uint64_t)i;
                ckpt_philox_block(UINT64_C(0xfeedfacecafebeef), 7, 11, 1, element / 4, four);
                CHECK(words[i] == four[element % 4], "element %llu", (unsigned long long)element);
            }
            CHECK(words[length[l]] == 0xeeeeeeee, "wrote behind %lld words", (long long)length[l]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(block_places_seed_step_layer_and_stream),
        cmocka_unit_test(uniform_is_never_zero_and_reaches_one),
        cmocka_unit_test(threshold_is_the_comparison),
        cmocka_unit_test(many_blocks_are_the_same_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
