/* Workflow commands: what GitHub Actions shows at the head of a run. One line each; "%", line ends, and in properties
 * ":" and "," are escaped as the runner unescapes them (actions/toolkit, packages/core/src/command.ts). */
#include <string.h>

#include "viz/compare/compare_impl.h"

static void put_data(ckpt_text *text, const char *string, bool property)
{
    for (; *string != '\0'; string++) {
        const bool special =
            *string == '%' || *string == '\r' || *string == '\n' || (property && (*string == ':' || *string == ','));
        if (special) {
            ckpt_text_add(text, "%%%02X", (unsigned)(unsigned char)*string);
        } else {
            ckpt_text_put(text, string, 1);
        }
    }
}

static void begin(ckpt_text *text, const char *command, const ckpt_difference *d, const char *title)
{
    ckpt_text_add(text, "::%s file=", command);
    put_data(text, d->fresh->source, true);
    ckpt_text_add(text, ",title=");
    put_data(text, title, true);
    ckpt_text_add(text, "::");
}

void ckpt_compare_annotations(const ckpt_compare_report *report, ckpt_text *text)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    for (int i = 0; i < report->count; i++) {
        const ckpt_difference *const d = &report->difference[i];
        for (int k = 0; k < d->limit_count; k++) {
            const ckpt_limit_result *const r = &d->limit[k];
            if (r->state != CKPT_LIMIT_EXCEEDED) {
                continue;
            }
            begin(text, report->options.warn_only ? "warning" : "error", d, r->limit->text);
            put_data(text, r->text, false);
            for (int b = 0; b < r->because_count; b++) {
                put_data(text, "\n", false);
                put_data(text, r->because[b].text, false);
            }
            ckpt_text_add(text, "\n");
        }
        const char *const verdict = ckpt_compare_verdict(d, &arena);
        text->failed = text->failed || verdict == NULL;
        begin(text, d->compared ? "notice" : "error", d, d->compared ? "ckpt-compare" : "not comparable");
        put_data(text, verdict != NULL ? verdict : "", false);
        ckpt_text_add(text, "\n");
    }
    ckpt_arena_fini(&arena);
}
