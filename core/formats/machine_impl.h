/* The machine block as the readers of profiles and traces take it. */
#ifndef CKPT_CORE_FORMATS_MACHINE_IMPL_H
#define CKPT_CORE_FORMATS_MACHINE_IMPL_H

#include "core/formats/machine.h"
#include "core/json/json_member.h"

/* The commit that was built, "-dirty" when files differ from it; "unknown" outside git. In a file the build writes. */
extern const char ckpt_commit[];

/* "machine" of a profile or trace; absent: all "". */
CKPT_MUST_USE ckpt_code ckpt_machine_item(const ckpt_item *parent, ckpt_arena *out, ckpt_machine *machine,
                                          ckpt_err *err);

#endif
