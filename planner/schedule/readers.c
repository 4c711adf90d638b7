#include "planner/schedule/readers.h"

ckpt_code ckpt_readers_find(const ckpt_graph *graph, ckpt_arena *out, int **from, int **reader, ckpt_err *err)
{
    size_t readers = (size_t)graph->outputs.count;
    for (int o = 0; o < graph->op_count; o++) {
        readers += (size_t)graph->op[o].reads.count + (size_t)graph->op[o].adds.count;
    }
    *from = CKPT_NEW(out, int, (size_t)graph->buffer_count + 2);
    *reader = CKPT_NEW(out, int, readers);
    if (*from == NULL || *reader == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "readers of %d buffers", graph->buffer_count);
    }
    for (int round = 0; round < 2; round++) {
        for (int o = 0; o <= graph->op_count; o++) {
            const ckpt_list none = {0};
            const bool end = o == graph->op_count;
            const ckpt_list *const list[] = {end ? &graph->outputs : &graph->op[o].reads,
                                             end ? &none : &graph->op[o].adds};
            for (int l = 0; l < 2; l++) {
                for (int i = 0; i < list[l]->count; i++) {
                    const int b = list[l]->at[i];
                    if (round == 0) {
                        (*from)[b + 2]++;
                    } else {
                        (*reader)[(*from)[b + 1]++] = o;
                    }
                }
            }
        }
        for (int b = 0; round == 0 && b < graph->buffer_count; b++) {
            (*from)[b + 2] += (*from)[b + 1];
        }
    }
    return CKPT_OK;
}
