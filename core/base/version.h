/* The version of ckpt: of its programs, its libraries and the C API (semantic versioning, https://semver.org). */
#ifndef CKPT_CORE_BASE_VERSION_H
#define CKPT_CORE_BASE_VERSION_H

#define CKPT_VERSION      "0.1.0"
#define CKPT_VERSION_DATE "2026-11-20"

#endif
