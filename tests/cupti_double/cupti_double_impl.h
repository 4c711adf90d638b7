/* What the files of the double share. One lock is held around everything but the client's callbacks. */
#ifndef CKPT_TESTS_CUPTI_DOUBLE_IMPL_H
#define CKPT_TESTS_CUPTI_DOUBLE_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <cupti.h>

#include "tests/cupti_double/cupti_double.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    LARGEST_RECORD = 256,
    LONGEST_NAME = 400,
    DEEPEST_TAG = 64,
    MOST_FAILURES = 8,
    MOST_STREAMS = 64,
    MOST_KEPT = 32
};

typedef struct double_failure {
    char function[64];
    CUptiResult code;
} double_failure;

typedef struct double_controls {
    uint32_t version;
    char holder[128];
    double_failure failure[MOST_FAILURES];
    int failures;
    uint64_t drop, backwards, cut, buffer, untimed, refuse;
    bool thread, reverse, running, keep;
} double_controls;

/* A record that waits to be delivered; `held` while its kernel runs. */
typedef struct double_record {
    unsigned char bytes[LARGEST_RECORD];
    uint32_t size;
    bool held;
} double_record;

/* A buffer that is full and has not come back. */
typedef struct double_kept {
    uint8_t *buffer;
    size_t size, valid;
} double_kept;

typedef struct double_state {
    pthread_mutex_t lock;
    bool ready; /* the environment was read */
    double_controls controls;
    char *rules;     /* of the script; NULL: none */
    char *file;      /* a stream to play at the next flush; NULL: none */
    char *write;     /* where to write what is delivered; NULL: nowhere */
    bool subscribed; /* by us */
    char subscriber[64];
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    uint64_t enabled; /* bit per kind */
    bool begun;       /* untagged lines have happened */
    double_record *record;
    size_t count, capacity;
    uint64_t host_ns, stream_ns[MOST_STREAMS];
    uint32_t correlation, marker;
    uint64_t started; /* kernels, copies and fills */
    uint64_t buffers; /* given back */
    double_kept kept[MOST_KEPT];
    int kept_count;
    uint64_t refused; /* records there was no buffer for */
} double_state;

extern double_state cupti_double;

/* Lock, with the environment read. */
void double_enter(void);
void double_leave(void);

/* double_records.c. Bytes of a record of `kind` in the version played; 0: no such kind. */
uint32_t double_record_size(uint32_t kind);
void double_add(const void *bytes, uint32_t size, bool held);
const char *double_name(const char *text); /* a copy that lives as the process */
CUpti_ActivityMemcpyKind double_way(const char *text);
typedef struct double_item {
    char verb[16], name[LONGEST_NAME];
    CUpti_ActivityMemcpyKind way;
    uint64_t bytes, address, ns;
    uint32_t stream;
    bool driver;
} double_item;
void double_happen(const double_item *item);
void double_forget_ranges(void); /* this thread's */
/* The innermost tag of this thread of that kind, and whether it has one. */
bool double_tag(CUpti_ExternalCorrelationKind kind, uint64_t *tag);

/* double_script.c */
int double_script_run(const char *items, size_t length);
void double_script_pop(uint64_t tag);
void double_script_begin(void);
int double_controls_read(double_controls *controls, const char *text);

/* double_buffers.c: give back what is not held. The lock is held before and after. */
void double_deliver(void);
void double_deliver_kept(void);
/* What runs is given back all the same from now on, with the times it has so far: none. */
void double_end_running(void);

/* double_stream.c */
int double_stream_play(const char *path);
void double_stream_write(const double_record *record);
void double_stream_close(void);

#endif
