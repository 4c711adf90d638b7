/* The date of the version that include/ckpt.h names: of the programs, the libraries and the C API. */
#ifndef CKPT_CORE_BASE_VERSION_H
#define CKPT_CORE_BASE_VERSION_H

#include "include/ckpt.h"

#define CKPT_VERSION_DATE "2026-11-20"

#endif
