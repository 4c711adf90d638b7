/* The graph through Graphviz cgraph. */
#include "viz/viz.h"
