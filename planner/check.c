/* Checks that a plan can be replayed as it says. */
#include "planner/replay.h"
