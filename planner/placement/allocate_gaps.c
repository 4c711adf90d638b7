/* Free room between blocks that come and go: a search tree of gaps.
 *
 * Every gap belongs to the block below it, and blocks know their neighbours, so what is given back is joined in O(1).
 * The tree stands in the order in which gaps are preferred, by address or by size; every node knows the largest gap
 * below it, so the first gap that is large enough is found from the root down. It is a treap (Seidel & Aragon,
 * Randomized search trees, Algorithmica 16, 1996) with fixed priorities: same blocks, same answers. */
#include "planner/placement/allocate_impl.h"

typedef struct gap_node {
    ckpt_bytes from, size; /* of the gap above this block */
    ckpt_bytes most;       /* the largest gap of the subtree */
    int left, right;       /* children; 0: none */
    int below, above;      /* neighbours in memory; `above` 0: none */
} gap_node;

struct ckpt_gaps {
    bool tightest;
    int root;
    gap_node *node; /* [1]: the start of memory; block b is [b + 2]; [0]: no node */
};

enum { START = 1, FIRST = 2 };

ckpt_gaps *ckpt_gaps_take(int blocks, ckpt_arena *scratch)
{
    ckpt_gaps *const gaps = CKPT_NEW(scratch, ckpt_gaps, 1);
    gap_node *const node = gaps != NULL ? CKPT_NEW(scratch, gap_node, (size_t)blocks + FIRST) : NULL;
    if (node == NULL) {
        return NULL;
    }
    gaps->node = node;
    return gaps;
}

void ckpt_gaps_clear(ckpt_gaps *gaps, bool tightest)
{
    gaps->tightest = tightest;
    gaps->root = START;
    gaps->node[START] = (gap_node){.size = CKPT_BYTES_MAX, .most = CKPT_BYTES_MAX};
}

/* Spreads numbers of nodes over all 32-bit values, each to another one (multiplication by odd numbers). */
static uint32_t priority(int n)
{
    uint32_t x = (uint32_t)n * 2654435769U;
    x ^= x >> 15;
    x *= 2246822519U;
    return x ^ (x >> 13);
}

static bool is_before(const ckpt_gaps *gaps, int a, int b)
{
    const gap_node *const x = &gaps->node[a];
    const gap_node *const y = &gaps->node[b];
    return gaps->tightest && x->size != y->size ? x->size < y->size : x->from < y->from;
}

static void update(gap_node *node, int n)
{
    const ckpt_bytes left = node[node[n].left].most;
    const ckpt_bytes right = node[node[n].right].most;
    const ckpt_bytes most = left > right ? left : right;
    node[n].most = node[n].size > most ? node[n].size : most;
}

/* The subtree of `n` into nodes before and behind `at`. */
static void split(ckpt_gaps *gaps, int n, int at, int *before, int *behind)
{
    gap_node *const node = gaps->node;
    if (n == 0) {
        *before = *behind = 0;
        return;
    }
    if (is_before(gaps, n, at)) {
        *before = n;
        split(gaps, node[n].right, at, &node[n].right, behind);
    } else {
        *behind = n;
        split(gaps, node[n].left, at, before, &node[n].left);
    }
    update(node, n);
}

static int merge(gap_node *node, int a, int b)
{
    if (a == 0 || b == 0) {
        return a + b;
    }
    const int top = priority(a) > priority(b) ? a : b;
    if (top == a) {
        node[a].right = merge(node, node[a].right, b);
    } else {
        node[b].left = merge(node, a, node[b].left);
    }
    update(node, top);
    return top;
}

/* Node `added` into the subtree of `n`. Gives its new root. */
static int add(ckpt_gaps *gaps, int n, int added)
{
    gap_node *const node = gaps->node;
    if (n == 0 || priority(added) > priority(n)) {
        split(gaps, n, added, &node[added].left, &node[added].right);
        n = added;
    } else if (is_before(gaps, added, n)) {
        node[n].left = add(gaps, node[n].left, added);
    } else {
        node[n].right = add(gaps, node[n].right, added);
    }
    update(node, n);
    return n;
}

static int remove_from(ckpt_gaps *gaps, int n, int gone)
{
    gap_node *const node = gaps->node;
    if (n == gone) {
        return merge(node, node[n].left, node[n].right);
    }
    if (is_before(gaps, gone, n)) {
        node[n].left = remove_from(gaps, node[n].left, gone);
    } else {
        node[n].right = remove_from(gaps, node[n].right, gone);
    }
    update(node, n);
    return n;
}

/* The gap above `n` becomes another one. */
static void set_gap(ckpt_gaps *gaps, int n, ckpt_bytes from, ckpt_bytes size)
{
    if (gaps->node[n].size > 0) {
        gaps->root = remove_from(gaps, gaps->root, n);
    }
    gaps->node[n].from = from;
    gaps->node[n].size = size;
    if (size > 0) {
        gaps->root = add(gaps, gaps->root, n);
    }
}

ckpt_bytes ckpt_gaps_put(ckpt_gaps *gaps, int block, ckpt_bytes bytes)
{
    gap_node *const node = gaps->node;
    int n = gaps->root;
    if (node[n].most < bytes) {
        return -1;
    }
    while (node[node[n].left].most >= bytes || node[n].size < bytes) {
        n = node[node[n].left].most >= bytes ? node[n].left : node[n].right;
    }
    const ckpt_bytes offset = node[n].from;
    const ckpt_bytes left = node[n].size - bytes;
    const int b = block + FIRST;
    set_gap(gaps, n, offset, 0);
    node[b] = (gap_node){.below = n, .above = node[n].above};
    node[node[n].above].below = b;
    node[n].above = b;
    set_gap(gaps, b, offset + bytes, left);
    return offset;
}

void ckpt_gaps_remove(ckpt_gaps *gaps, int block, ckpt_bytes bytes)
{
    gap_node *const node = gaps->node;
    const int b = block + FIRST;
    const int below = node[b].below;
    const ckpt_bytes size = node[below].size + bytes + node[b].size;
    const ckpt_bytes from = node[b].from - bytes - node[below].size;
    set_gap(gaps, b, node[b].from, 0);
    node[below].above = node[b].above;
    node[node[b].above].below = below;
    set_gap(gaps, below, from, size);
}
