/* Runs in another way than their op's own, in words: each by its name, and all together. */
#include "viz/timeline/variants.h"

#include <stdlib.h>
#include <string.h>

void ckpt_event_put(ckpt_text *text, const ckpt_event *event)
{
    ckpt_text_add(text, "%s", event->name);
    if (event->variant != NULL) {
        ckpt_text_add(text, " by %s%s", event->variant, event->inexact ? " (inexact)" : "");
    }
}

const char *ckpt_event_called(const ckpt_event *event, ckpt_arena *out)
{
    return event->variant == NULL
               ? event->name
               : ckpt_arena_format(out, "%s by %s%s", event->name, event->variant, event->inexact ? " (inexact)" : "");
}

bool ckpt_event_same_run(const ckpt_event *a, const ckpt_event *b)
{
    return strcmp(a->name, b->name) == 0 && (a->span == CKPT_SPAN_FREE) == (b->span == CKPT_SPAN_FREE) &&
           (a->variant == NULL ? b->variant == NULL : b->variant != NULL && strcmp(a->variant, b->variant) == 0);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* What an op does, as far as its name tells: the last part between dots that is no number, without the numbers in it
 * and what joins them, with what follows the last slash. "h.3.conv1_2/forward" is "conv/forward", "relu.7" is "relu". */
static const char *kind_of(const char *name, ckpt_arena *out)
{
    const char *const slash = strrchr(name, '/'), *const end = slash != NULL ? slash : name + strlen(name);
    const char *from = name, *to = end;
    for (const char *part = name, *stop = name; stop < end; part = stop + 1) {
        stop = part + strcspn(part, ".");
        stop = stop < end ? stop : end;
        if (strspn(part, "0123456789") < (size_t)(stop - part)) {
            from = part;
            to = stop;
        }
    }
    char *const kind = CKPT_NEW(out, char, (size_t)(to - from) + strlen(end) + 1);
    char *at = kind;
    for (const char *c = from; kind != NULL && c < to; c++) {
        if (!is_digit(*c)) {
            *at++ = *c;
        } else if (c > from && !is_digit(c[-1]) && at > kind && strchr("_-:", at[-1]) != NULL) {
            at--;
        }
    }
    if (kind == NULL || at == kind) {
        return kind == NULL ? NULL : name;
    }
    memcpy(at, end, strlen(end));
    return kind;
}

/* Runs of one kind in one way. */
typedef struct group {
    const char *kind, *variant;
    bool inexact;
    int count;
} group;

static int by_name(const void *a, const void *b)
{
    const group *const x = a, *const y = b;
    const int order = strcmp(x->kind, y->kind);
    const int variants = order != 0 ? order : strcmp(x->variant, y->variant);
    return variants != 0 ? variants : x->inexact - y->inexact;
}

static int by_count(const void *a, const void *b)
{
    const group *const x = a, *const y = b;
    return x->count != y->count ? y->count - x->count : by_name(a, b);
}

static int find_groups(const ckpt_trace *trace, group *found, ckpt_arena *out)
{
    int runs = 0, count = 0;
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const event = &trace->event[i];
        if (event->variant == NULL) {
            continue;
        }
        found[runs] = (group){kind_of(event->name, out), event->variant, event->inexact, 1};
        if (found[runs++].kind == NULL) {
            return -1;
        }
    }
    qsort(found, (size_t)runs, sizeof *found, by_name);
    for (int i = 0; i < runs; i++) {
        if (count > 0 && by_name(&found[count - 1], &found[i]) == 0) {
            found[count - 1].count++;
        } else {
            found[count++] = found[i];
        }
    }
    qsort(found, (size_t)count, sizeof *found, by_count);
    return count;
}

int ckpt_variants_say(const ckpt_trace *trace, int runs, const char *line[CKPT_VARIANT_LINES], ckpt_arena *out)
{
    int others = 0, inexact = 0, lines = 0, shown = 0;
    for (int i = 0; i < trace->event_count; i++) {
        others += trace->event[i].variant != NULL;
        inexact += trace->event[i].inexact;
    }
    if (others == 0) {
        return 0;
    }
    group *const found = CKPT_NEW(out, group, others);
    const int count = found != NULL ? find_groups(trace, found, out) : -1;
    line[lines++] = inexact > 0
                        ? ckpt_arena_format(out, "%d of %d runs in another way, %d inexact", others, runs, inexact)
                        : ckpt_arena_format(out, "%d of %d runs in another way", others, runs);
    const int most = count <= CKPT_VARIANT_LINES - 1 ? count : CKPT_VARIANT_LINES - 2;
    for (int i = 0; i < most; i++) {
        const group *const g = &found[i];
        line[lines++] =
            ckpt_arena_format(out, "%s %d × %s%s", g->kind, g->count, g->variant, g->inexact ? " (inexact)" : "");
        shown += g->count;
    }
    if (most < count) {
        line[lines++] = ckpt_arena_format(out, "and %d in %d more ways", others - shown, count - most);
    }
    bool failed = count < 0;
    for (int i = 0; i < lines; i++) {
        failed = failed || line[i] == NULL;
    }
    return failed ? -1 : lines;
}
