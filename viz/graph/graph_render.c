/* DOT text through Graphviz's libraries. */
#include "viz/graph/graph_draw_impl.h"

#include <gvc.h>
#include <stdbool.h>
#include <string.h>

/* The last argument of gvRenderData points to unsigned int up to Graphviz 12 and to size_t from 13 on. */
#define RENDER(context, graph, format, data, small, large)                                                             \
    gvRenderData((context), (graph), (format), (data),                                                                 \
                 _Generic(gvRenderData, int (*)(GVC_t *, graph_t *, const char *, char **, unsigned int *)             \
                          : (small), default                                                                           \
                          : (large)))

ckpt_code ckpt_dot_render(const char *dot, const char *format, ckpt_text *text, ckpt_err *err)
{
    ckpt_code code = CKPT_OK;
    unsigned int small = 0;
    size_t large = 0;
    char *data = NULL;
    bool laid_out = false;
    (void)agseterr(AGMAX); /* a library does not print */
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
    if (!laid_out || RENDER(context, graph, format, &data, &small, &large) != 0 || data == NULL) {
        const char *const said = aglasterr();
        code = CKPT_FAIL(err, CKPT_BAD_INPUT, "Graphviz cannot draw this graph as %s: %s", format,
                         said != NULL ? said : "it does not say why");
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
