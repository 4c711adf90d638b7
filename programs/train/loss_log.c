/* Rows are compared as text: the same run writes the same characters. */
#include "programs/train/loss_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROW_MAX = 128 };

static const char header[] = "step,loss,loss_hex,validation,accuracy\n";

/* The part of a row that a state knows. */
static void make_row(uint64_t step, float loss, char row[ROW_MAX])
{
    snprintf(row, ROW_MAX, "%" PRIu64 ",%.9g,%a,", step, (double)loss, (double)loss);
}

/* The end of the row of `step`, where the log continues. */
static ckpt_code find_end(ckpt_loss_log *log, uint64_t step, float loss, off_t *end, ckpt_err *err)
{
    char row[ROW_MAX], wanted[ROW_MAX];
    make_row(step, loss, wanted);
    if (fgets(row, sizeof row, log->file) == NULL || strcmp(row, header) != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: no log of losses: its first line is not %.*s", log->path,
                         (int)sizeof header - 2, header);
    }
    *end = ftello(log->file);
    bool found = step == 0;
    log->step = step;
    for (log->row = *end; fgets(row, sizeof row, log->file) != NULL; log->row = ftello(log->file)) {
        if (step == 0) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: has rows, but the state is from before the first step",
                             log->path);
        }
        if (strtoull(row, NULL, 10) == step) {
            if (strncmp(row, wanted, strlen(wanted)) != 0) {
                return CKPT_FAIL(err, CKPT_BAD_INPUT,
                                 "%s: the log of another run: step %" PRIu64
                                 " is \"%.*s\" there and \"%.*s\" in the state",
                                 log->path, step, (int)strcspn(row, "\n"), row, (int)strlen(wanted) - 1, wanted);
            }
            *end = ftello(log->file);
            found = true;
            break;
        }
    }
    if (!found) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: has no row of step %" PRIu64 ", where the state goes on", log->path,
                         step);
    }
    return CKPT_OK;
}

static ckpt_code cannot_write(const char *path, ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_IO, "%s: cannot write: %s", path, strerror(errno));
}

static ckpt_code begin(ckpt_loss_log *log, bool goes_on, uint64_t step, float loss, ckpt_err *err)
{
    off_t end = 0;
    setvbuf(log->file, log->buffer, _IOFBF, sizeof log->buffer);
    if (!goes_on) {
        fputs(header, log->file);
        return fflush(log->file) == 0 ? CKPT_OK : cannot_write(log->path, err);
    }
    CKPT_TRY(find_end(log, step, loss, &end, err));
    if (fseeko(log->file, end, SEEK_SET) != 0 || ftruncate(fileno(log->file), end) != 0) {
        return cannot_write(log->path, err);
    }
    return CKPT_OK;
}

ckpt_code ckpt_loss_log_open(ckpt_loss_log *log, const char *path, bool resumed, uint64_t step, float loss,
                             ckpt_err *err)
{
    struct stat about;
    const bool goes_on = resumed && stat(path, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
    log->path = path;
    log->step = 0;
    log->file = fopen(path, goes_on ? "r+" : "w");
    if (log->file == NULL) {
        return cannot_write(path, err);
    }
    const ckpt_code code = begin(log, goes_on, step, loss, err);
    if (code != CKPT_OK) {
        fclose(log->file);
        log->file = NULL;
    }
    return code;
}

void ckpt_loss_log_add(ckpt_loss_log *log, uint64_t step, float loss, double validation, double accuracy)
{
    if (log->file == NULL) {
        return;
    }
    char row[ROW_MAX];
    if (step == log->step && fseeko(log->file, log->row, SEEK_SET) != 0) {
        return; /* the file takes no rows; the stream remembers */
    }
    make_row(step, loss, row);
    fputs(row, log->file);
    if (!isnan(validation)) {
        fprintf(log->file, "%.9g", validation);
    }
    fputs(",", log->file);
    if (!isnan(accuracy)) {
        fprintf(log->file, "%.6g", accuracy);
    }
    fputs("\n", log->file);
    fflush(log->file); /* a failure is remembered by the stream */
}

ckpt_code ckpt_loss_log_close(ckpt_loss_log *log, ckpt_err *err)
{
    if (log->file == NULL) {
        return CKPT_OK;
    }
    const bool failed = ferror(log->file) != 0;
    const bool closed = fclose(log->file) == 0;
    log->file = NULL;
    return closed && !failed ? CKPT_OK : CKPT_FAIL(err, CKPT_IO, "%s: the log could not be written", log->path);
}
