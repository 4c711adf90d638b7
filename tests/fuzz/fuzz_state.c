/* The first line of a training state, against a small network that it may be of. */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

#include "core/base/file.h"
#include "executor/state/state_impl.h"
#include "tests/support/support_network.h"

/* Of a network of one layer, as far as headers look at it. */
static ckpt_program program;

/* Once: seeds may be wanted before it is begun. */
static void make_program(void)
{
    static test_model m;
    if (program.lowered != NULL) {
        return;
    }
    test_model_rows(&m, 2, 3);
    test_layer(&m, "fc", "linear", "x", "features=3");
    test_layer(&m, "loss", "mse", "fc t", "");
    program.lowered = test_lower(&m);
}

static size_t make_header(uint8_t *bytes, size_t room)
{
    const ckpt_progress progress = {.seed = 7,
                                    .steps = 100,
                                    .last_loss = 0.5f,
                                    .validated = {.best = 0.25f, .stale = 2},
                                    .data = {"text, 1 file, 35149 bytes", "0123", "4567"}};
    ckpt_text text;
    make_program();
    ckpt_text_init(&text);
    FUZZ_CHECK(ckpt_state_header_add(&program, &progress, &text, NULL) == CKPT_OK && text.length <= room, "no header");
    memcpy(bytes, text.bytes, text.length);
    const size_t size = text.length;
    ckpt_text_fini(&text);
    return size;
}

static ckpt_code read_state(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    const char *header = NULL;
    size_t length = 0;
    ckpt_progress progress, again;
    ckpt_text text;
    CKPT_TRY(ckpt_file_read(path, arena, &header, &length, err));
    CKPT_TRY(ckpt_state_header_read(&program, header, true, path, &progress, err));
    ckpt_text_init(&text);
    ckpt_code code = ckpt_state_header_add(&program, &progress, &text, err);
    FUZZ_CHECK(code == CKPT_OK, "%s", err->msg);
    code = ckpt_state_header_read(&program, text.bytes, true, path, &again, err);
    FUZZ_CHECK(code == CKPT_OK, "was read, but not what was written of it: %s: %s", err->msg, text.bytes);
    FUZZ_CHECK(again.seed == progress.seed && again.steps == progress.steps &&
                   strcmp(again.data.about, progress.data.about) == 0,
               "another state: %s", text.bytes);
    ckpt_text_fini(&text);
    return CKPT_OK;
}

const fuzz_reader fuzz_the_reader = {
    .name = "state", .split = fuzz_split_text, .read = read_state, .begin = make_program, .seed = make_header};
