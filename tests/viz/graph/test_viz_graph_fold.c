/* labels: unit */
/* Repeated blocks in the drawing of a graph, read back from its DOT: unfolded again, a drawing must give the graph. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support_test.h"
#include "viz/viz.h"

enum { BOXES_MAX = 200, LAYERS_MAX = 1000, DEPTH_MAX = 32, CLUSTERS_MAX = 200, NAME_MAX_LENGTH = 100 };

/* A drawing as its DOT says it. Layer i is drawn as box `layer[i]`. */
typedef struct picture {
    int box_count, layer_count, depth, column_count;
    char color[BOXES_MAX][8];
    ckpt_bytes bytes[BOXES_MAX];
    int layer[LAYERS_MAX];
    int recomputed[BOXES_MAX];
    bool arrow[2][BOXES_MAX][BOXES_MAX]; /* solid, dashed */
    int cluster_count, cluster[DEPTH_MAX], opened[DEPTH_MAX], times[DEPTH_MAX];
    uint16_t frame[LAYERS_MAX][CLUSTERS_MAX]; /* the same number: in the same frame; 0: outside */
    uint16_t frame_count;
    bool is_frame[CLUSTERS_MAX];
    uint16_t block[LAYERS_MAX][CLUSTERS_MAX]; /* of a layer in a cluster, from 1; 0: outside */
    char labels[20000];                       /* of all clusters, a line each */
} picture;

typedef struct fixture {
    ckpt_arena arena;
    ckpt_text text;
    ckpt_err err;
    picture picture;
} fixture;

static int setup(void **state)
{
    fixture *const f = test_calloc(1, sizeof *f);
    ckpt_arena_init(&f->arena);
    ckpt_text_init(&f->text);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *const f = *state;
    ckpt_text_fini(&f->text);
    ckpt_arena_fini(&f->arena);
    test_free(f);
    return 0;
}

/* Close a cluster: what was drawn since it opened stands there `times` times. */
static void close_cluster(picture *p)
{
    p->depth--;
    const int first = p->opened[p->depth], count = p->layer_count - first;
    CHECK(first + count * p->times[p->depth] <= LAYERS_MAX, "too many layers");
    const uint16_t frames = ++p->frame_count;
    for (int i = first; i < first + count; i++) {
        p->block[i][p->cluster[p->depth]] = 1;
        p->frame[i][p->cluster[p->depth]] = p->is_frame[p->cluster[p->depth]] ? frames : 0;
    }
    p->frame_count = (uint16_t)(frames * p->times[p->depth]);
    for (int i = p->layer_count; i < first + count * p->times[p->depth]; i++) {
        p->layer[i] = p->layer[i - count];
        memcpy(p->block[i], p->block[i - count], sizeof p->block[i]);
        for (int c = 0; c < p->cluster_count; c++) {
            p->frame[i][c] = (uint16_t)(p->frame[i - count][c] > 0 ? p->frame[i - count][c] + frames : 0);
        }
        p->block[i][p->cluster[p->depth]]++;
        p->layer_count++;
    }
}

static void read_line(picture *p, const char *line)
{
    const char *const times = strstr(line, " ×"), *const label = strstr(line, "label=\"");
    int from = 0, to = 0, megabytes = 0;
    char rest[NAME_MAX_LENGTH];
    while (*line == ' ') {
        line++;
    }
    if (strncmp(line, "subgraph cluster_", 17) == 0 && strncmp(line, "subgraph cluster_legend", 23) != 0) {
        CHECK(p->depth < DEPTH_MAX && p->cluster_count < CLUSTERS_MAX, "too many clusters");
        p->cluster[p->depth] = p->cluster_count++;
        p->opened[p->depth] = p->layer_count;
        p->times[p->depth++] = 1;
    } else if (strncmp(line, "graph [style", 12) == 0) {
        strncat(p->labels, label + 7, strcspn(label + 7, "\""));
        strcat(p->labels, "\n");
        p->is_frame[p->cluster[p->depth - 1]] = strncmp(label + 7, "saves", 5) == 0;
        if (times != NULL) {
            assert_int_equal(sscanf(times, " ×%d", &p->times[p->depth - 1]), 1);
        }
    } else if (line[0] == '}' && p->depth > 0) {
        close_cluster(p);
    } else if (strstr(line, " -> \"") != NULL && sscanf(line, "\"%d %99[^\"]\" -> \"%d", &from, rest, &to) == 3) {
        p->arrow[strstr(line, "dashed") != NULL][from][to] = true;
    } else if (label != NULL && strstr(line, "fillcolor") != NULL && sscanf(line, "\"%d ", &from) == 1) {
        CHECK(from == p->box_count && from < BOXES_MAX, "box %d after %d", from, p->box_count);
        assert_int_equal(sscanf(strstr(line, "\\n"), "\\n%d", &megabytes), 1);
        p->bytes[from] = megabytes;
        memcpy(p->color[from], strstr(line, "fillcolor=\"") + 11, 7);
        const char *more = strstr(line, " more runs");
        const char *digits = more;
        while (more != NULL && digits[-1] >= '0' && digits[-1] <= '9') {
            digits--;
        }
        p->recomputed[from] = more != NULL ? atoi(digits) : 1;
        p->box_count++;
        p->layer[p->layer_count++] = from;
    }
    p->column_count += strstr(line, "column_0 -> column_1") != NULL;
}

static void draw(fixture *f, const ckpt_graph *graph, const ckpt_plan *plan, int fold)
{
    ckpt_text_fini(&f->text);
    ckpt_text_init(&f->text);
    CHECK_OK(ckpt_graph_draw(graph, plan, "dot", fold, &f->text, &f->err), f->err);
    memset(&f->picture, 0, sizeof f->picture);
    const char *line = f->text.bytes;
    bool legend = false;
    while (*line != '\0') {
        char one[4000];
        const size_t length = strcspn(line, "\n");
        CHECK(length < sizeof one, "a line of %zu bytes", length);
        memcpy(one, line, length);
        one[length] = '\0';
        legend = (legend && strcmp(one, "  }") != 0) || strstr(one, "cluster_legend") != NULL;
        if (!legend) {
            read_line(&f->picture, one);
        }
        line += length + (line[length] != '\0');
    }
}

/* A chain of layers "<name>.<kind>" of whole megabytes, each reading the layers so many places before it. */
typedef struct layer {
    const char *name;
    int megabytes, back[3], back_count;
    ckpt_decision decision;
    int group;   /* runs again together; 0: once */
    bool unread; /* by its backward */
} layer;

typedef struct made {
    ckpt_graph *graph;
    ckpt_plan *plan;
    const int *recomputed; /* per layer */
} made;

static made make(fixture *f, const layer *l, int count)
{
    ckpt_arena *const arena = &f->arena;
    ckpt_graph *const graph = CKPT_NEW(arena, ckpt_graph, 1);
    ckpt_plan *const plan = CKPT_NEW(arena, ckpt_plan, 1);
    ckpt_buffer *const buffer = CKPT_NEW(arena, ckpt_buffer, count);
    ckpt_graph_op *const op = CKPT_NEW(arena, ckpt_graph_op, 2 * count);
    ckpt_layer_decision *const decision = CKPT_NEW(arena, ckpt_layer_decision, count);
    ckpt_step *const step = CKPT_NEW(arena, ckpt_step, count * (count + 2));
    int *const recomputed = CKPT_NEW(arena, int, count);
    int steps = 0;
    for (int i = 0; i < count; i++) {
        int *const reads = CKPT_NEW(arena, int, 3), *const own = CKPT_NEW(arena, int, 1);
        int read_count = 0;
        for (int k = 0; k < l[i].back_count; k++) {
            const int from = i - l[i].back[k];
            bool known = from < 0 || from >= i;
            for (int r = 0; r < read_count; r++) {
                known = known || reads[r] == from;
            }
            if (!known) {
                reads[read_count++] = from;
            }
        }
        own[0] = i;
        buffer[i] = (ckpt_buffer){ckpt_arena_format(arena, "b%d", i), l[i].megabytes * 1000000LL, CKPT_ACTIVATION};
        op[i] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "f%d", i),
                                .phase = CKPT_FORWARD,
                                .layer = l[i].name,
                                .reads = {reads, read_count},
                                .writes = {own, 1},
                                .time_ns = 1000,
                                .recompute = true};
        op[2 * count - 1 - i] = (ckpt_graph_op){.name = ckpt_arena_format(arena, "g%d", i),
                                                .phase = CKPT_BACKWARD,
                                                .layer = l[i].name,
                                                .reads = {own, !l[i].unread},
                                                .time_ns = 2000};
        decision[i] = (ckpt_layer_decision){l[i].name, l[i].decision};
        step[steps++] = (ckpt_step){.kind = CKPT_RUN, .target = i};
    }
    for (int i = count - 1, last = 0; i >= 0; i--) {
        for (int k = 0; l[i].group != last && k < count; k++) {
            if (l[i].group > 0 && l[k].group == l[i].group && (recomputed[k] == 0 || k % 3 > 0)) {
                step[steps++] = (ckpt_step){.kind = CKPT_RUN, .target = k, .recomputed = true};
                recomputed[k]++;
            }
        }
        last = l[i].group;
        step[steps++] = (ckpt_step){.kind = CKPT_RUN, .target = 2 * count - 1 - i};
    }
    *graph = (ckpt_graph){.source = "made.json",
                          .name = "made",
                          .buffer = buffer,
                          .buffer_count = count,
                          .op = op,
                          .op_count = 2 * count};
    CHECK_OK(ckpt_graph_check(graph, arena, &f->err), f->err);
    *plan = (ckpt_plan){.graph_name = "made",
                        .solver = "hand",
                        .layer = decision,
                        .layer_count = count,
                        .step = step,
                        .step_count = steps};
    return (made){graph, plan, recomputed};
}

static bool goes_on(const picture *p, int from, int to)
{
    for (int c = 0; c < p->cluster_count; c++) {
        if (p->block[from][c] > 0 && p->block[to][c] > 0 && p->block[from][c] != p->block[to][c]) {
            return true;
        }
    }
    return false;
}

/* Unfolded, the drawing has the graph's layers in their order with their bytes, decisions and runs, every arrow that
 * the graph has, dashed if it goes to another block of the same repeat, and none that it does not have. */
static void check_unfolded(const picture *p, const layer *l, int count, const made *m, uint64_t round)
{
    static const char *const color[] = {"#cfe8f7", "#fbe0a6", "#efd3e2"};
    static bool wanted[2][BOXES_MAX][BOXES_MAX];
    CHECK(p->layer_count == count, "round %" PRIu64 ": %d layers unfold to %d", round, count, p->layer_count);
    memset(wanted, 0, sizeof wanted);
    for (int i = 0; i < count; i++) {
        const int box = p->layer[i];
        CHECK(p->bytes[box] == l[i].megabytes, "round %" PRIu64 ": layer %d is a box of %lld MB, not %d", round, i,
              (long long)p->bytes[box], l[i].megabytes);
        CHECK(strcmp(p->color[box], color[l[i].decision]) == 0, "round %" PRIu64 ": layer %d is %s", round, i,
              p->color[box]);
        CHECK(m->recomputed[i] < 2 ? p->recomputed[box] == 1 : p->recomputed[box] == m->recomputed[i],
              "round %" PRIu64 ": layer %d runs %d times more, not %d", round, i, p->recomputed[box], m->recomputed[i]);
        for (int r = 0; r < m->graph->op[i].reads.count; r++) {
            const int from = m->graph->op[i].reads.at[r];
            wanted[goes_on(p, from, i)][p->layer[from]][box] = true;
        }
    }
    for (int from = 0; from < p->box_count; from++) {
        for (int to = 0; to < p->box_count; to++) {
            for (int k = 0; k < 2; k++) {
                CHECK(wanted[k][from][to] == p->arrow[k][from][to], "round %" PRIu64 ": %s arrow from %d to %d is %s",
                      round, k == 1 ? "dashed" : "solid", from, to, p->arrow[k][from][to] ? "there" : "missing");
            }
        }
    }
}

/* Frame of each layer, from 1; 0: none. The first run again of neighbours comes between the same two first runs. */
static void find_frames(const made *m, int count, int *frame)
{
    int group[LAYERS_MAX] = {0}, first_runs = 1, frames = 0;
    for (int i = 0; i < m->plan->step_count; i++) {
        const ckpt_step *const step = &m->plan->step[i];
        first_runs += !step->recomputed;
        if (step->recomputed && group[step->target] == 0) {
            group[step->target] = first_runs;
        }
    }
    for (int i = 0; i < count; i++) {
        const bool before = i > 0 && group[i - 1] == group[i], after = i + 1 < count && group[i + 1] == group[i];
        frames += group[i] > 0 && after && !before;
        frame[i] = group[i] > 0 && (before || after) ? frames : 0;
    }
}

/* The frames of a drawing that is not folded say what they save and cost. */
static void check_frames(const picture *p, const layer *l, int count, const made *m, uint64_t round)
{
    int frame[LAYERS_MAX];
    char labels[4000] = "";
    find_frames(m, count, frame);
    for (int first = 0, next = 0; first < count; first = next) {
        int megabytes = 0, runs = 0;
        for (next = first; next < count && frame[next] == frame[first]; next++) {
            megabytes += l[next].unread ? 0 : l[next].megabytes;
            runs += m->recomputed[next];
        }
        if (frame[first] > 0) {
            char bytes[CKPT_UNITS_TEXT], time[CKPT_UNITS_TEXT];
            const size_t length = strlen(labels);
            snprintf(labels + length, sizeof labels - length, "saves %s, costs %s\n",
                     ckpt_bytes_show(megabytes * 1000000LL, bytes), ckpt_ns_show(runs * 1000LL, time));
        }
    }
    CHECK(strcmp(p->labels, labels) == 0, "round %" PRIu64 ": frames are\n%s, wanted\n%s", round, p->labels, labels);
}

/* Unfolded, two neighbours are in one frame when they are in one segment. */
static void check_folded_frames(const picture *p, int count, const made *m, uint64_t round)
{
    int frame[LAYERS_MAX];
    find_frames(m, count, frame);
    for (int i = 0; i + 1 < count; i++) {
        bool same = false;
        for (int c = 0; c < p->cluster_count; c++) {
            same = same || (p->frame[i][c] > 0 && p->frame[i][c] == p->frame[i + 1][c]);
        }
        CHECK(same == (frame[i] > 0 && frame[i] == frame[i + 1]),
              "round %" PRIu64 ": layers %d and %d are%s in a frame", round, i, i + 1, same ? "" : " not");
    }
}

/* Whether layer i reads a layer of box `from`, in its own block of all repeats that hold both. */
static bool reads_box(const picture *p, const ckpt_graph *graph, int i, int from)
{
    for (int r = 0; r < graph->op[i].reads.count; r++) {
        const int source = graph->op[i].reads.at[r];
        if (p->layer[source] == from && !goes_on(p, source, i)) {
            return true;
        }
    }
    return false;
}

/* What an arrow within a block says holds in every block, and what comes from before all blocks is read by the first of
 * them alone, or by all (where no blocks are in blocks). */
static void check_blocks(const picture *p, int count, const made *m, uint64_t round)
{
    int of_box[BOXES_MAX];
    static bool some[BOXES_MAX][BOXES_MAX], all[BOXES_MAX][BOXES_MAX];
    memset(some, false, sizeof some);
    memset(all, true, sizeof all);
    for (int i = count - 1; i >= 0; i--) {
        of_box[p->layer[i]] = i;
    }
    for (int i = 0; i < count; i++) {
        for (int from = 0; from < p->box_count; from++) {
            const int box = p->layer[i];
            bool inside = true, first = true;
            int repeats = 0;
            for (int c = 0; p->arrow[0][from][box] && c < p->cluster_count; c++) {
                const bool apart = p->block[i][c] > 0 && p->block[of_box[from]][c] == 0;
                inside = inside && !apart;
                first = first && (!apart || p->block[i][c] == 1);
                repeats += apart && !p->is_frame[c];
            }
            const bool read = reads_box(p, m->graph, i, from);
            CHECK(!p->arrow[0][from][box] || !inside || read, "round %" PRIu64 ": layer %d does not read box %d", round,
                  i, from);
            some[from][box] = some[from][box] || (read && !first && repeats == 1);
            all[from][box] = all[from][box] && read;
        }
    }
    for (int from = 0; from < p->box_count; from++) {
        for (int to = 0; to < p->box_count; to++) {
            CHECK(!p->arrow[0][from][to] || !some[from][to] || all[from][to],
                  "round %" PRIu64 ": not all that box %d is read box %d", round, to, from);
        }
    }
}

static int put_block(fixture *f, layer *l, int at, int block, ckpt_decision decision)
{
    static const char *const kind[] = {"norm", "linear", "relu", "add"};
    for (int k = 0; k < 4; k++) {
        l[at + k] = (layer){.name = ckpt_arena_format(&f->arena, "h.%d.%s", block, kind[k]),
                            .megabytes = 1 + k,
                            .back = {1, 4},
                            .back_count = k == 3 ? 2 : 1,
                            .decision = decision};
    }
    return at + 4;
}

static int blocks(fixture *f, layer *l, const char *decisions, int group)
{
    int at = 0;
    l[at++] = (layer){.name = "embed", .megabytes = 9};
    for (int b = 0; decisions[b] != '\0'; b++) {
        at = put_block(f, l, at, b, decisions[b] == 'r' ? CKPT_RECOMPUTE : CKPT_KEEP);
        for (int k = 0; group > 0 && decisions[b] == 'r' && k < 4; k++) {
            l[at - 1 - k].group = 1 + b / group;
        }
    }
    l[at] = (layer){.name = "head", .megabytes = 8, .back = {1}, .back_count = 1};
    return at + 1;
}

/* What decides alike is one block; what does not, is not. */
static void decisions_divide_blocks(void **state)
{
    static const struct {
        const char *decisions;
        int group;
        const char *labels[4];
        int boxes;
    } cases[] = {
        {"kkkkkkkkkkkkkkkkkkkkkkkk", 0, {"h.0 … h.23 ×24"}, 6},
        {"kkkkkkkkkkkkrrrrrrrrrrrr", 0, {"h.0 … h.11 ×12", "h.12 … h.23 ×12"}, 10},
        {"krkrkrkrkrkr", 0, {"h.0 to h.1 … h.10 to h.11 ×6"}, 10},
        {"rrkrrkrrk", 0, {"h.0 to h.2 … h.6 to h.8 ×3", "h.0 … h.1 ×2"}, 10},
        {"rrrrrrrr", 4, {"h.0 to h.3 … h.4 to h.7 ×2", "h.0 … h.3 ×4", "saves 40.0 MB, costs 16.0 us"}, 6},
        {"kr", 0, {"h.0.norm"}, 10},
    };
    fixture *const f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        layer l[200];
        const int count = blocks(f, l, cases[i].decisions, cases[i].group);
        const made m = make(f, l, count);
        draw(f, m.graph, m.plan, 1);
        CHECK(f->picture.box_count == cases[i].boxes, "%s: %d boxes, %s", cases[i].decisions, f->picture.box_count,
              f->picture.labels);
        for (int k = 0; k < 4 && cases[i].labels[k] != NULL; k++) {
            CHECK(strstr(f->text.bytes, cases[i].labels[k]) != NULL, "%s: no \"%s\"", cases[i].decisions,
                  cases[i].labels[k]);
        }
        check_unfolded(&f->picture, l, count, &m, i);
        draw(f, m.graph, m.plan, 1000);
        CHECK(strchr(f->text.bytes, '\xc3') == NULL, "%s: folded below its limit", cases[i].decisions); /* the sign × */
    }
}

/* What reads a folded block of another column reads its last repetition, and says so; within a block it is
 * the first. */
static void names_across_columns(void **state)
{
    fixture *const f = *state;
    layer l[200];
    int count = blocks(f, l, "kkkkkkkkkkkk", 0) - 1; /* a long tail of layers that differ */
    for (int i = 0; i < 26; i++) {
        l[count++] = (layer){.name = ckpt_arena_format(&f->arena, "tail%c", 'a' + i),
                             .megabytes = 1,
                             .back = {1, 48},
                             .back_count = i == 25 ? 2 : 1};
    }
    l[count - 1].back[1] = count - 1 - 48; /* reads h.11.add */
    made m = make(f, l, count);
    draw(f, m.graph, NULL, 1);
    assert_non_null(strstr(f->text.bytes, "column_0 -> column_1"));
    assert_non_null(strstr(f->text.bytes, "h.0 … h.11 ×12"));
    assert_non_null(strstr(f->text.bytes, "label=\"from h.11.add\""));
    assert_null(strstr(f->text.bytes, "from h.0.add"));

    count = 1;
    for (int b = 0; b < 3; b++) { /* long blocks, which a column's end cuts */
        for (int i = 0; i < 30; i++) {
            l[count++] = (layer){.name = ckpt_arena_format(&f->arena, "h.%d.%c", b, 'A' + i),
                                 .megabytes = 1,
                                 .back = {1, i},
                                 .back_count = i == 29 ? 2 : 1};
        }
    }
    m = make(f, l, count);
    draw(f, m.graph, NULL, 1);
    assert_non_null(strstr(f->text.bytes, "h.0 … h.2 ×3, continued"));
    assert_non_null(strstr(f->text.bytes, "from h.0."));
    assert_null(strstr(f->text.bytes, "from h.1."));
    assert_null(strstr(f->text.bytes, "from h.2."));
}

/* A value of one block that is read far behind keeps its block apart; one that all read does not. */
static void skips_stay_apart(void **state)
{
    fixture *const f = *state;
    layer l[100];
    const int count = blocks(f, l, "kkkkkkkk", 0);
    l[count - 1].back[l[count - 1].back_count++] = count - 1 - 12; /* head reads h.2.add */
    made m = make(f, l, count);
    draw(f, m.graph, m.plan, 1);
    assert_non_null(strstr(f->text.bytes, "h.0 … h.2 ×3"));
    assert_non_null(strstr(f->text.bytes, "h.3 … h.7 ×5"));
    check_unfolded(&f->picture, l, count, &m, 0);

    (void)blocks(f, l, "kkkkkkkk", 0);
    for (int b = 0; b < 8; b++) { /* every add reads embed */
        l[4 + 4 * b].back[2] = 4 + 4 * b;
        l[4 + 4 * b].back_count = 3;
    }
    m = make(f, l, count);
    draw(f, m.graph, m.plan, 1);
    assert_non_null(strstr(f->text.bytes, "×7")); /* the first block reads embed twice, which is once */
    check_unfolded(&f->picture, l, count, &m, 0);
}

static int below(int limit)
{
    return (int)ckpt_test_draw((uint64_t)limit);
}

/* As in a U-Net: each block reads what another block wrote far before, the first one the last. */
static void mirrored_skips_are_not_folded(void **state)
{
    fixture *const f = *state;
    enum { SIDE = 6 };
    layer l[2 * SIDE];
    for (int i = 0; i < 2 * SIDE; i++) {
        l[i] = (layer){.name = ckpt_arena_format(&f->arena, "%s.%d", i < SIDE ? "down" : "up", i % SIDE),
                       .megabytes = 1,
                       .back = {1, 2 * (i - SIDE) + 1},
                       .back_count = i < SIDE ? 1 : 2};
    }
    const made m = make(f, l, 2 * SIDE);
    draw(f, m.graph, m.plan, 1);
    assert_int_equal(f->picture.box_count, 2 * SIDE);
    for (int i = SIDE; i < 2 * SIDE; i++) { /* in the same order: still each another one */
        l[i].back[1] = SIDE;
    }
    const made along = make(f, l, 2 * SIDE);
    draw(f, along.graph, along.plan, 1);
    assert_int_equal(f->picture.box_count, 2 * SIDE);
    for (int i = SIDE; i < 2 * SIDE; i++) { /* all but one read the same */
        l[i].back[1] = i < 2 * SIDE - 1 ? i : i - 2;
    }
    const made other = make(f, l, 2 * SIDE);
    draw(f, other.graph, other.plan, 1);
    assert_non_null(strstr(f->text.bytes, "up.0 … up.4 ×5"));
    for (int i = SIDE; i < 2 * SIDE; i++) {
        l[i].back[1] = i;
    }
    const made same = make(f, l, 2 * SIDE);
    draw(f, same.graph, same.plan, 1);
    assert_non_null(strstr(f->text.bytes, "up.0 … up.5 ×6"));
}

/* Random sequences of few kinds of layers, with reads near and far, decisions and groups. */
static void random_graphs(void **state)
{
    fixture *const f = *state;
    enum { MOST = 40 };
    const uint64_t rounds = ckpt_test_rounds(3000, 300);
    uint64_t folded = 0, one_column = 0;
    for (uint64_t round = 1; round <= rounds; round++) {
        const ckpt_mark mark = ckpt_arena_mark(&f->arena);
        layer l[MOST] = {{0}};
        const int count = 2 + below(MOST - 2), period = 1 + below(8);
        const int kinds = 1 + below(3), inner = 1 + below(period);
        for (int i = 0; i < count; i++) {
            const bool copy = i >= period && below(40) > 0;
            const bool copy_inner = i % period >= inner && below(4) > 0;
            l[i] = copy         ? l[i - period]
                   : copy_inner ? l[i - inner]
                                : (layer){.megabytes = 1 + below(kinds),
                                          .back = {1, 1 + below(12), i},
                                          .back_count = below(4),
                                          .decision = (ckpt_decision)below(2)};
            l[i].name = ckpt_arena_format(&f->arena, "%d", i);
            l[i].group = 0;
            l[i].unread = below(4) == 0;
            if (l[i].back_count == 3 && below(2) == 0) {
                l[i].back[2] = i; /* the first layer, wherever it stands */
            }
        }
        for (int i = 0, group = 1; i < count && round % 3 == 0; i++) {
            group += below(3) == 0;
            l[i].group = l[i].decision == CKPT_RECOMPUTE ? group : 0;
        }
        const made m = make(f, l, count);
        draw(f, m.graph, m.plan, 1);
        folded += f->picture.box_count < count;
        if (f->picture.column_count == 0) {
            one_column++;
            check_unfolded(&f->picture, l, count, &m, round);
            check_folded_frames(&f->picture, count, &m, round);
            check_blocks(&f->picture, count, &m, round);
        }
        draw(f, m.graph, m.plan, 1000);
        if (f->picture.column_count == 0) {
            check_frames(&f->picture, l, count, &m, round);
        }
        ckpt_arena_rewind(&f->arena, mark);
    }
    CHECK(folded > rounds / 3, "only %" PRIu64 " drawings were folded", folded);
    CHECK(one_column > rounds / 3, "only %" PRIu64 " drawings were compared", one_column);
}

/* Layers that run again between the same two first runs are one segment; what it saves is what backward reads. */
static void segments(void **state)
{
    fixture *const f = *state;
    layer l[20];
    const int count = blocks(f, l, "rrk", 1);
    const made m = make(f, l, count);
    draw(f, m.graph, m.plan, 0);
    assert_string_equal(f->picture.labels, "saves 10.0 MB, costs 4.00 us\nsaves 10.0 MB, costs 4.00 us\n");
    check_unfolded(&f->picture, l, count, &m, 0);

    /* A sum beyond 63 bits is the largest there is. */
    ckpt_graph_op *const op = CKPT_NEW(&f->arena, ckpt_graph_op, m.graph->op_count);
    memcpy(op, m.graph->op, (size_t)m.graph->op_count * sizeof *op);
    for (int i = 1; i <= 4; i++) {
        op[i].time_ns = (ckpt_ns)1 << 61;
    }
    m.graph->op = op;
    draw(f, m.graph, m.plan, 0);
    char words[100], time[CKPT_UNITS_TEXT];
    snprintf(words, sizeof words, "saves 10.0 MB, costs %s\n", ckpt_ns_show(INT64_MAX, time));
    CHECK(strncmp(f->picture.labels, words, strlen(words)) == 0, "%s, wanted %s", f->picture.labels, words);
}

/* Arrows from a layer with several outputs say the bytes of those that are read, once however often the block is there:
 * "a" writes 3 and 5 MB, "b" reads the first one and the second one of the block before, "c" both. */
static void bytes_on_arrows(void **state)
{
    fixture *const f = *state;
    enum { BLOCKS = 6, OPS = 1 + 3 * BLOCKS, BUFFERS = 1 + 4 * BLOCKS };
    static const int megabytes[] = {3, 5, 1, 2};
    static const char *const kind[] = {"a", "b", "c"};
    ckpt_buffer buffer[BUFFERS] = {{"embed", 9000000, CKPT_ACTIVATION}};
    ckpt_graph_op op[OPS] = {{.name = "embed", .layer = "embed", .writes = {(const int[]){0}, 1}}};
    int at[OPS][5];
    for (int b = 0; b < BLOCKS; b++) {
        const int first = 1 + 4 * b, before = b == 0 ? 0 : first - 3;
        const int lists[3][5] = {
            {first - 1, first, first + 1}, {first, before, first + 2}, {first, first + 1, first + 3}};
        for (int i = 0; i < 4; i++) {
            buffer[first + i] =
                (ckpt_buffer){ckpt_arena_format(&f->arena, "%d.%d", b, i), megabytes[i] * 1000000LL, CKPT_ACTIVATION};
        }
        for (int k = 0; k < 3; k++) {
            const int o = 1 + 3 * b + k, reads = k == 0 ? 1 : 2;
            memcpy(at[o], lists[k], sizeof at[o]);
            op[o] = (ckpt_graph_op){.name = ckpt_arena_format(&f->arena, "h.%d.%s", b, kind[k]),
                                    .reads = {at[o], reads},
                                    .writes = {at[o] + reads, k == 0 ? 2 : 1}};
            op[o].layer = op[o].name;
        }
    }
    ckpt_graph graph = {
        .source = "made.json", .name = "made", .buffer = buffer, .buffer_count = BUFFERS, .op = op, .op_count = OPS};
    CHECK_OK(ckpt_graph_check(&graph, &f->arena, &f->err), f->err);
    draw(f, &graph, NULL, 1);
    assert_non_null(strstr(f->text.bytes, "h.0 … h.5 ×6"));
    assert_non_null(strstr(f->text.bytes, "\"1 h.0.a\" -> \"2 h.0.b\" [weight=8, label=\" 3.00 MB\"]"));
    assert_non_null(strstr(f->text.bytes, "\"1 h.0.a\" -> \"2 h.0.b\" [style=dashed, color=\"#0072b2\", "
                                          "constraint=false, label=\" 5.00 MB\"]"));
    assert_non_null(strstr(f->text.bytes, "\"1 h.0.a\" -> \"3 h.0.c\" [weight=1, label=\" 8.00 MB\"]"));
}

static void units(void **state)
{
    fixture *const f = *state;
    layer l[20];
    const int count = blocks(f, l, "rrk", 2);
    const made m = make(f, l, count);
    ckpt_graph_op *const op = CKPT_NEW(&f->arena, ckpt_graph_op, m.graph->op_count);
    memcpy(op, m.graph->op, (size_t)m.graph->op_count * sizeof *op);
    m.graph->op = op;
    for (int i = 1; i <= 12; i++) {
        op[i].segment = i <= 8 ? "first" : "second";
    }
    draw(f, m.graph, NULL, 0);
    assert_string_equal(f->picture.labels, "unit first\nunit second\n");
    draw(f, m.graph, m.plan, 0);
    assert_string_equal(f->picture.labels, "unit first\nsaves 20.0 MB, costs 8.00 us\nunit second\n");
    for (int i = 1; i <= 12; i++) {
        op[i].segment = i <= 6 ? "first" : "second"; /* the segment cuts the second one: it is what is drawn */
    }
    draw(f, m.graph, m.plan, 0);
    assert_string_equal(f->picture.labels, "saves 20.0 MB, costs 8.00 us\nunit first\n");
}

static ckpt_code draw_starved(void *context, ckpt_text *text, ckpt_err *err)
{
    const made *const m = context;
    return ckpt_graph_draw(m->graph, m->plan, "dot", 1, text, err);
}

static void starved(void **state)
{
    fixture *const f = *state;
    layer l[200];
    made m = make(f, l, blocks(f, l, "krkrkrkrrrrkkkkrrkrrkrrkrrk", 1));
    CHECK(ckpt_test_starve_text(draw_starved, &m) > 2, "too few allocations to mean anything");
}

int main(int argc, char **argv)
{
    ckpt_test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decisions_divide_blocks, setup, teardown),
        cmocka_unit_test_setup_teardown(names_across_columns, setup, teardown),
        cmocka_unit_test_setup_teardown(skips_stay_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(mirrored_skips_are_not_folded, setup, teardown),
        cmocka_unit_test_setup_teardown(random_graphs, setup, teardown),
        cmocka_unit_test_setup_teardown(segments, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_on_arrows, setup, teardown),
        cmocka_unit_test_setup_teardown(units, setup, teardown),
        cmocka_unit_test_setup_teardown(starved, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
