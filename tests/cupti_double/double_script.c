/* The language of cupti_double.h: items, rules and controls. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cupti_double/cupti_double_impl.h"

enum { MOST_WORDS = 4, LONGEST_ITEM = 512 };

typedef struct words {
    char text[LONGEST_ITEM];
    const char *word[MOST_WORDS];
    int count;
} words;

/* The words of text[0 .. length - 1]; false when there are too many. A name may be in double quotes. */
static bool split(words *w, const char *text, size_t length)
{
    *w = (words){.count = 0};
    if (length >= sizeof w->text) {
        return false;
    }
    memcpy(w->text, text, length);
    for (char *at = w->text;;) {
        at += strspn(at, " \t\r\n");
        if (*at == '\0') {
            return true;
        }
        if (w->count == MOST_WORDS) {
            return false;
        }
        const bool quoted = *at == '"';
        at += quoted;
        w->word[w->count++] = at;
        at += strcspn(at, quoted ? "\"" : " \t\r\n");
        if (*at != '\0') {
            *at++ = '\0';
        }
    }
}

static bool number(const char *text, uint64_t *value)
{
    char *end = NULL;
    errno = 0;
    *value = strtoull(text, &end, 0);
    return errno == 0 && end != text && *end == '\0';
}

CUpti_ActivityMemcpyKind double_way(const char *text)
{
    static const struct {
        const char *name;
        CUpti_ActivityMemcpyKind way;
    } ways[] = {{"to_host", CUPTI_ACTIVITY_MEMCPY_KIND_DTOH},
                {"to_device", CUPTI_ACTIVITY_MEMCPY_KIND_HTOD},
                {"on_device", CUPTI_ACTIVITY_MEMCPY_KIND_DTOD},
                {"host", CUPTI_ACTIVITY_MEMCPY_KIND_HTOH}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (strcmp(text, ways[i].name) == 0) {
            return ways[i].way;
        }
    }
    return CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN;
}

/* The verbs, and what their words are: n name, w way, b bytes, a address, t ns, s stream. */
static const struct {
    const char *verb, *takes;
} verbs[] = {{"kernel", "nt"}, {"copy", "wbt"}, {"fill", "bt"},    {"allocate", "ba"}, {"release", "a"},
             {"host", "ba"},   {"call", "t"},   {"overhead", "t"}, {"range", "n"},     {"end", ""},
             {"mark", "n"},    {"gap", "t"},    {"stream", "s"},   {"driver", ""},     {"runtime", ""}};

static bool read_item(double_item *item, const words *w)
{
    const char *takes = NULL;
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        takes = strcmp(w->word[0], verbs[i].verb) == 0 ? verbs[i].takes : takes;
    }
    if (takes == NULL || strlen(takes) + 1 != (size_t)w->count) {
        return false;
    }
    snprintf(item->verb, sizeof item->verb, "%s", w->word[0]);
    for (int i = 1; i < w->count; i++) {
        uint64_t value = 0;
        const char kind = takes[i - 1];
        if (kind == 'n') {
            snprintf(item->name, sizeof item->name, "%s", w->word[i]);
        } else if (kind == 'w') {
            item->way = double_way(w->word[i]);
        } else if (!number(w->word[i], &value)) {
            return false;
        } else if (kind == 's') {
            item->stream = (uint32_t)value;
        } else {
            *(kind == 'b' ? &item->bytes : kind == 'a' ? &item->address : &item->ns) = value;
        }
    }
    return true;
}

int double_script_run(const char *items, size_t length)
{
    double_item item = {.stream = 7};
    for (size_t at = 0; at < length;) {
        size_t end = at;
        while (end < length && items[end] != ';') {
            end++;
        }
        words w;
        if (!split(&w, items + at, end - at)) {
            return -1;
        }
        if (w.count > 0) {
            if (!read_item(&item, &w)) {
                return -1;
            }
            item.driver = strcmp(item.verb, "driver") == 0 || (item.driver && strcmp(item.verb, "runtime") != 0);
            if (strcmp(item.verb, "driver") != 0 && strcmp(item.verb, "runtime") != 0 &&
                strcmp(item.verb, "stream") != 0) {
                double_happen(&item);
            }
        }
        at = end + 1;
    }
    return 0;
}

/* The tag before a rule's colon: a number, "*", or none (then the whole line is items). */
static void rule_parts(const char *line, size_t length, const char **items, bool *any, uint64_t *tag, bool *tagged)
{
    char head[32];
    size_t at = 0;
    while (at < length && (line[at] == ' ' || line[at] == '\t')) {
        at++;
    }
    const char *const colon = memchr(line + at, ':', length - at);
    const size_t wide = colon == NULL ? 0 : (size_t)(colon - (line + at));
    *items = line;
    *any = *tagged = false;
    if (colon == NULL || wide >= sizeof head) {
        return;
    }
    memcpy(head, line + at, wide);
    head[wide] = '\0';
    *any = strcmp(head, "*") == 0;
    *tagged = *any || number(head, tag);
    *items = *tagged ? colon + 1 : line;
}

/* Call of each rule that `wanted` says: 0 the untagged ones, 1 those of `tag`, 2 those of any tag. Gives
 * their number. */
static int run_rules(int wanted, uint64_t tag)
{
    int count = 0;
    const char *line = cupti_double.rules;
    while (line != NULL && *line != '\0') {
        const size_t length = strcspn(line, "\n");
        const char *items = NULL;
        bool any = false;
        bool tagged = false;
        uint64_t of = 0;
        rule_parts(line, length, &items, &any, &of, &tagged);
        const int is = !tagged ? 0 : any ? 2 : 1;
        if (is == wanted && (is != 1 || of == tag)) {
            if (double_script_run(items, (size_t)(line + length - items)) != 0) {
                fprintf(stderr, "cupti double: not understood: %.*s\n", (int)length, line);
                abort();
            }
            count++;
        }
        line += length + (line[length] == '\n');
    }
    return count;
}

void double_script_begin(void)
{
    if (!cupti_double.begun) {
        cupti_double.begun = true;
        run_rules(0, 0);
    }
}

void double_script_pop(uint64_t tag)
{
    if (run_rules(1, tag) == 0) {
        run_rules(2, tag);
    }
}

static bool set_control(double_controls *c, const char *name, const char *value)
{
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"drop", &c->drop},     {"backwards", &c->backwards}, {"cut", &c->cut},
                   {"buffer", &c->buffer}, {"refuse", &c->refuse},       {"untimed", &c->untimed}};
    const struct {
        const char *name;
        bool *value;
    } flags[] = {{"thread", &c->thread}, {"reverse", &c->reverse}, {"running", &c->running}, {"keep", &c->keep}};
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            return number(value, numbers[i].value);
        }
    }
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strcmp(name, flags[i].name) == 0 && number(value, &n)) {
            *flags[i].value = n != 0;
            return true;
        }
    }
    if (strcmp(name, "version") == 0 && number(value, &n)) {
        c->version = (uint32_t)n;
        return true;
    }
    if (strcmp(name, "holder") == 0) {
        snprintf(c->holder, sizeof c->holder, "%s", value);
        return true;
    }
    const char *const colon = strchr(value, ':');
    if (strcmp(name, "fail") == 0 && colon != NULL && number(colon + 1, &n) && c->failures < MOST_FAILURES) {
        double_failure *const failure = &c->failure[c->failures++];
        snprintf(failure->function, sizeof failure->function, "%.*s", (int)(colon - value), value);
        failure->code = (CUptiResult)n;
        return true;
    }
    return false;
}

int double_controls_read(double_controls *controls, const char *text)
{
    for (const char *at = text; *at != '\0';) {
        char part[256];
        at += strspn(at, " ;\n");
        const size_t length = strcspn(at, ";\n");
        if (length >= sizeof part) {
            return -1;
        }
        memcpy(part, at, length);
        part[length] = '\0';
        char *const value = strchr(part, '=');
        if (length > 0) {
            if (value == NULL) {
                return -1;
            }
            *value = '\0';
            if (!set_control(controls, part, value + 1)) {
                return -1;
            }
        }
        at += length;
    }
    return 0;
}
