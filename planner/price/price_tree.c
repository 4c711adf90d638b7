/* A tree of sums over ranges: nodes from the leaves up, nothing is pushed down. */
#include "planner/price/price_impl.h"

#define NOTHING (INT64_MIN / 2)

static ckpt_bytes larger(ckpt_bytes a, ckpt_bytes b)
{
    return a > b ? a : b;
}

ckpt_code ckpt_price_tree_take(ckpt_price_tree *tree, int moments, ckpt_arena *scratch, ckpt_err *err)
{
    tree->leaves = 4;
    while (tree->leaves < moments + 2) {
        tree->leaves *= 2;
    }
    tree->most = CKPT_NEW(scratch, ckpt_bytes, 2 * (size_t)tree->leaves);
    tree->added = CKPT_NEW(scratch, ckpt_bytes, 2 * (size_t)tree->leaves);
    return tree->most != NULL && tree->added != NULL ? CKPT_OK
                                                     : CKPT_FAIL(err, CKPT_NO_MEMORY, "bytes of %d moments", moments);
}

void ckpt_price_tree_fill(ckpt_price_tree *tree, const ckpt_bytes *bytes, int moments)
{
    for (int i = 0; i < tree->leaves; i++) {
        const bool inside = i > 0 && i <= moments;
        tree->most[tree->leaves + i] = !inside ? NOTHING : bytes != NULL ? bytes[i - 1] : 0;
        tree->added[tree->leaves + i] = 0;
    }
    for (int i = tree->leaves - 1; i > 0; i--) {
        tree->most[i] = larger(tree->most[2 * i], tree->most[2 * i + 1]);
        tree->added[i] = 0;
    }
}

static void add_at(ckpt_price_tree *tree, int node, ckpt_bytes bytes)
{
    tree->most[node] += bytes;
    tree->added[node] += bytes;
}

static void update(ckpt_price_tree *tree, int node)
{
    tree->most[node] = larger(tree->most[2 * node], tree->most[2 * node + 1]) + tree->added[node];
}

void ckpt_price_tree_add(ckpt_price_tree *tree, int from, int to, ckpt_bytes bytes)
{
    if (from > to) {
        return;
    }
    int left = tree->leaves + from; /* the leaves just outside */
    int right = tree->leaves + to + 2;
    while ((left ^ right) != 1) {
        if (left % 2 == 0) {
            add_at(tree, left + 1, bytes);
        }
        if (right % 2 == 1) {
            add_at(tree, right - 1, bytes);
        }
        left /= 2;
        right /= 2;
        update(tree, left);
        update(tree, right);
    }
    for (left /= 2; left > 0; left /= 2) {
        update(tree, left);
    }
}

ckpt_bytes ckpt_price_tree_most(const ckpt_price_tree *tree, int from, int to)
{
    ckpt_bytes on_left = NOTHING, on_right = NOTHING;
    int left = tree->leaves + from;
    int right = tree->leaves + to + 2;
    while ((left ^ right) != 1) {
        on_left = left % 2 == 0 ? larger(on_left, tree->most[left + 1]) : on_left;
        on_right = right % 2 == 1 ? larger(on_right, tree->most[right - 1]) : on_right;
        left /= 2;
        right /= 2;
        on_left += tree->added[left];
        on_right += tree->added[right];
    }
    ckpt_bytes most = larger(on_left, on_right);
    for (left /= 2; left > 0; left /= 2) {
        most += tree->added[left];
    }
    return most;
}

void ckpt_price_tree_read(ckpt_price_tree *tree, ckpt_bytes *bytes, int moments)
{
    for (int i = 1; i < tree->leaves; i++) {
        add_at(tree, 2 * i, tree->added[i]);
        add_at(tree, 2 * i + 1, tree->added[i]);
    }
    for (int j = 0; j < moments; j++) {
        bytes[j] = tree->most[tree->leaves + j + 1];
    }
}
