/* DOT text through Graphviz's libraries. */
#include "viz/graph/graph_draw_impl.h"

#include <gvc.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/memory.h"

/* The last argument of gvRenderData points to unsigned int up to Graphviz 12 and to size_t from 13 on. */
#define RENDER(context, graph, format, data, small, large)                                                             \
    gvRenderData((context), (graph), (format), (data),                                                                 \
                 _Generic(gvRenderData, int (*)(GVC_t *, graph_t *, const char *, char **, unsigned int *)             \
                          : (small), default                                                                           \
                          : (large)))

/* What Graphviz said, its first words. A library does not print. */
static char said[200];

static int hear(char *words)
{
    const size_t length = strlen(said);
    const size_t count = strlen(words) < sizeof said - 1 - length ? strlen(words) : sizeof said - 1 - length;
    memcpy(said + length, words, count);
    said[length + count] = '\0';
    return 0;
}

/* What Graphviz maps and takes before it lays anything out: its own libraries, Pango, fonts, their thread and its heap
 * (measured: up to 130 MB of addresses, few of them used). Refused in between, it draws without fonts or waits for ever. */
enum { LIBRARY_BYTES = 160 << 20 };

ckpt_code ckpt_dot_render(const char *dot, const char *format, ckpt_text *text, ckpt_err *err)
{
    if (!ckpt_memory_is_room(LIBRARY_BYTES)) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for Graphviz and fonts");
    }
    ckpt_code code = CKPT_OK;
    unsigned int small = 0;
    size_t large = 0;
    char *data = NULL;
    bool laid_out = false;
    said[0] = '\0';
    (void)agseterrf(hear);
    (void)agseterr(AGWARN);
    /* One context for the life of the process: Graphviz's font plugin keeps a pointer to the last font name of whatever
     * context it served, and reads it again after that context is gone (2.43). Graphviz is not thread-safe anyway. */
    static GVC_t *context;
    context = context != NULL ? context : gvContext();
    graph_t *const graph = context != NULL ? agmemread(dot) : NULL;
    if (graph == NULL) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "Graphviz took no graph of %zu bytes", strlen(dot));
        goto done;
    }
    laid_out = gvLayout(context, graph, "dot") == 0;
    /* Without one of its own libraries it goes on, and guesses how wide texts are. */
    const bool drawn = laid_out && RENDER(context, graph, format, &data, &small, &large) == 0 && data != NULL;
    if (strstr(said, "Could not load") != NULL) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for Graphviz's libraries, or they are not whole: %s", said);
        goto done;
    }
    if (!drawn) {
        code = CKPT_FAIL(err, CKPT_BAD_INPUT, "Graphviz cannot draw this graph as %s: %s", format,
                         said[0] != '\0' ? said : "it does not say why");
        goto done;
    }
    ckpt_text_put(text, data, small > 0 ? small : large);
done:
    if (data != NULL) {
        gvFreeRenderData(data);
    }
    if (laid_out) {
        (void)gvFreeLayout(context, graph);
    }
    if (graph != NULL) {
        (void)agclose(graph);
    }
    return code == CKPT_OK ? ckpt_text_end(text, err) : code;
}
