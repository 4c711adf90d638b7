/* Stands in for libFuzzer where clang is not: every file that is named, then MUTANTS changes of those that are good.
 *
 *     fuzz_NAME [FILE...]     CKPT_FUZZ_MUTANTS=N of the environment: so many, and 0 says what is wrong with each file */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MUTANTS = 3000, GOOD = 100 };

static unsigned drawn = 1;

static unsigned draw(void)
{
    drawn = drawn * 1664525u + 1013904223u; /* Numerical Recipes */
    return drawn >> 8;
}

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t room)
{
    const size_t at = size > 0 ? draw() % size : 0;
    switch (size > 0 ? draw() % 4 : 1) {
    case 0: bytes[at] = (uint8_t)(bytes[at] ^ 1u << draw() % 8); break;
    case 1:
        if (size < room) {
            memmove(bytes + at + 1, bytes + at, size - at);
            bytes[at] = (uint8_t)draw();
            size++;
        }
        break;
    case 2: memmove(bytes + at, bytes + at + 1, --size - at); break;
    default: bytes[at] = (uint8_t)draw(); break;
    }
    return size;
}

static size_t read_input(const char *path, uint8_t *bytes)
{
    FILE *const file = fopen(path, "rb");
    FUZZ_CHECK(file != NULL, "cannot open %s", path);
    const size_t size = fread(bytes, 1, FUZZ_ROOM, file);
    FUZZ_CHECK(fclose(file) == 0 && size < FUZZ_ROOM, "cannot read %s", path);
    return size;
}

/* An input of its own block, as libFuzzer gives it, so that sanitizers see where it ends. */
static void run(const uint8_t *bytes, size_t size)
{
    uint8_t *const copy = malloc(size > 0 ? size : 1);
    FUZZ_CHECK(copy != NULL, "no memory for %zu bytes", size);
    memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void make_mutant(const char *const *good, int count, uint8_t *made, size_t *size)
{
    static uint8_t other[FUZZ_ROOM], one[FUZZ_ROOM];
    const bool from_seed = count == 0 || (fuzz_the_reader.seed != NULL && draw() % 2 == 0);
    *size = from_seed ? fuzz_the_reader.seed(one, FUZZ_ROOM) : read_input(good[draw() % (unsigned)count], one);
    if (count > 0 && draw() % 4 == 0) {
        const size_t other_size = read_input(good[draw() % (unsigned)count], other);
        *size = LLVMFuzzerCustomCrossOver(one, *size, other, other_size, made, FUZZ_ROOM, draw());
    } else {
        memcpy(made, one, *size);
        *size = LLVMFuzzerCustomMutator(made, *size, FUZZ_ROOM, draw());
    }
}

int main(int argc, char **argv)
{
    static uint8_t input[FUZZ_ROOM];
    const char *const wanted = getenv("CKPT_FUZZ_MUTANTS"), *good[GOOD];
    const int mutants = wanted != NULL ? atoi(wanted) : MUTANTS;
    int count = 0;
    size_t size = 0;
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        const int64_t before = fuzz_accepted;
        run(input, read_input(argv[i], input));
        if (mutants == 0) {
            printf("%s: %s\n", argv[i], fuzz_accepted > before ? "good" : fuzz_refusal);
        } else if (fuzz_accepted > before && count < GOOD) {
            good[count++] = argv[i];
        }
    }
    FUZZ_CHECK(mutants == 0 || count > 0 || fuzz_the_reader.seed != NULL, "no input is good");
    for (int i = 0; i < FUZZ_SEEDS && mutants > 0 && fuzz_the_reader.seed != NULL; i++) {
        const int64_t accepted = fuzz_accepted;
        run(input, fuzz_the_reader.seed(input, FUZZ_ROOM));
        FUZZ_CHECK(fuzz_accepted > accepted, "seed %d is refused: %s", i, fuzz_refusal);
    }
    const int64_t before = fuzz_accepted;
    for (int i = 0; i < mutants; i++) {
        make_mutant(good, count, input, &size);
        run(input, size);
    }
    const int accepted = (int)(fuzz_accepted - before);
    printf("%s: %d files, %d good; %d of %d mutants accepted\n", fuzz_the_reader.name, argc - 1, count, accepted,
           mutants);
    FUZZ_CHECK(mutants == 0 || (accepted > 0 && accepted < mutants), "changes are too few or too many");
    return 0;
}
