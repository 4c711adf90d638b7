/* How long a picture of many boxes takes in every format: bench_draw [BOXES], by default 20,000; columns of stays as in
 * an address map, four inks, a title each. Median of seven runs, least and most; processor time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "viz/draw/draw.h"

enum { RUNS = 7, WIDTH = 960, HEIGHT = 640 };

static int compare_ms(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fill(ckpt_box *box, int count)
{
    static const ckpt_colour_role inks[] = {CKPT_ROLE_ACTIVATIONS, CKPT_ROLE_SAVED, CKPT_ROLE_GRADIENTS,
                                            CKPT_ROLE_RECOMPUTE};
    unsigned random = 1;
    for (int i = 0; i < count; i++) {
        random = random * 1664525 + 1013904223;
        const double at = (double)i / count;
        box[i] = (ckpt_box){.x = at * WIDTH,
                            .y = (double)(random >> 8) / (1 << 24) * HEIGHT,
                            .width = (double)(random >> 20) / 16,
                            .height = (double)(random >> 4 & 15) + 0.1,
                            .role = inks[random >> 30],
                            .title = "h.3.attention.key (12.6 MB): kept for h.3.attention.scores/backward"};
    }
}

static bool draw(const char *format, const ckpt_box *box, int count, double *ms, size_t *bytes)
{
    const clock_t start = clock();
    ckpt_err err = {0};
    ckpt_arena scratch;
    ckpt_text text;
    ckpt_arena_init(&scratch);
    ckpt_text_init(&text);
    const ckpt_renderer *const renderer = ckpt_renderer_find(format);
    ckpt_canvas canvas = {
        .renderer = renderer, .scratch = &scratch, .width = WIDTH, .height = HEIGHT, .color = renderer->cells};
    ckpt_code code = renderer->open(&canvas, "boxes", "", &err);
    if (code == CKPT_OK) {
        renderer->boxes(&canvas, box, count);
        code = renderer->close(&canvas, &text, &err);
    }
    *bytes = text.length;
    ckpt_text_fini(&text);
    ckpt_arena_fini(&scratch);
    *ms = (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC;
    if (code != CKPT_OK) {
        fprintf(stderr, "bench_draw: %s\n", err.msg);
    }
    return code == CKPT_OK;
}

int main(int argc, char **argv)
{
    static const char *const formats[] = {"svg", "png", "pdf", "txt"};
    const int count = argc > 1 ? atoi(argv[1]) : 20000;
    ckpt_box *const box = ckpt_memory_get((size_t)(count > 0 ? count : 1) * sizeof *box);
    if (box == NULL || count < 1) {
        fprintf(stderr, "bench_draw: found %d boxes, wanted a number there is memory for\n", count);
        ckpt_memory_put(box);
        return 2;
    }
    fill(box, count);
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        double ms[RUNS];
        size_t bytes = 0;
        for (int run = 0; run < RUNS; run++) {
            if (!draw(formats[f], box, count, &ms[run], &bytes)) {
                ckpt_memory_put(box);
                return 3;
            }
        }
        qsort(ms, RUNS, sizeof ms[0], compare_ms);
        printf("%s  %d boxes  %7.1f ms (%.1f to %.1f)  %zu bytes\n", formats[f], count, ms[RUNS / 2], ms[0],
               ms[RUNS - 1], bytes);
    }
    ckpt_memory_put(box);
    return 0;
}
