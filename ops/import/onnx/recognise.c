/* What tells an ONNX file from others; also in builds that cannot read it. */
#include <stdio.h>
#include <sys/stat.h>

#include "ops/import/onnx/onnx.h"

enum { FIRST_BYTE = 0x08 }; /* field 1, ir_version, which is written first; no text begins so */

bool ckpt_onnx_is(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) {
        return false;
    }
    FILE *const file = fopen(path, "rb");
    const int first = file != NULL ? fgetc(file) : EOF;
    if (file != NULL) {
        (void)fclose(file);
    }
    return first == FIRST_BYTE;
}
