/* What must be the same in two files of any kind before their numbers mean anything. */
#include <string.h>

#include "viz/compare/compare_impl.h"

void ckpt_match_name(ckpt_comparer *c, const char *what, const char *base, const char *fresh)
{
    if (strcmp(base, fresh) != 0) {
        ckpt_compare_mismatched(c, what, ckpt_compare_name(c, base), ckpt_compare_name(c, fresh));
    }
}

void ckpt_match_target(ckpt_comparer *c, bool base_gpu, int base_threads, bool gpu, int threads)
{
    if (base_gpu != gpu) {
        ckpt_compare_mismatched(c, "device", base_gpu ? "a GPU" : "the CPU", gpu ? "a GPU" : "the CPU");
    } else if (base_threads > 0 && threads > 0 && base_threads != threads) {
        ckpt_compare_mismatched(c, "threads", CKPT_COMPARE_SAY(c, "%d", base_threads),
                                CKPT_COMPARE_SAY(c, "%d", threads));
    }
}

/* "profile a/p.json" and "profile b/p.json" are one source: a file that is kept elsewhere. */
static bool same_source(const char *a, const char *b)
{
    const char *const slash_a = strrchr(a, '/'), *const slash_b = strrchr(b, '/');
    const size_t word_a = strcspn(a, " "), word_b = strcspn(b, " ");
    if (word_a != word_b || strncmp(a, b, word_a) != 0) {
        return false;
    }
    return strcmp(slash_a != NULL ? slash_a + 1 : a + word_a + (a[word_a] != '\0'),
                  slash_b != NULL ? slash_b + 1 : b + word_b + (b[word_b] != '\0')) == 0;
}

bool ckpt_match_costs(ckpt_comparer *c, const char *base, const char *fresh)
{
    const bool same = same_source(base, fresh);
    if (base[0] == '\0' || fresh[0] == '\0' || same) {
        return same;
    }
    ckpt_compare_mismatched(c, "costs", ckpt_compare_name(c, base), ckpt_compare_name(c, fresh));
    return false;
}

/* "cpu: AMD EPYC, 2 threads, Linux 6.18" names a device up to its first comma. */
void ckpt_match_machines(ckpt_comparer *c, const ckpt_machine *base, const ckpt_machine *fresh)
{
    const size_t a = strcspn(base->device, ","), b = strcspn(fresh->device, ",");
    if (a > 0 && b > 0 && (a != b || strncmp(base->device, fresh->device, a) != 0)) {
        ckpt_compare_mismatched(
            c, "device", ckpt_compare_name(c, CKPT_COMPARE_SAY(c, "%.*s", (int)(a < 200 ? a : 200), base->device)),
            ckpt_compare_name(c, CKPT_COMPARE_SAY(c, "%.*s", (int)(b < 200 ? b : 200), fresh->device)));
    } else {
        ckpt_match_target(c, base->gpu, base->threads, fresh->gpu, fresh->threads);
    }
    if (strcmp(base->libraries, fresh->libraries) != 0 && base->libraries[0] != '\0' && fresh->libraries[0] != '\0') {
        ckpt_compare_note(c, CKPT_COMPARE_SAY(c, "other libraries: %s, now %s", ckpt_compare_name(c, base->libraries),
                                              ckpt_compare_name(c, fresh->libraries)));
    }
}
