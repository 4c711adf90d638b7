#include "programs/train/event_log.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_MAX = 256, TAG_MAX = 64 };

typedef struct message {
    unsigned char byte[MESSAGE_MAX];
    size_t length;
} message;

static void add_bytes(message *m, const void *bytes, size_t length)
{
    memcpy(m->byte + m->length, bytes, length);
    m->length += length;
}

static void add_little_endian(message *m, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        m->byte[m->length++] = (unsigned char)(value >> 8 * i);
    }
}

static void add_varint(message *m, uint64_t value)
{
    while (value >= 0x80) {
        m->byte[m->length++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    m->byte[m->length++] = (unsigned char)value;
}

enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH_BYTES = 2, FOUR_BYTES = 5 };

static void add_key(message *m, unsigned field, unsigned type)
{
    add_varint(m, field << 3 | type);
}

static void add_part(message *m, unsigned field, const void *bytes, size_t length)
{
    add_key(m, field, LENGTH_BYTES);
    add_varint(m, length);
    add_bytes(m, bytes, length);
}

/* CRC-32C (Castagnoli), reflected, then rotated and offset as records have it. */
static uint32_t masked_checksum(const unsigned char *bytes, size_t length)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1u)));
        }
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void put_record(ckpt_append *records, const message *event)
{
    message record = {.length = 0};
    add_little_endian(&record, event->length, 8);
    add_little_endian(&record, masked_checksum(record.byte, 8), 4);
    add_bytes(&record, event->byte, event->length);
    add_little_endian(&record, masked_checksum(event->byte, event->length), 4);
    ckpt_append_row(records, record.byte, record.length);
}

static void begin_event(message *event)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    event->length = 0;
    add_key(event, 1, EIGHT_BYTES);
    add_little_endian(event, bits, 8);
}

ckpt_code ckpt_event_log_open(ckpt_event_log *log, const char *folder, ckpt_err *err)
{
    static const char version[] = "brain.Event:2";
    char host[64] = "host";
    struct stat about;
    (void)gethostname(host, sizeof host - 1);
    const int wanted = snprintf(log->path, sizeof log->path, "%s/events.out.tfevents.%lld.%s.%ld", folder,
                                (long long)time(NULL), host, (long)getpid());
    if (wanted < 0 || (size_t)wanted >= sizeof log->path) {
        return CKPT_FAIL(err, CKPT_IO, "%.200s: too long for the name of a folder", folder);
    }
    if (stat(folder, &about) != 0 && mkdir(folder, 0777) != 0) {
        return CKPT_FAIL(err, CKPT_IO, "%s: cannot make the folder: %s", folder, strerror(errno));
    }
    FILE *const file = fopen(log->path, "wb");
    if (file == NULL) {
        return CKPT_FAIL(err, CKPT_IO, "%s: cannot write: %s", log->path, strerror(errno));
    }
    ckpt_append_begin(&log->records, file);
    message event;
    begin_event(&event);
    add_part(&event, 3, version, sizeof version - 1);
    put_record(&log->records, &event);
    return CKPT_OK;
}

void ckpt_event_log_add(ckpt_event_log *log, uint64_t step, const char *tag, double value)
{
    if (log->records.file == NULL) {
        return;
    }
    message point = {.length = 0}, summary = {.length = 0}, event;
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    add_part(&point, 1, tag, strnlen(tag, TAG_MAX));
    add_key(&point, 2, FOUR_BYTES);
    add_little_endian(&point, bits, 4);
    add_part(&summary, 1, point.byte, point.length);
    begin_event(&event);
    add_key(&event, 2, VARINT);
    add_varint(&event, step);
    add_part(&event, 5, summary.byte, summary.length);
    put_record(&log->records, &event);
}

ckpt_code ckpt_event_log_close(ckpt_event_log *log, ckpt_err *err)
{
    return ckpt_append_end(&log->records, log->path, err);
}
