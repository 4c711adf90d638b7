/* Random networks that are trained by schemes: many skips, views, split outputs, ties, branches that lead nowhere. */
#ifndef CKPT_TESTS_SUPPORT_SCHEME_H
#define CKPT_TESTS_SUPPORT_SCHEME_H

#include "tests/support/support_network.h"

/* At most so many layers (and three more where views or halves are made of one); drawn with ckpt_test_draw. */
void test_random_model(test_model *m, int layers);

/* The network by a scheme of so many stages, whose first layers are drawn; where layers that share parameters would be
 * parted and the optimizer is sharded, or there are too few layers, of fewer stages. The scheme's other members
 * stay. */
const ckpt_network *test_spread(test_model *m, const ckpt_network *network, ckpt_scheme scheme);

/* The network by just that scheme, for that stage. */
const ckpt_network *test_stage(test_model *m, const ckpt_network *network, ckpt_scheme scheme, int stage);

const ckpt_lowered *test_lower_network(test_model *m, const ckpt_network *network);

/* The name without "@j" (batch >= 0), in the model's arena. */
const char *test_plain_name(test_model *m, const char *name, int batch);

#endif
