/* labels: unit gpu */
/* A profile of the emulated device while a double of libcupti says what ran: random kernels, copies and fills under the
 * tag of every timed run, some of them lost. Every row must hold what the test told the double to say, worked out here
 * from the script alone. The seed is printed; a first argument replaces it. */
#include "tests/support/support_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CKPT_HAVE_CUPTI
#include <dlfcn.h>

#include "core/base/text.h"
#include "programs/profile/profile_request_impl.h"
#include "tests/emulation/emulation.h"
#include "tests/support/support_train.h"

#define SMALL_GPT "batch=1 tokens=4 hidden=8 blocks=2 heads=2 vocabulary=8"

enum { REPEATS = 7, MOST_ROWS = 64, MOST_ITEMS = 6, CALL_NS = 1000, STREAMS = 2, NAMES = 5 };

static uint64_t seed = 20261121;
static ckpt_device *device;
static int (*double_script)(const char *rules);
static int (*double_control)(const char *controls);
static void (*double_reset)(void);

static int draw(int below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)below);
}

/* What happens in a run, in the order in which the host starts it. */
typedef struct item {
    int name, stream;
    ckpt_ns ns;
} item;

typedef struct run {
    item item[MOST_ITEMS];
    int count;
} run;

typedef struct script {
    run run[MOST_ROWS][CKPT_DIRECTION_COUNT][REPEATS];
} script;

static const struct {
    const char *written, *listed;
} names[NAMES] = {{"kernel \"void gemm<float, 4>(int)\"", "void gemm<float, 4>(int)"},
                  {"kernel add_bias", "add_bias"},
                  {"copy on_device 64", "copy on device"},
                  {"fill 128", "fill"},
                  {"kernel _ZN4ckpt4reluIfEEvPT_l", "void ckpt::relu<float>(float*, long)"}};

/* One kind of run for each direction of each row, with its own times in each repeat. Of every four directions one loses
 * items in one repeat, one in most, and one runs other kernels once. */
static void make_script(script *s)
{
    memset(s, 0, sizeof *s);
    for (int r = 0; r < MOST_ROWS; r++) {
        for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
            run like = {.count = 2 + draw(MOST_ITEMS - 1)};
            const int fault = draw(4), unlucky = draw(REPEATS);
            for (int i = 0; i < like.count; i++) {
                like.item[i] = (item){.name = draw(NAMES), .stream = draw(STREAMS)};
            }
            for (int k = 0; k < REPEATS; k++) {
                run *const mine = &s->run[r][d][k];
                *mine = like;
                for (int i = 0; i < mine->count; i++) {
                    mine->item[i].ns = 1 + draw(draw(2) == 0 ? 300 : 20000);
                }
                if (fault == 1 && k == unlucky) {
                    mine->count -= 1 + draw(mine->count);
                } else if (fault == 2 && k >= 2) {
                    mine->count--;
                } else if (fault == 3 && k == unlucky) {
                    mine->item[0].name = (mine->item[0].name + 1) % NAMES;
                }
            }
        }
    }
}

/* The rules for the double; a second passes before each run, so that all streams have come to their end. */
static void tell_script(const script *s)
{
    ckpt_text text;
    ckpt_err err = {0};
    ckpt_text_init(&text);
    for (int r = 0; r < MOST_ROWS; r++) {
        for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
            for (int k = 0; k < REPEATS; k++) {
                const run *const mine = &s->run[r][d][k];
                const uint64_t tag = ckpt_profile_tag(r, (ckpt_direction)d, k);
                ckpt_text_add(&text, "%llu: gap 1000000000", (unsigned long long)tag);
                for (int i = 0; i < mine->count; i++) {
                    ckpt_text_add(&text, "; stream %d; %s %lld", 7 + mine->item[i].stream,
                                  names[mine->item[i].name].written, (long long)mine->item[i].ns);
                }
                ckpt_text_add(&text, "\n");
            }
        }
    }
    CHECK_OK(ckpt_text_end(&text, &err), err);
    assert_int_equal(double_script(text.bytes), 0);
    ckpt_text_fini(&text);
}

/* When an item of a run starts, the host having started the run at 0: each call takes the host a microsecond, and a
 * stream does one thing after the other. */
static ckpt_ns start_of(const run *r, int index)
{
    ckpt_ns free_at = 0;
    for (int i = 0; i < index; i++) {
        if (r->item[i].stream == r->item[index].stream) {
            const ckpt_ns called = (i + 1) * CALL_NS;
            free_at = (free_at > called ? free_at : called) + r->item[i].ns;
        }
    }
    const ckpt_ns called = (index + 1) * CALL_NS;
    return free_at > called ? free_at : called;
}

static bool running_at(const run *r, ckpt_ns time)
{
    for (int i = 0; i < r->count; i++) {
        const ckpt_ns start = start_of(r, i);
        if (start <= time && time < start + r->item[i].ns) {
            return true;
        }
    }
    return false;
}

/* Nanosecond by nanosecond: slow and plain. */
static void walk(const run *r, ckpt_ns *span, ckpt_ns *busy)
{
    ckpt_ns first = INT64_MAX, last = 0;
    for (int i = 0; i < r->count; i++) {
        const ckpt_ns start = start_of(r, i);
        first = start < first ? start : first;
        last = start + r->item[i].ns > last ? start + r->item[i].ns : last;
    }
    *span = last - first;
    *busy = 0;
    for (ckpt_ns t = first; t < last; t++) {
        *busy += running_at(r, t);
    }
}

/* The element that as many are below as the middle of the sorted list has before it. */
static int64_t middle(const int64_t *value, int count, int allocation)
{
    for (int i = 0; i < count; i++) {
        int below = 0, equal = 0;
        for (int k = 0; k < count; k++) {
            below += value[k] < value[i];
            equal += value[k] == value[i];
        }
        if (below <= allocation && allocation < below + equal) {
            return value[i];
        }
    }
    fail_msg("no middle of %d numbers", count);
    return 0;
}

/* Of an even count the mean of the middle two. */
static int64_t median(const int64_t *value, int count)
{
    const int64_t low = middle(value, count, (count - 1) / 2);
    return low + (middle(value, count, count / 2) - low) / 2;
}

typedef struct expected {
    int whole, lost; /* runs */
    int64_t span[REPEATS], busy[REPEATS], gap[REPEATS];
    const run *run[REPEATS];
} expected;

static void expect(const run *all, expected *e)
{
    int most = 0;
    *e = (expected){0};
    for (int k = 0; k < REPEATS; k++) {
        most = all[k].count > most ? all[k].count : most;
    }
    for (int k = 0; k < REPEATS; k++) {
        if (all[k].count < most) {
            e->lost++;
            continue;
        }
        walk(&all[k], &e->span[e->whole], &e->busy[e->whole]);
        e->gap[e->whole] = e->span[e->whole] - e->busy[e->whole];
        e->run[e->whole++] = &all[k];
    }
}

static int count_of(const run *r, int name, ckpt_ns *ns)
{
    int count = 0;
    *ns = 0;
    for (int i = 0; i < r->count; i++) {
        count += r->item[i].name == name;
        *ns += r->item[i].name == name ? r->item[i].ns : 0;
    }
    return count;
}

/* Every kernel the whole runs have on the middle, once, and nothing else; in order of start in the first whole run. */
static void check_kernels(const ckpt_profile_row *row, ckpt_direction direction, const expected *e)
{
    int listed = 0;
    ckpt_ns before = -1;
    for (int n = 0; n < NAMES; n++) {
        int64_t count[REPEATS], time[REPEATS];
        for (int k = 0; k < e->whole; k++) {
            count[k] = count_of(e->run[k], n, &time[k]);
        }
        const int64_t wanted = median(count, e->whole);
        int found = 0;
        for (int k = 0; k < row->kernel_count; k++) {
            const ckpt_profile_kernel *const kernel = &row->kernel[k];
            if (kernel->direction == direction && strcmp(kernel->name, names[n].listed) == 0) {
                found++;
                assert_int_equal(kernel->count, wanted);
                assert_int_equal(kernel->median_ns, median(time, e->whole));
            }
        }
        assert_int_equal(found, wanted > 0);
        listed += found;
    }
    for (int k = 0; k < row->kernel_count; k++) {
        const run *const first = e->run[0];
        ckpt_ns start = INT64_MAX;
        for (int i = 0; row->kernel[k].direction == direction && i < first->count; i++) {
            if (strcmp(names[first->item[i].name].listed, row->kernel[k].name) == 0) {
                start = start_of(first, i) < start ? start_of(first, i) : start;
            }
        }
        if (row->kernel[k].direction == direction) {
            CHECK(start >= before, "%s: kernels out of order", row->layer);
            before = start;
            listed--;
        }
    }
    assert_int_equal(listed, 0);
}

static void check_by_stamps(const ckpt_profile_row *row, ckpt_direction direction, const ckpt_timing *timing)
{
    assert_true(timing->median_ns > 0 && timing->repeats == REPEATS);
    assert_int_equal(timing->median_ns, median(timing->sample_ns, REPEATS));
    assert_true(timing->kernel_ns == 0 && timing->gap_ns == 0 && timing->launches == 0);
    for (int k = 0; k < row->kernel_count; k++) {
        assert_true(row->kernel[k].direction != direction);
    }
}

typedef struct totals {
    int directions, lost, by_stamps;
} totals;

/* Of another way, whose runs have the tags of the own way's: its kernels are not listed. */
static void check_direction(const ckpt_profile_row *row, ckpt_direction direction, const ckpt_timing *timing,
                            const run *all, bool way, totals *t)
{
    expected e;
    expect(all, &e);
    t->directions++;
    t->lost += e.lost;
    if (e.whole < 3) {
        t->by_stamps++;
        if (!way) {
            check_by_stamps(row, direction, timing);
        }
        return;
    }
    assert_int_equal(timing->repeats, e.whole);
    assert_memory_equal(timing->sample_ns, e.span,
                        (size_t)e.whole * sizeof e.span[0]); /* of the whole runs, in order */
    assert_int_equal(timing->launches, e.run[0]->count);
    assert_int_equal(timing->median_ns, median(e.span, e.whole));
    assert_int_equal(timing->spread_ns,
                     middle(e.span, e.whole, 3 * e.whole / 4) - middle(e.span, e.whole, e.whole / 4));
    assert_int_equal(timing->kernel_ns, median(e.busy, e.whole));
    assert_int_equal(timing->gap_ns, median(e.gap, e.whole));
    if (!way) {
        check_kernels(row, direction, &e);
    }
}

/* The notes of a run, one after the other. */
static char notes[2048];

static void keep_note(void *context, const char *line)
{
    (void)context;
    const size_t used = strlen(notes);
    snprintf(notes + used, sizeof notes - used, "%s\n", line);
}

static void profile_with(test_train *t, ckpt_recorder *recorder, bool warm, ckpt_profile **profile)
{
    ckpt_err err = {0};
    notes[0] = '\0';
    const ckpt_profiler_options options = {
        .repeats = REPEATS, .spend_ns = INT64_C(60000000000), .recorder = recorder, .note = keep_note, .warm = warm};
    CHECK_OK(ckpt_profile_run(device, t->lowered, &options, &t->arena, profile, &err), err);
}

static void open_recorder(ckpt_recorder **recorder)
{
    ckpt_err err = {0};
    ckpt_bytes taken = -2;
    CHECK_OK(ckpt_profile_record(device, recorder, &taken, &err), err);
    assert_int_equal(taken, 0); /* the double takes none */
}

static void check_note(const char *format, int a, int b)
{
    char wanted[200];
    snprintf(wanted, sizeof wanted, format, a, b);
    CHECK(strstr(notes, wanted) != NULL, "no \"%s\" in: %s", wanted, notes);
}

static void rows_hold_what_was_recorded(void **state)
{
    script *const s = ckpt_memory_get(sizeof *s);
    assert_non_null(s);
    for (int round = 0; round < 3; round++) {
        test_train t;
        ckpt_recorder *recorder = NULL;
        ckpt_profile *profile = NULL;
        totals sum = {0};
        double_reset();
        assert_int_equal(double_control(round == 0 ? "drop=3" : round == 1 ? "thread=1; reverse=1" : "buffer=1000"), 0);
        make_script(s);
        tell_script(s);
        test_train_open_on(&t, device, "models/byte-gpt.json", SMALL_GPT, NULL);
        open_recorder(&recorder);
        profile_with(&t, recorder, round == 1, &profile);
        assert_true(profile->row_count <= MOST_ROWS);
        assert_true(profile->flushed == (round != 1));
        int same = 0;
        for (int r = 0; r < profile->row_count; r++) {
            const ckpt_profile_row *const row = &profile->row[r];
            const ckpt_timing *const timing[] = {&row->forward, &row->backward, &row->update};
            if (row->same_as[0] != '\0') {
                same++;
                assert_int_equal(row->kernel_count, 0);
                assert_int_equal(row->forward.launches, ckpt_profile_find(profile, row->same_as)->forward.launches);
                continue;
            }
            for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
                if (timing[d]->repeats > 0) {
                    check_direction(row, (ckpt_direction)d, timing[d], s->run[r][d], false, &sum);
                }
            }
            for (int k = 0; k < row->way_count; k++) {
                const ckpt_profile_way *const way = &row->way[k];
                check_direction(row, way->direction, &way->timing, s->run[r][way->direction], true, &sum);
            }
        }
        assert_true(same > 0 && sum.lost > 0 && sum.by_stamps > 0 && sum.by_stamps < sum.directions);
        check_note("%d runs were not recorded whole", sum.lost, 0);
        check_note("%d of %d directions of layers have the time between two stamps", sum.by_stamps, sum.directions);
        assert_non_null(strstr(profile->recorder, round == 0 ? "3 records dropped" : "0 records dropped"));
        ckpt_recorder_close(recorder);
        test_train_close(&t);
    }
    ckpt_memory_put(s);
}

/* Recorded times of an hour a run are not those of the stamps: told, with the worst. */
static void clocks_far_apart_are_told(void **state)
{
    test_train t;
    ckpt_recorder *recorder = NULL;
    ckpt_profile *profile = NULL;
    double_reset();
    assert_int_equal(double_script("*: kernel k 3600000000000"), 0);
    test_train_open_on(&t, device, "tests/models/no-library.json", "", NULL);
    open_recorder(&recorder);
    profile_with(&t, recorder, false, &profile);
    assert_non_null(strstr(notes, "took another time by the device's stamps than by its kernels, most "));
    assert_non_null(strstr(notes, "3600 s by kernels"));
    assert_null(strstr(notes, "recorded whole"));
    ckpt_recorder_close(recorder);
    test_train_close(&t);
}

/* Every percentage is the data sheet's time for what the op's formula says, by the time in kernels. */
static void shares_are_of_the_data_sheet(void **state)
{
    test_train t;
    ckpt_err err = {0};
    ckpt_recorder *recorder = NULL;
    ckpt_profile *profile = NULL;
    double_reset();
    assert_int_equal(double_script("*: kernel k 1000; gap 500000; kernel k 3000"), 0);
    const ckpt_device_model sheet = {
        .name = "s", .sheet_flop_per_s = 3e9, .sheet_flop_per_s16 = 6e9, .sheet_bytes_per_s = 2e9};
    for (int d = 0; d < 2; d++) {
        test_train_open_on(&t, device, "models/byte-gpt.json", SMALL_GPT, d == 0 ? "float32" : "bfloat16");
        open_recorder(&recorder);
        const ckpt_profiler_options options = {.repeats = 3, .recorder = recorder, .roofline = &sheet};
        CHECK_OK(ckpt_profile_run(device, t.lowered, &options, &t.arena, &profile, &err), err);
        for (int i = 0; i < t.lowered->graph->op_count; i++) {
            const ckpt_op_role *const role = &t.lowered->op_role[i];
            const ckpt_profile_row *const row = ckpt_profile_find(profile, t.lowered->network->node[role->node].name);
            const bool update = role->phase == CKPT_UPDATE;
            const ckpt_timing *const timing = update                         ? &row->update
                                              : role->phase == CKPT_BACKWARD ? &row->backward
                                                                             : &row->forward;
            const double compute = (double)role->flop / (d == 0 || update ? 3.0 : 6.0);
            const double memory = (double)role->moved_bytes / 2.0;
            const double share = (compute > memory ? compute : memory) / 4000.0;
            assert_int_equal(timing->kernel_ns, 4000);
            assert_int_equal(timing->flop, role->flop);
            assert_int_equal(timing->moved_bytes, role->moved_bytes);
            CHECK(timing->roofline > share * (1 - 1e-12) && timing->roofline < share * (1 + 1e-12),
                  "%s: a share of %g, wanted %g", row->layer, timing->roofline, share);
        }
        ckpt_recorder_close(recorder);
        test_train_close(&t);
    }
}

/* The five most expensive parts of a step, each with all layers that are the same, and who recorded. */
static void the_summary_says_where_time_goes(void **state)
{
    test_train t;
    ckpt_err err = {0};
    ckpt_recorder *recorder = NULL;
    ckpt_profile *profile = NULL;
    char rules[600];
    double_reset();
    /* all else takes 1 us; the update of row 0 takes 50 us, the forward of row 3, which is not the only one of its
     * kind, 30 us */
    test_train_open_on(&t, device, "models/byte-gpt.json", SMALL_GPT, NULL);
    int length = snprintf(rules, sizeof rules, "*: kernel other 1000\n");
    for (int k = 0; k < 3; k++) {
        length += snprintf(rules + length, sizeof rules - (size_t)length,
                           "%llu: kernel slow_one 50000\n%llu: kernel first_one 20000; kernel second_one 10000\n",
                           (unsigned long long)ckpt_profile_tag(0, CKPT_DIRECTION_UPDATE, k),
                           (unsigned long long)ckpt_profile_tag(3, CKPT_DIRECTION_FORWARD, k));
    }
    assert_int_equal(double_script(rules), 0);
    open_recorder(&recorder);
    const ckpt_device_model sheet = {.name = "s",
                                     .about = "a sheet",
                                     .sheet_flop_per_s = 1e15,
                                     .sheet_flop_per_s16 = 1e15,
                                     .sheet_bytes_per_s = 1e10};
    const ckpt_profiler_options options = {.repeats = 3, .recorder = recorder, .roofline = &sheet};
    CHECK_OK(ckpt_profile_run(device, t.lowered, &options, &t.arena, &profile, &err), err);
    ckpt_text text;
    ckpt_text_init(&text);
    CHECK_OK(ckpt_profile_summary(profile, &sheet, 1000, &t.arena, &text, &err), err);
    CHECK_OK(ckpt_text_end(&text, &err), err);
    int64_t all = 0, same = 0;
    for (int r = 0; r < profile->row_count; r++) {
        const ckpt_profile_row *const row = &profile->row[r];
        all += row->forward.median_ns + row->backward.median_ns + row->update.median_ns;
        same += strcmp(row->same_as, profile->row[3].layer) == 0 || r == 3;
    }
    assert_true(same > 1 && profile->row[3].forward.median_ns == 30000);
    char wanted[2][200], total[CKPT_UNITS_TEXT];
    snprintf(wanted[0], sizeof wanted[0], "  %4.1f %%  %-8s  %d x %s (%s) forward, ",
             (double)(30000 * same) * 100.0 / (double)all, ckpt_ns_show(30000 * same, total), (int)same,
             profile->row[3].layer, profile->row[3].op);
    snprintf(wanted[1], sizeof wanted[1], "  %4.1f %%  50.0 us   %s (%s) update, ", 50000 * 100.0 / (double)all,
             profile->row[0].layer, profile->row[0].op);
    const char *const first = strchr(text.bytes, '\n') + 1;
    const char *const second = strchr(first, '\n') + 1;
    CHECK(strncmp(first, wanted[0], strlen(wanted[0])) == 0, "no \"%s\" in %s", wanted[0], text.bytes);
    CHECK(strncmp(second, wanted[1], strlen(wanted[1])) == 0, "no \"%s\" in %s", wanted[1], text.bytes);
    assert_non_null(strstr(first, "% of the data sheet's rate, mostly first_one\n"));
    assert_non_null(strstr(text.bytes, "caches flushed before each run"));
    assert_non_null(strstr(text.bytes, "data sheet: a sheet\n"));
    assert_non_null(strstr(text.bytes, "GB/s beside kernels and each other\nrecorded by CUPTI"));
    ckpt_text_fini(&text);
    ckpt_recorder_close(recorder);
    test_train_close(&t);
}

/* Nobody records: the reason comes from opening, and the profile has the stamps' times and no kernels. */
static void without_a_recorder(void **state)
{
    static const struct {
        const char *controls, *says;
    } refusal[] = {{"holder=another profiler", "another profiler"}, {"fail=cuptiActivityEnable:35", "permission"}};
    for (int i = 0; i < 2; i++) {
        ckpt_err err = {0};
        ckpt_recorder *recorder = NULL;
        ckpt_bytes taken = 0;
        double_reset();
        assert_int_equal(double_control(refusal[i].controls), 0);
        assert_int_equal(ckpt_profile_record(device, &recorder, &taken, &err), CKPT_DEVICE);
        assert_null(recorder);
        CHECK(strstr(err.msg, refusal[i].says) != NULL, "no \"%s\" in: %s", refusal[i].says, err.msg);
    }
    test_train t;
    ckpt_profile *profile = NULL;
    test_train_open_on(&t, device, "tests/models/no-library.json", "", NULL);
    profile_with(&t, NULL, false, &profile);
    assert_string_equal(profile->recorder, "");
    assert_string_equal(notes, "");
    for (int r = 0; r < profile->row_count; r++) {
        assert_int_equal(profile->row[r].kernel_count, 0);
        check_by_stamps(&profile->row[r], CKPT_DIRECTION_FORWARD, &profile->row[r].forward);
    }
    test_train_close(&t);
}

/* CUPTI stops working in the middle: said once, and every row still has a time. */
static void recording_may_end(void **state)
{
    static const char *const function[] = {"cuptiActivityPushExternalCorrelationId",
                                           "cuptiActivityPopExternalCorrelationId", "cuptiActivityFlushAll"};
    for (int f = 0; f < 3; f++) {
        test_train t;
        ckpt_recorder *recorder = NULL;
        ckpt_profile *profile = NULL;
        char control[80];
        double_reset();
        assert_int_equal(double_script("*: kernel k 1000"), 0);
        test_train_open_on(&t, device, "tests/models/no-library.json", "", NULL);
        open_recorder(&recorder);
        snprintf(control, sizeof control, "fail=%s:999", function[f]);
        assert_int_equal(double_control(control), 0);
        profile_with(&t, recorder, false, &profile);
        const char *const said = strstr(notes, "recording ends, times from here on are between stamps");
        CHECK(said != NULL && strchr(said, '\n')[1] == '\0', "%s: %s", function[f], notes);
        for (int r = 0; r < profile->row_count; r++) {
            check_by_stamps(&profile->row[r], CKPT_DIRECTION_FORWARD, &profile->row[r].forward);
        }
        ckpt_recorder_close(recorder);
        test_train_close(&t);
    }
}

/* Rates of the link are measured while a recorder is open or not, busy ones too. */
static void the_link_is_measured_alone_and_busy(void **state)
{
    test_train t;
    ckpt_profile *profile = NULL;
    test_train_open_on(&t, device, "tests/models/no-library.json", "", NULL);
    const int64_t reserved = ckpt_emulated_device_bytes(), locked = ckpt_emulated_host_bytes();
    for (int i = 0; i < 2; i++) {
        ckpt_emulated_schedule(i == 0 ? 0 : seed | 1); /* done at once; or late, in an order of its own */
        profile_with(&t, NULL, false, &profile);
        assert_true(profile->d2h_bytes_per_s > 0 && profile->h2d_bytes_per_s > 0);
        assert_true((profile->d2h_busy_bytes_per_s > 0) == (profile->h2d_busy_bytes_per_s > 0));
        assert_true(i > 0 || profile->d2h_busy_bytes_per_s > 0);
    }
    ckpt_emulated_schedule(0);
    assert_true(ckpt_emulated_device_bytes() == reserved && ckpt_emulated_host_bytes() == locked);
    test_train_close(&t);
}

static ckpt_code record_and_profile(void *context, ckpt_arena *arena, ckpt_err *err)
{
    const test_train *const t = context;
    ckpt_recorder *recorder = NULL;
    ckpt_profile *profile = NULL;
    ckpt_bytes taken = 0;
    double_reset();
    assert_int_equal(double_script("*: kernel k 1000; copy on_device 4 100"), 0);
    ckpt_code code = ckpt_profile_record(device, &recorder, &taken, err);
    if (code == CKPT_OK) {
        const ckpt_profiler_options options = {.repeats = 3, .spend_ns = 1, .recorder = recorder};
        code = ckpt_profile_run(device, t->lowered, &options, arena, &profile, err);
    }
    ckpt_recorder_close(recorder);
    return code;
}

static void every_allocation_may_fail(void **state)
{
    test_train t;
    test_train_open_on(&t, device, "tests/models/no-library.json", "", NULL);
    assert_true(ckpt_test_starve_arena(record_and_profile, &t) > 0);
    test_train_close(&t);
}

static int open_all(void **state)
{
    ckpt_err err = {0};
    void *const library = dlopen(ckpt_bin_file("libcupti_double.so"), RTLD_NOW);
    if (library == NULL || setenv("CKPT_CUPTI", ckpt_bin_file("libcupti_double.so"), 1) != 0) {
        return -1;
    }
    *(void **)&double_script = dlsym(library, "ckpt_cupti_double_script");
    *(void **)&double_control = dlsym(library, "ckpt_cupti_double_control");
    *(void **)&double_reset = dlsym(library, "ckpt_cupti_double_reset");
    ckpt_emulated_guard(false);
    return double_script != NULL && double_control != NULL && double_reset != NULL &&
                   ckpt_device_emulated.open(0, 1, &device, &err) == CKPT_OK
               ? 0
               : -1;
}

static int close_all(void **state)
{
    ckpt_device_close(device);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_hold_what_was_recorded),
        cmocka_unit_test(clocks_far_apart_are_told),
        cmocka_unit_test(shares_are_of_the_data_sheet),
        cmocka_unit_test(the_summary_says_where_time_goes),
        cmocka_unit_test(without_a_recorder),
        cmocka_unit_test(recording_may_end),
        cmocka_unit_test(the_link_is_measured_alone_and_busy),
        cmocka_unit_test(every_allocation_may_fail),
    };
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, open_all, close_all);
}
#else
int main(void)
{
    printf("built without CUPTI's headers\n");
    return 77;
}
#endif
