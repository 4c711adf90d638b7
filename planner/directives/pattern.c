/* Shell-style patterns over dotted names, and names close to a pattern that matches nothing. */
#include <ctype.h>
#include <fnmatch.h>
#include <string.h>

#include "planner/directives/units.h"

enum { LENGTH_MAX = 255, CLOSE = 3, LOOKED_AT = 4096 };

/* fnmatch knows names with slashes. */
static bool slashed(char to[LENGTH_MAX + 1], const char *from, int length)
{
    if (length > LENGTH_MAX) {
        return false;
    }
    for (int i = 0; i < length; i++) {
        to[i] = from[i];
        if (from[i] == '.') {
            to[i] = '/';
        }
    }
    to[length] = '\0';
    return true;
}

bool ckpt_pattern_matches(const char *pattern, const char *name, int length)
{
    char a[LENGTH_MAX + 1];
    char b[LENGTH_MAX + 1];
    return strlen(pattern) <= LENGTH_MAX && slashed(a, pattern, (int)strlen(pattern)) && slashed(b, name, length) &&
           fnmatch(a, b, FNM_PATHNAME) == 0;
}

/* Letters to add, drop or change. A "*" stands for any number of a copy. */
static int distance(const char *a, const char *b, int length)
{
    int row[LENGTH_MAX + 1];
    for (int j = 0; j <= length; j++) {
        row[j] = j;
    }
    for (int i = 1; a[i - 1] != '\0'; i++) {
        int before = row[0];
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            const int change =
                before + (a[i - 1] != b[j - 1] && !(a[i - 1] == '*' && isdigit((unsigned char)b[j - 1])));
            before = row[j];
            const int shorter = row[j] < row[j - 1] ? row[j] : row[j - 1];
            row[j] = change < shorter + 1 ? change : shorter + 1;
        }
    }
    return row[length];
}

typedef struct likely {
    const char *name;
    int length, distance;
} likely;

static void look_at(likely best[CLOSE], likely found)
{
    for (int k = 0; k < CLOSE; k++) {
        if (best[k].name != NULL && best[k].length == found.length &&
            strncmp(best[k].name, found.name, (size_t)found.length) == 0) {
            return;
        }
    }
    int at = CLOSE;
    while (at > 0 && (best[at - 1].name == NULL || found.distance < best[at - 1].distance)) {
        if (at < CLOSE) {
            best[at] = best[at - 1];
        }
        at--;
    }
    if (at < CLOSE) {
        best[at] = found;
    }
}

ckpt_code ckpt_pattern_close(const ckpt_graph *graph, const char *pattern, ckpt_arena *out, const char **close,
                             ckpt_err *err)
{
    likely best[CLOSE] = {{NULL, 0, 0}};
    for (int o = 0, looked = 0; o < graph->op_count && looked < LOOKED_AT; o++) {
        const char *const layer = graph->op[o].layer;
        for (int i = 1; graph->op[o].phase == CKPT_FORWARD && layer != NULL && layer[0] != '\0' && i <= LENGTH_MAX;
             i++) {
            if (layer[i] == '\0' || layer[i] == '.') {
                look_at(best, (likely){layer, i, distance(pattern, layer, i)});
                looked++;
            }
            if (layer[i] == '\0') {
                break;
            }
        }
    }
    *close = "";
    for (int k = 0; k < CLOSE && best[k].name != NULL && *close != NULL; k++) {
        *close = ckpt_arena_format(out, "%s%s%.*s", *close, k > 0 ? ", " : "", best[k].length, best[k].name);
    }
    return *close != NULL ? CKPT_OK : CKPT_FAIL(err, CKPT_NO_MEMORY, "names like %.80s", pattern);
}
