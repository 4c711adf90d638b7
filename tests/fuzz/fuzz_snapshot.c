/* PyTorch's memory snapshots, pickles: a trace is made of them, which our own reader takes. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/formats/trace.h"
#include "tests/support/support_snapshot.h"

static ckpt_code read_snapshot(const char *path, ckpt_arena *arena, ckpt_text *written, ckpt_err *err)
{
    ckpt_trace *trace = NULL;
    ckpt_test_notes[0] = '\0';
    CKPT_TRY(ckpt_import_snapshot(path, ckpt_test_take_note, arena, &trace, err));
    ckpt_trace_write(trace, written);
    return ckpt_text_end(written, err);
}

/* Everything that an allocator does, in a few entries. */
static const char made[] =
    "{'device_traces':[[{'action':'segment_alloc','addr':0,'size':4096,'stream':0,'time_us':1},"
    "{'action':'alloc','addr':0,'size':512,'stream':0,'time_us':2,'frames':[{'name':'forward','filename':'a.py','line':"
    "3}]},"
    "{'action':'alloc','addr':512,'size':256,'stream':7,'time_us':3,'frames':[]},"
    "{'action':'free_requested','addr':0,'size':512,'stream':0,'time_us':4},"
    "{'action':'free_completed','addr':0,'size':512,'stream':0,'time_us':5},"
    "{'action':'snapshot','addr':0,'size':0,'stream':0,'time_us':6},"
    "{'action':'oom','addr':0,'size':9999,'device_free':1,'stream':0,'time_us':7},"
    "{'action':'segment_unmap','addr':0,'size':4096,'stream':0,'time_us':8}]],"
    "'segments':[{'device':0,'address':0,'total_size':4096,'allocated_size':256,'stream':7,'segment_type':'small',"
    "'blocks':[{'address':512,'size':256,'requested_size':250,'state':'active_allocated','frames':[]},"
    "{'address':768,'size':3328,'requested_size':0,'state':'inactive','frames':[]}]}],"
    "'external_annotations':[{'name':'step','stage':'START','time_us':2,'device':0},"
    "{'name':'step','stage':'END','time_us':6,'device':0}]}";

static size_t make_snapshot(uint8_t *bytes, size_t room)
{
    static char pickle[CKPT_TEST_PICKLE_ROOM];
    const size_t length = ckpt_test_pickle(made, pickle);
    FUZZ_CHECK(length <= room, "no room for %zu bytes", length);
    memcpy(bytes, pickle, length);
    return length;
}

const fuzz_reader fuzz_the_reader = {
    .name = "snapshot", .split = fuzz_split_pickle, .writes = "trace", .read = read_snapshot, .seed = make_snapshot};
