#include "programs/train/append.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void ckpt_append_begin(ckpt_append *log, FILE *file)
{
    *log = (ckpt_append){.file = file};
    setvbuf(file, NULL, _IONBF, 0);
}

void ckpt_append_row(ckpt_append *log, const void *bytes, size_t length)
{
    const off_t start = ftello(log->file); /* -1: no regular file */
    errno = 0;
    if (fwrite(bytes, 1, length, log->file) == length) {
        return;
    }
    log->reason = log->lost++ == 0 ? errno : log->reason;
    clearerr(log->file);
    if (start >= 0 && fseeko(log->file, start, SEEK_SET) == 0 && ftruncate(fileno(log->file), start) != 0) {
        return; /* a device, which has no length */
    }
}

ckpt_code ckpt_append_end(ckpt_append *log, const char *path, ckpt_err *err)
{
    if (log->file == NULL) {
        return CKPT_OK;
    }
    const int closed = fclose(log->file);
    const int reason = log->lost > 0 ? log->reason : errno;
    log->file = NULL;
    if (closed == 0 && log->lost == 0) {
        return CKPT_OK;
    }
    return CKPT_FAIL(err, CKPT_IO, "%.200s: cannot write: %s: %d row%s of the log %s missing", path, strerror(reason),
                     log->lost, log->lost == 1 ? "" : "s", log->lost == 1 ? "is" : "are");
}
