/* Recognises the kind of a file: a pickle by the opcode that every pickle since protocol 2 begins with, JSON by keys
 * that only one tool writes. */
#include <string.h>

#include "core/base/file.h"
#include "imports/import.h"
#include "imports/import_impl.h"

enum { PICKLE_PROTO = 0x80 };

static ckpt_code recognise(const char *path, const char *bytes, size_t length, ckpt_import_kind *kind, ckpt_err *err)
{
    const size_t mark = length >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a byte order mark */
    const size_t first = mark + strspn(bytes + mark, " \t\r\n");
    const char begin = bytes[first];
    if (length > 0 && (unsigned char)bytes[0] == PICKLE_PROTO) {
        *kind = CKPT_IMPORT_SNAPSHOT;
    } else if (begin == '[' || (begin == '{' && strstr(bytes, "\"traceEvents\"") != NULL)) {
        *kind = CKPT_IMPORT_CHROME;
    } else if (begin == '{' && strstr(bytes, "\"nodes\"") != NULL && strstr(bytes, "\"schema\"") != NULL) {
        *kind = CKPT_IMPORT_EXECUTION;
    } else {
        const char *const found = length == 0                                  ? "an empty file"
                                  : (unsigned char)bytes[0] == 0x1f            ? "a gzip file (gunzip it first)"
                                  : length >= 2 && memcmp(bytes, "PK", 2) == 0 ? "a zip file"
                                  : begin == '{'                               ? "JSON without these keys"
                                                                               : "neither a pickle nor JSON";
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "%.200s: found %s, wanted PyTorch's memory snapshot (pickle), a Kineto or Chrome trace "
                         "(\"traceEvents\") or PyTorch's ExecutionTrace (\"schema\" and \"nodes\")",
                         ckpt_import_shown(path), found);
    }
    return CKPT_OK;
}

ckpt_code ckpt_import_recognise(const char *path, ckpt_import_kind *kind, ckpt_err *err)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    const char *bytes = NULL;
    size_t length = 0;
    ckpt_code code = ckpt_file_read(path, &arena, &bytes, &length, err);
    code = code != CKPT_OK ? code : recognise(path, bytes, length, kind, err);
    ckpt_arena_fini(&arena);
    return code;
}
