/* Replays a plan on the clock. */
#include "planner/replay.h"
