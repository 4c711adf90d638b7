/* Linear and integer programs by GLPK: the only file that knows it. */
#include <glpk.h>
#include <math.h>

#include "planner/solver.h"
