/* One HTML file that needs nothing else. Its policy allows the one style and the one script that stand in it, by their
 * hashes, and no request. What comes from files stands in a data block in which no tag and no comment can begin. */
#include <math.h>
#include <string.h>

#include "viz/html/html_hash.h"
#include "viz/html/view_html_impl.h"

/* JSON in which no character has a meaning to HTML, nor to JavaScript beside strings: < > & and the two line ends of
 * Unicode. They stand in strings only, so an escape says the same. */
static void put_data(ckpt_text *text, const ckpt_text *json)
{
    const char *from = json->bytes, *const end = from + json->length;
    for (const char *c = from; c < end; c++) {
        const bool sign = *c == '<' || *c == '>' || *c == '&';
        const bool line = end - c > 2 && memcmp(c, "\xE2\x80", 2) == 0 && (c[2] == '\xA8' || c[2] == '\xA9');
        if (sign || line) {
            ckpt_text_put(text, from, (size_t)(c - from));
            ckpt_text_add(text, "\\u%04x", sign ? (unsigned)*c : 0x2000 + (unsigned)((unsigned char)c[2] - 0x80));
            c += line ? 2 : 0;
            from = c + 1;
        }
    }
    ckpt_text_put(text, from, (size_t)(end - from));
}

static void put_policy(ckpt_text *text)
{
    ckpt_text_add(text, "default-src 'none'; script-src ");
    ckpt_html_hash(text, ckpt_html_script, ckpt_html_script_size);
    ckpt_text_add(text, "; style-src ");
    ckpt_html_hash(text, ckpt_html_style, ckpt_html_style_size);
    ckpt_text_add(text, "; base-uri 'none'; form-action 'none'");
}

static void put_part(ckpt_text *text, const char *name, size_t length, const ckpt_text *json)
{
    if (strncmp(name, "policy", length) == 0) {
        put_policy(text);
    } else if (strncmp(name, "style", length) == 0) {
        ckpt_text_put(text, ckpt_html_style, ckpt_html_style_size);
    } else if (strncmp(name, "script", length) == 0) {
        ckpt_text_put(text, ckpt_html_script, ckpt_html_script_size);
    } else {
        put_data(text, json);
    }
}

/* The page with its @parts@ in their places. */
static void put_page(ckpt_text *text, const ckpt_text *json)
{
    const char *from = ckpt_html_page;
    for (const char *at = strchr(from, '@'); at != NULL; at = strchr(from, '@')) {
        const size_t length = strcspn(at + 1, "@");
        ckpt_text_put(text, from, (size_t)(at - from));
        put_part(text, at + 1, length, json);
        from = at + length + 2;
    }
    ckpt_text_put(text, from, strlen(from));
}

/* Series, lanes and words, as for a picture (view_draw.c); the page lays them out itself. */
static ckpt_code fill_view(ckpt_view *view, const ckpt_trace *const *trace, ckpt_err *err)
{
    CKPT_TRY(ckpt_series_make(trace, view->count, false, view->canvas.scratch, view->series, &view->base, err));
    const ckpt_trace *const base = view->series[view->base].trace;
    view->no_plan = ckpt_trace_follows_no_plan(base);
    view->budget = base->budget_bytes;
    view->ranges = view->series[view->base].ranges;
    CKPT_TRY(ckpt_view_find_lanes(view, err));
    CKPT_TRY(ckpt_view_find_residual(view, err));
    ckpt_view_say(view);
    return view->failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the page's words") : CKPT_OK;
}

ckpt_code ckpt_view_html(const ckpt_trace *const *trace, int trace_count, const ckpt_view_options *options,
                         ckpt_text *text, ckpt_err *err)
{
    static const ckpt_view_options defaults;
    options = options != NULL ? options : &defaults;
    if (trace_count < 1 || trace_count > CKPT_VIEW_TRACES) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found %d traces, wanted 1 to %d", trace_count, CKPT_VIEW_TRACES);
    }
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    ckpt_text json;
    ckpt_text_init(&json);
    ckpt_view view = {
        .canvas = {.renderer = ckpt_renderer_find("svg"), .scratch = &scratch, .width = 1e9, .cell_width = 1},
        .count = trace_count,
    };
    ckpt_code code = fill_view(&view, trace, err);
    if (code == CKPT_OK) {
        code = ckpt_html_data(&view, options, &json, err);
    }
    if (code == CKPT_OK) {
        put_page(text, &json);
        code = ckpt_text_end(text, err);
    }
    ckpt_text_fini(&json);
    ckpt_arena_fini(&scratch);
    return code;
}
