/* labels: unit */
/* Every renderer with what a file or a bug may hand it: hostile texts, sizes of zero and beyond all bounds, what is no
 * number; many boxes; the same bytes again; each allocation failing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support_test.h"
#include "viz/draw/draw.h"

static const char *const formats[] = {"svg", "png", "pdf", "txt"};
enum { FORMATS = sizeof formats / sizeof formats[0] };

typedef struct picture {
    ckpt_arena scratch;
    ckpt_canvas canvas;
    ckpt_text text;
    ckpt_err err;
} picture;

static void begin(picture *p, const char *format, int width, int height)
{
    *p = (picture){.err = {0}};
    ckpt_arena_init(&p->scratch);
    ckpt_text_init(&p->text);
    const ckpt_renderer *const renderer = ckpt_renderer_find(format);
    assert_non_null(renderer);
    p->canvas = (ckpt_canvas){.renderer = renderer,
                              .scratch = &p->scratch,
                              .width = width,
                              .height = height,
                              .cell_width = renderer->cells ? 8 : 1,
                              .cell_height = renderer->cells ? 16 : 1};
    CHECK_OK(renderer->open(&p->canvas, "a title", "about it", &p->err), p->err);
}

static void end(picture *p)
{
    CHECK_OK(p->canvas.renderer->close(&p->canvas, &p->text, &p->err), p->err);
    assert_false(p->text.failed);
}

static void fini(picture *p)
{
    ckpt_text_fini(&p->text);
    ckpt_arena_fini(&p->scratch);
}

static void boxes(picture *p, const ckpt_box *box, int count)
{
    p->canvas.renderer->boxes(&p->canvas, box, count);
}

static int occurrences(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) {
        count++;
    }
    return count;
}

/* ---- what comes out ---- */

/* Neighbours in a stack differ in lightness (CIE L* of the colour alone), and equal colours in their hatching. */
static double lightness(ckpt_colour_role role)
{
    const double c[3] = {ckpt_colour_role_looks[role].red, ckpt_colour_role_looks[role].green,
                         ckpt_colour_role_looks[role].blue};
    const double share[3] = {0.2126, 0.7152, 0.0722};
    double y = 0;
    for (int i = 0; i < 3; i++) {
        y += share[i] * (c[i] <= 0.04045 ? c[i] / 12.92 : pow((c[i] + 0.055) / 1.055, 2.4));
    }
    return 116 * cbrt(y) - 16;
}

static void roles_are_told_apart(void **state)
{
    static const ckpt_colour_role shown[] = {CKPT_ROLE_ACTIVATIONS, CKPT_ROLE_SAVED,     CKPT_ROLE_GRADIENTS,
                                             CKPT_ROLE_WORKSPACE,   CKPT_ROLE_RECOMPUTE, CKPT_ROLE_OFFLOADED};
    enum { SHOWN = sizeof shown / sizeof shown[0] };
    for (int i = 0; i < SHOWN; i++) {
        const ckpt_colour_role_look *const a = &ckpt_colour_role_looks[shown[i]];
        CHECK(fabs(lightness(shown[i]) - lightness(a->text)) > 45, "words on colour role %d", (int)shown[i]);
        for (int k = i + 1; k < SHOWN; k++) {
            const ckpt_colour_role_look *const b = &ckpt_colour_role_looks[shown[k]];
            CHECK(strcmp(a->rgb, b->rgb) != 0 && strcmp(a->letter, b->letter) != 0 && a->ansi != b->ansi,
                  "colour roles %d and %d", (int)shown[i], (int)shown[k]);
            CHECK(a->hatch != b->hatch || fabs(lightness(shown[i]) - lightness(shown[k])) > 30,
                  "colour roles %d and %d in grey", (int)shown[i], (int)shown[k]);
        }
    }
}

static void boxes_of_one_role_are_one_path(void **state)
{
    enum { COUNT = 20000 };
    ckpt_box *const box = test_calloc(COUNT, sizeof *box);
    for (int i = 0; i < COUNT; i++) {
        const ckpt_colour_role role = i % 2 == 0 ? CKPT_ROLE_ACTIVATIONS : CKPT_ROLE_WORKSPACE;
        box[i] = (ckpt_box){i % 200 * 4, (double)(i / 200) * 6, 4, 6, role, NULL};
    }
    picture p;
    begin(&p, "svg", 800, 600);
    boxes(&p, box, COUNT);
    end(&p);
    CHECK(occurrences(p.text.bytes, "<path") == 2, "%d paths, wanted one per colour role",
          occurrences(p.text.bytes, "<path"));
    CHECK(occurrences(p.text.bytes, "z") >= COUNT, "boxes are missing");
    CHECK(p.text.length < 30 * COUNT, "%zu bytes for %d boxes", p.text.length, (int)COUNT);
    fini(&p);
    test_free(box);
}

/* The corner, width and height of the only box in an SVG, in pixels. */
static void read_box(const char *svg, double *x, double *y, double *width, double *height)
{
    const char *const d = strstr(svg, " d=\"m");
    assert_non_null(d);
    assert_int_equal(sscanf(d, " d=\"m%lf %lfh%lfv%lf", x, y, width, height), 4);
}

static void a_speck_shows(void **state)
{
    static const double sizes[][2] = {{0, 0}, {1e-9, 1e-9}, {0.01, 50}, {50, 0.01}, {0, 3}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const ckpt_box box = {100, 96, sizes[i][0], sizes[i][1], CKPT_ROLE_GRADIENTS, NULL};
        picture p;
        begin(&p, "svg", 200, 200);
        boxes(&p, &box, 1);
        end(&p);
        double x = 0, y = 0, width = 0, height = 0;
        read_box(p.text.bytes, &x, &y, &width, &height);
        CHECK(width >= 0.5 && height >= 0.5 && width <= sizes[i][0] + 1 && height <= sizes[i][1] + 1,
              "%g x %g is drawn %g x %g", sizes[i][0], sizes[i][1], width, height);
        CHECK(x <= 100.1 && x + width >= 99.9 + sizes[i][0] - 0.6, "%g x %g is drawn at %g", sizes[i][0], sizes[i][1],
              x);
        fini(&p);
        begin(&p, "txt", 400, 400);
        boxes(&p, &box, 1);
        p.canvas.color = true;
        end(&p);
        CHECK(strstr(p.text.bytes, "\033[") != NULL, "a terminal does not show %g x %g", sizes[i][0], sizes[i][1]);
        fini(&p);
    }
}

static void equal_neighbours_stay_apart(void **state)
{
    const ckpt_box box = {10, 10, 20, 30, CKPT_ROLE_ACTIVATIONS, NULL};
    picture p;
    begin(&p, "svg", 100, 100);
    boxes(&p, &box, 1);
    end(&p);
    double x = 0, y = 0, width = 0, height = 0;
    read_box(p.text.bytes, &x, &y, &width, &height);
    CHECK(x == 10 && y == 10 && width < 20 && width > 19 && height < 30 && height > 29, "%g %g %g %g", x, y, width,
          height);
    fini(&p);
}

/* Hatched where it is large enough to be seen, and the pattern is there once. */
static void hatching(void **state)
{
    const ckpt_box box[] = {{0, 0, 50, 50, CKPT_ROLE_RECOMPUTE, NULL},
                            {60, 0, 3, 50, CKPT_ROLE_RECOMPUTE, NULL},
                            {80, 0, 50, 50, CKPT_ROLE_RECOMPUTE, NULL},
                            {140, 0, 50, 50, CKPT_ROLE_ACTIVATIONS, NULL}};
    const ckpt_point corner[3] = {{0, 100}, {50, 100}, {50, 150}};
    picture p;
    begin(&p, "svg", 200, 200);
    boxes(&p, box, 4);
    p.canvas.renderer->area(&p.canvas, corner, 3, CKPT_ROLE_RECOMPUTE);
    end(&p);
    assert_int_equal(occurrences(p.text.bytes, "<pattern"), 1);
    assert_int_equal(occurrences(p.text.bytes, "url(#ckpt-hatch-"), 2); /* both large boxes together, and the area */
    assert_int_equal(occurrences(p.text.bytes, ckpt_colour_role_looks[CKPT_ROLE_RECOMPUTE].rgb),
                     2); /* thin box and pattern */
    fini(&p);
}

static void titles_are_text(void **state)
{
    char longest[20001];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    char turned[811] = "";
    for (int i = 0; i < 810; i += 3) {
        memcpy(turned + i, "\xe2\x86\x92", 3);
    }
    const ckpt_box box[] = {{0, 0, 20, 20, CKPT_ROLE_SAVED, "</title></path><script>alert(1)</script>&\"'"},
                            {30, 0, 20, 20, CKPT_ROLE_SAVED, "\x01\x1b[31m \xff\xc3 \xe2\x80\xae \xed\xa0\x80"},
                            {60, 0, 20, 20, CKPT_ROLE_SAVED, longest},
                            {90, 0, 20, 20, CKPT_ROLE_SAVED, turned},
                            {120, 0, 20, 20, CKPT_ROLE_SAVED, ""},
                            {150, 0, 0.1, 20, CKPT_ROLE_SAVED, "too thin for a pointer"}};
    picture p;
    begin(&p, "svg", 200, 200);
    boxes(&p, box, 6);
    end(&p);
    const char *const svg = p.text.bytes;
    CHECK(strstr(svg, "<script") == NULL && strstr(svg, "&lt;script&gt;") != NULL, "markup in a title");
    CHECK(strstr(svg, "too thin") == NULL, "a title nobody can reach");
    CHECK(occurrences(svg, "<title>") == 6 && occurrences(svg, "</title>") == 6, "titles do not balance");
    CHECK(p.text.length < 5000, "%zu bytes", p.text.length);
    for (const char *c = svg; *c != '\0'; c++) {
        CHECK(*c == '\n' || ckpt_utf8_length(c) > 0 || ((unsigned char)*c & 0xC0) == 0x80, "byte %02x in the SVG",
              (unsigned)(unsigned char)*c);
    }
    fini(&p);
}

/* ---- the terminal ---- */

/* The dots of a picture of 8 x 4 cells, numbered by Unicode: 1 2 3 7 go down on the left, 4 5 6 8 on the right. */
static void read_dots(const char *text, bool dot[16][16])
{
    static const int down[8] = {0, 1, 2, 0, 1, 2, 3, 3}, right[8] = {0, 0, 0, 1, 1, 1, 0, 1};
    int column = 0, row = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '\n') {
            column = 0;
            row++;
        } else if (*c == ' ') {
            column++;
        } else {
            CHECK(c[0] == 0xE2 && (c[1] & 0xFC) == 0xA0 && column < 8 && row < 4, "byte %02x in row %d", c[0], row);
            const int bits = (c[1] & 3) << 6 | (c[2] & 0x3F);
            for (int i = 0; i < 8; i++) {
                dot[row * 4 + down[i]][column * 2 + right[i]] = (bits >> i & 1) != 0;
            }
            column++;
            c += 2;
        }
    }
}

static void slanting_lines_are_dots(void **state)
{
    const ckpt_point line[2] = {{0, 63}, {63, 0}};
    const ckpt_pen pen = {CKPT_ROLE_BUDGET, 1, 0};
    picture p;
    begin(&p, "txt", 64, 64);
    p.canvas.renderer->line(&p.canvas, line, 2, &pen);
    end(&p);
    bool dot[16][16] = {{false}};
    read_dots(p.text.bytes, dot);
    for (int x = 0; x < 16; x++) {
        int found = 0;
        for (int y = 0; y < 16; y++) {
            found += dot[y][x];
            CHECK(!dot[y][x] || abs(x + y - 15) <= 1, "a dot at %d, %d, off the line", x, y);
        }
        CHECK(found >= 1 && found <= 2, "%d dots in column %d", found, x);
    }
    fini(&p);
}

static void ascii_has_something_for_everything(void **state)
{
    const ckpt_point line[3] = {{0, 63}, {40, 30}, {63, 30}};
    const ckpt_font font = {12, false, CKPT_ROLE_BLACK, -1};
    for (int color = 0; color < 2; color++) {
        picture p;
        begin(&p, "txt", 64, 80);
        p.canvas.ascii = true;
        p.canvas.color = color == 1;
        p.canvas.renderer->line(&p.canvas, line, 3, &(ckpt_pen){CKPT_ROLE_BUDGET, 1, 0});
        p.canvas.renderer->text(&p.canvas, 0, 8, &font, "é→… \xf0\x9f\x98\x80");
        const ckpt_box box = {0, 64, 16, 10, CKPT_ROLE_SAVED, NULL};
        boxes(&p, &box, 1);
        end(&p);
        for (const char *c = p.text.bytes; *c != '\0'; c++) {
            CHECK((unsigned char)*c < 0x80, "byte %02x", (unsigned)(unsigned char)*c);
        }
        if (color == 0) {
            assert_string_equal(strtok(p.text.bytes, "\n"), "?>~ ?");
            assert_string_equal(strtok(NULL, "\n"), "     ---");
            (void)strtok(NULL, "\n");
            (void)strtok(NULL, "\n");
            assert_string_equal(strtok(NULL, "\n"), "ss");
        }
        fini(&p);
    }
}

static void a_terminal_is_never_wider_than_it_is(void **state)
{
    for (int color = 0; color < 2; color++) {
        picture p;
        begin(&p, "txt", 40 * 8, 10 * 16);
        p.canvas.color = color == 1;
        const ckpt_font font = {12, true, CKPT_ROLE_BLACK, 0};
        const ckpt_box box = {-100, -100, 5000, 5000, CKPT_ROLE_SAVED, NULL};
        const ckpt_point line[2] = {{-50, 40}, {9000, 40}};
        boxes(&p, &box, 1);
        p.canvas.renderer->text(&p.canvas, 300, 40, &font, "a long text that reaches over the right end of the line");
        p.canvas.renderer->line(&p.canvas, line, 2, &(ckpt_pen){CKPT_ROLE_BUDGET, 2, 4});
        end(&p);
        int columns = 0, rows = 0;
        for (const char *c = p.text.bytes; *c != '\0'; c++) {
            if (*c == '\033') {
                c = strchr(c, 'm');
            } else if (*c == '\n') {
                CHECK(columns <= 40, "%d columns", columns);
                columns = 0;
                rows++;
            } else {
                columns += ((unsigned char)*c & 0xC0) != 0x80;
            }
        }
        assert_int_equal(rows, 10);
        fini(&p);
    }
}

/* ---- what goes in ---- */

/* Everything a layout could get wrong, at once. */
static void draw_odd_things(picture *p)
{
    static const double odd[] = {0, -1, 0.05, 1e-300, 1e9, -1e9, 1e308, -1e308, NAN, INFINITY, -INFINITY, 77};
    enum { ODD = sizeof odd / sizeof odd[0] };
    static const char *const texts[] = {"",     "\x01\x02\x7f",     "\xff\xfe",     "%s%n",    "</text>&<>\"'",
                                        "\033", "\xf0\x9f\x98\x80", "\xe2\x80\xae", "ordinary"};
    const ckpt_renderer *const r = p->canvas.renderer;
    for (int i = 0; i < ODD * ODD; i++) {
        const double a = odd[i / ODD], b = odd[i % ODD];
        const ckpt_colour_role role = (ckpt_colour_role)(i % CKPT_ROLE_COUNT);
        const ckpt_box box[] = {{a, b, 10, 10, role, "x"}, {10, 10, a, b, role, NULL}};
        const ckpt_point point[] = {{a, b}, {b, a}, {20, a}, {b, 20}, {30, 30}};
        const ckpt_pen pen = {role, 1 + i % 3, i % 2 * 4};
        r->boxes(&p->canvas, box, 2);
        r->boxes(&p->canvas, box, 0);
        r->area(&p->canvas, point, 1 + i % 5, role);
        r->line(&p->canvas, point, 1 + i % 5, &pen);
        const ckpt_font font = {12, i % 2 == 0, role, i % 3 - 1};
        const char *const text = ckpt_canvas_fit(&p->canvas, &font, texts[i % 9], CKPT_ANY_WIDTH);
        if (text != NULL) {
            r->text(&p->canvas, a, b, &font, text);
        }
    }
}

static void odd_things(void **state)
{
    for (int f = 0; f < FORMATS; f++) {
        for (int mode = 0; mode < (strcmp(formats[f], "txt") == 0 ? 4 : 1); mode++) { /* of a terminal */
            picture p;
            begin(&p, formats[f], 320, 240);
            p.canvas.color = mode % 2 == 1;
            p.canvas.ascii = mode / 2 == 1;
            draw_odd_things(&p);
            end(&p);
            if (strcmp(formats[f], "svg") == 0) {
                CHECK(strstr(p.text.bytes, "nan") == NULL && strstr(p.text.bytes, "inf") == NULL, "no numbers");
            }
            fini(&p);
        }
    }
}

static void smallest_pictures(void **state)
{
    for (int f = 0; f < FORMATS; f++) {
        picture p;
        begin(&p, formats[f], 1, 1);
        draw_odd_things(&p);
        end(&p);
        fini(&p);
    }
}

static void the_same_bytes_again(void **state)
{
    for (int f = 0; f < FORMATS; f++) {
        picture once, recomputed;
        begin(&once, formats[f], 320, 240);
        draw_odd_things(&once);
        end(&once);
        begin(&recomputed, formats[f], 320, 240);
        draw_odd_things(&recomputed);
        end(&recomputed);
        CHECK(once.text.length == recomputed.text.length &&
                  memcmp(once.text.bytes, recomputed.text.bytes, once.text.length) == 0,
              "%s differs the second time", formats[f]);
        CHECK(strcmp(formats[f], "pdf") != 0 || strstr(once.text.bytes, "CreationDate") == NULL, "a date in the PDF");
        fini(&once);
        fini(&recomputed);
    }
}

static ckpt_code draw_in_need(void *context, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_text text;
    ckpt_arena_init(&scratch);
    ckpt_text_init(&text);
    const ckpt_renderer *const renderer = context;
    ckpt_canvas canvas = {.renderer = renderer, .scratch = &scratch, .width = 160, .height = 160};
    ckpt_code code = renderer->open(&canvas, "t", "a", err);
    if (code == CKPT_OK) {
        const ckpt_box box[] = {{0, 0, 30, 30, CKPT_ROLE_SAVED, "one"}, {40, 0, 30, 30, CKPT_ROLE_GRADIENTS, NULL}};
        const ckpt_point line[2] = {{0, 0}, {99, 50}};
        const ckpt_font font = {12, false, CKPT_ROLE_BLACK, -1};
        renderer->boxes(&canvas, box, 2);
        renderer->line(&canvas, line, 2, &(ckpt_pen){CKPT_ROLE_BUDGET, 1, 3});
        const char *const words = ckpt_canvas_fit(&canvas, &font, "some words", CKPT_ANY_WIDTH);
        if (words != NULL) {
            renderer->text(&canvas, 5, 80, &font, words);
        }
        code = renderer->close(&canvas, &text, err);
        if (code == CKPT_OK && words == NULL) {
            code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for words");
        }
        code = code == CKPT_OK ? ckpt_text_end(&text, err) : code;
    }
    ckpt_text_fini(&text);
    ckpt_arena_fini(&scratch);
    return code;
}

static void starved(void **state)
{
    for (int f = 0; f < FORMATS; f++) {
        const ckpt_renderer *const renderer = ckpt_renderer_find(formats[f]);
        CHECK(ckpt_test_starve(draw_in_need, (void *)(uintptr_t)renderer) > 0, "%s takes no memory", formats[f]);
    }
}

static void names(void **state)
{
    assert_null(ckpt_renderer_find("gif"));
    assert_null(ckpt_renderer_find(""));
    for (int f = 0; f < FORMATS; f++) {
        assert_non_null(strstr(ckpt_renderer_names(), formats[f]));
    }
}

/* Of a long name the two ends are what tells it from others, however wide the place is. */
static void long_names_keep_both_ends(void **state)
{
    for (int f = 0; f < FORMATS; f++) {
        picture p;
        begin(&p, formats[f], 320, 240);
        const ckpt_font font = {12, false, CKPT_ROLE_BLACK, -1};
        char name[5001];
        memset(name, 'x', sizeof name - 1);
        name[0] = 'A';
        name[4999] = 'Z';
        name[5000] = '\0';
        for (int width = 100; width <= 100000; width *= 10) {
            const char *const shown = ckpt_canvas_fit(&p.canvas, &font, name, width);
            assert_non_null(shown);
            const size_t length = strlen(shown);
            CHECK(shown[0] == 'A' && shown[length - 1] == 'Z' && strstr(shown, "x…x") != NULL,
                  "%s, %d pixels: %zu bytes, %.20s...%s", formats[f], width, length, shown, shown + length - 5);
            assert_true(p.canvas.renderer->measure(&p.canvas, &font, shown) <= width);
        }
        end(&p);
        fini(&p);
    }
}

/* In colours a cell of one colour role is a full block, also where a thin line of another one crosses it; one of two is a
 * lower part on the upper one. */
static void cells_of_two_roles(void **state)
{
    static const struct {
        ckpt_box box[2];
        const char *shown;
    } cases[] = {
        {{{0, 0, 8, 16, CKPT_ROLE_SAVED, NULL}, {0, 8, 0, 0, CKPT_ROLE_SAVED, NULL}}, "\033[0;38;5;74m█\033[0m\n"},
        {{{0, 0, 8, 16, CKPT_ROLE_SAVED, NULL}, {0, 12, 8, 2, CKPT_ROLE_GRADIENTS, NULL}}, "\033[0;38;5;74m█\033[0m\n"},
        {{{0, 0, 8, 16, CKPT_ROLE_SAVED, NULL}, {0, 10, 8, 6, CKPT_ROLE_GRADIENTS, NULL}},
         "\033[0;38;5;36;48;5;74m▃\033[0m\n"},
        {{{0, 0, 8, 6, CKPT_ROLE_SAVED, NULL}, {0, 0, 8, 4, CKPT_ROLE_SAVED, NULL}}, "\033[0;7;38;5;74m▅\033[0m\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        picture p;
        begin(&p, "txt", 8, 16);
        p.canvas.color = true;
        boxes(&p, &cases[i].box[0], 1);
        boxes(&p, &cases[i].box[1], 1);
        end(&p);
        assert_string_equal(p.text.bytes, cases[i].shown);
        fini(&p);
    }
}

/* What fontconfig keeps until the process ends. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig\n";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roles_are_told_apart),
        cmocka_unit_test(boxes_of_one_role_are_one_path),
        cmocka_unit_test(a_speck_shows),
        cmocka_unit_test(equal_neighbours_stay_apart),
        cmocka_unit_test(hatching),
        cmocka_unit_test(titles_are_text),
        cmocka_unit_test(slanting_lines_are_dots),
        cmocka_unit_test(ascii_has_something_for_everything),
        cmocka_unit_test(a_terminal_is_never_wider_than_it_is),
        cmocka_unit_test(odd_things),
        cmocka_unit_test(smallest_pictures),
        cmocka_unit_test(the_same_bytes_again),
        cmocka_unit_test(starved),
        cmocka_unit_test(names),
        cmocka_unit_test(long_names_keep_both_ends),
        cmocka_unit_test(cells_of_two_roles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
