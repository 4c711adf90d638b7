/* Names of a Chrome trace's events, and putting events into the timeline. */
#include <string.h>

#include "imports/chrome_impl.h"

const char *ckpt_chrome_name(ckpt_slice name, const char *prefix, ckpt_arena *arena)
{
    char *const text = ckpt_slice_text(name, arena);
    const size_t length = strlen(prefix);
    return text != NULL && strncmp(text, prefix, length) == 0 && text[length] != '\0' ? text + length : text;
}

const char *ckpt_chrome_op_name(const ckpt_chrome_span *op, ckpt_arena *arena)
{
    return ckpt_chrome_name(op->name, "autograd::engine::evaluate_function: ", arena);
}

const char *ckpt_chrome_layer_name(const ckpt_chrome_place *place, ckpt_arena *arena)
{
    return place != NULL && place->layer != NULL ? ckpt_chrome_name(place->layer->name, "nn.Module: ", arena) : "";
}

ckpt_code ckpt_chrome_in_file(const ckpt_chrome_import *in, ckpt_code code)
{
    if (code != CKPT_OK && code != CKPT_NO_MEMORY) {
        ckpt_err_at(in->err, "%.200s", in->chrome->scan.source);
    }
    return code;
}

ckpt_code ckpt_chrome_put(ckpt_chrome_import *in, const ckpt_event *event)
{
    if (event->name == NULL || event->layer == NULL || event->stream == NULL) {
        return CKPT_FAIL(in->err, CKPT_NO_MEMORY, "%.200s: no memory for a name", in->chrome->scan.source);
    }
    const ckpt_code code = ckpt_timeline_add(in->timeline, event, CKPT_CAT_OTHER, in->err);
    ckpt_arena_rewind(&in->scratch, in->empty);
    return ckpt_chrome_in_file(in, code);
}
