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
static ckpt_code find_end(ckpt_loss_log *log, FILE *file, uint64_t step, float loss, off_t *end, ckpt_err *err)
{
    char row[ROW_MAX], wanted[ROW_MAX];
    make_row(step, loss, wanted);
    if (fgets(row, sizeof row, file) == NULL || strcmp(row, header) != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: no log of losses: its first line is not %.*s", log->path,
                         (int)sizeof header - 2, header);
    }
    *end = ftello(file);
    bool found = step == 0;
    log->step = step;
    for (log->row = *end; fgets(row, sizeof row, file) != NULL; log->row = ftello(file)) {
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
            *end = ftello(file);
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
    return CKPT_FAIL(err, CKPT_IO, "%.200s: cannot write: %s", path, strerror(errno));
}

static ckpt_code find_end_in(ckpt_loss_log *log, uint64_t step, float loss, off_t *end, ckpt_err *err)
{
    FILE *const file = fopen(log->path, "r");
    if (file == NULL) {
        return CKPT_FAIL(err, CKPT_IO, "%.200s: cannot read: %s", log->path, strerror(errno));
    }
    const ckpt_code code = find_end(log, file, step, loss, end, err);
    fclose(file);
    return code;
}

ckpt_code ckpt_loss_log_open(ckpt_loss_log *log, const char *path, bool resumed, uint64_t step, float loss,
                             ckpt_err *err)
{
    struct stat about;
    off_t end = 0;
    const bool goes_on = resumed && stat(path, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
    *log = (ckpt_loss_log){.path = path};
    CKPT_TRY(goes_on ? find_end_in(log, step, loss, &end, err) : CKPT_OK);
    FILE *const file = fopen(path, goes_on ? "r+" : "w");
    if (file == NULL) {
        return cannot_write(path, err);
    }
    ckpt_append_begin(&log->rows, file);
    if (!goes_on) {
        ckpt_append_row(&log->rows, header, sizeof header - 1);
    } else if (fseeko(file, end, SEEK_SET) != 0 || ftruncate(fileno(file), end) != 0) {
        log->rows.lost = 1;
        log->rows.reason = errno;
    }
    if (log->rows.lost > 0) {
        errno = log->rows.reason;
        const ckpt_code code = cannot_write(path, err);
        return ckpt_append_end(&log->rows, path, NULL) == CKPT_OK ? CKPT_OK : code;
    }
    return CKPT_OK;
}

void ckpt_loss_log_add(ckpt_loss_log *log, uint64_t step, float loss, double validation, double accuracy)
{
    char row[ROW_MAX], score[2][32] = {"", ""};
    if (log->rows.file == NULL || (step == log->step && step > 0 && fseeko(log->rows.file, log->row, SEEK_SET) != 0)) {
        return;
    }
    make_row(step, loss, row);
    if (!isnan(validation)) {
        snprintf(score[0], sizeof score[0], "%.9g", validation);
    }
    if (!isnan(accuracy)) {
        snprintf(score[1], sizeof score[1], "%.6g", accuracy);
    }
    const size_t length = strlen(row);
    snprintf(row + length, sizeof row - length, "%s,%s\n", score[0], score[1]);
    ckpt_append_row(&log->rows, row, strlen(row));
}

ckpt_code ckpt_loss_log_close(ckpt_loss_log *log, ckpt_err *err)
{
    return ckpt_append_end(&log->rows, log->path, err);
}
