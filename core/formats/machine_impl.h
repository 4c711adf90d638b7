/* The machine block as the readers of profiles and traces take it. */
#ifndef CKPT_CORE_FORMATS_MACHINE_IMPL_H
#define CKPT_CORE_FORMATS_MACHINE_IMPL_H

#include "core/formats/machine.h"
#include "core/json/json_member.h"

/* The commit that was built, with "-dirty" if files differ from it; "unknown" outside git. The build writes it. */
extern const char ckpt_commit[];

/* The member "machine" of a profile or trace. Without one all texts are "". */
CKPT_MUST_USE ckpt_code ckpt_machine_item(const ckpt_item *parent, ckpt_arena *out, ckpt_machine *machine,
                                          ckpt_err *err);

#endif
