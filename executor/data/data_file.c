/* What every source of data needs: files in memory, and random words. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/data/data_impl.h"
#include "kernels/philox.h"

static uint32_t low(uint64_t n)
{
    return (uint32_t)(n & 0xFFFFFFFFu);
}

void ckpt_data_words(const ckpt_data *data, uint32_t use, uint64_t a, uint32_t b, uint32_t word[4])
{
    const uint32_t counter[4] = {low(a), low(a >> 32), b, 0xFFFFFF00u | use};
    const uint32_t key[2] = {low(data->seed), low(data->seed >> 32)};
    ckpt_philox(counter, key, word);
}

ckpt_code ckpt_data_map(ckpt_data *data, const char *path, const ckpt_mapped **mapped, ckpt_err *err)
{
    if (path[0] == '\0') {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "the name of a file is empty");
    }
    const int file = open(path, O_RDONLY);
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0) {
        const int reason = errno;
        if (file >= 0) {
            close(file);
        }
        return CKPT_FAIL(err, CKPT_IO, "%s: cannot read: %s", path, strerror(reason));
    }
    if (!S_ISREG(about.st_mode) || about.st_size <= 0) {
        close(file);
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s: %s, wanted a file with data in it", path,
                         S_ISREG(about.st_mode) ? "empty" : "no regular file");
    }
    void *const bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    const int reason = errno;
    close(file);
    if (bytes == MAP_FAILED) {
        return CKPT_FAIL(err, reason == ENOMEM ? CKPT_NO_MEMORY : CKPT_IO, "%s: cannot map %lld bytes: %s", path,
                         (long long)about.st_size, strerror(reason));
    }
    ckpt_data_add_stamp(data, &about);
    ckpt_mapped *const file_map = &data->file[data->file_count++];
    *file_map = (ckpt_mapped){.path = path, .bytes = bytes, .length = (size_t)about.st_size};
    *mapped = file_map;
    return CKPT_OK;
}
