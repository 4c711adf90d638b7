#include "planner/schedule/strategy.h"

#include <string.h>

const ckpt_strategy *ckpt_strategy_find(const char *name)
{
    for (int i = 0; ckpt_strategy_table[i] != NULL; i++) {
        if (strcmp(ckpt_strategy_table[i]->name, name) == 0) {
            return ckpt_strategy_table[i];
        }
    }
    return NULL;
}
