/* Traces as comma-separated values (RFC 4180): a head, then one line per event. Times in nanoseconds,
 * sizes in bytes. */
#include <inttypes.h>
#include <string.h>

#include "viz/draw/draw.h"
#include "viz/draw/words.h"
#include "viz/timeline/view.h"

static void put_event(const ckpt_trace *trace, int number, const ckpt_event *event, bool variants, ckpt_text *out)
{
    ckpt_bands bands;
    ckpt_event_bands(trace, event, &bands);
    ckpt_text_add(out, "%d,%s,%d,", number, trace->measured ? "measured" : "predicted", event->step);
    ckpt_words_csv(out, event->name);
    ckpt_text_put(out, ",", 1);
    ckpt_words_csv(out, event->layer != NULL ? event->layer : "");
    ckpt_text_put(out, ",", 1);
    ckpt_words_csv(out, event->stream != NULL ? event->stream : "");
    ckpt_text_add(out, ",%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%d,%" PRId64,
                  ckpt_span_name(event->span), event->start_ns, event->end_ns, event->size_bytes, event->address,
                  event->kernel_ns, event->launches, bands.planned);
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        ckpt_text_add(out, ",%" PRId64, event->bytes[c]);
    }
    if (variants) {
        ckpt_text_put(out, ",", 1);
        ckpt_words_csv(out, event->variant != NULL ? event->variant : "");
        ckpt_text_add(out, ",%s", event->inexact ? "false" : "true");
    }
    ckpt_text_put(out, "\r\n", 2);
}

ckpt_code ckpt_view_csv(const ckpt_trace *const *trace, int trace_count, ckpt_text *text, ckpt_err *err)
{
    ckpt_text_add(text, "trace,kind,step,name,layer,stream,phase,start_ns,end_ns,size_bytes,address,kernel_ns,launches,"
                        "in_use_bytes");
    for (int c = 0; c < CKPT_CATEGORY_COUNT; c++) {
        ckpt_text_add(text, ",%s_bytes", ckpt_category_name((ckpt_category)c));
    }
    bool variants = false;
    for (int i = 0; i < trace_count; i++) {
        for (int k = 0; k < trace[i]->event_count; k++) {
            variants = variants || trace[i]->event[k].variant != NULL;
        }
    }
    ckpt_text_add(text, "%s\r\n", variants ? ",variant,exact" : "");
    for (int i = 0; i < trace_count; i++) {
        for (int k = 0; k < trace[i]->event_count; k++) {
            put_event(trace[i], i + 1, &trace[i]->event[k], variants, text);
        }
    }
    return ckpt_text_end(text, err);
}
