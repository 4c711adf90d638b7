/* What the readers of the formats share, and the two halves of the command line. */
#ifndef CKPT_CORE_CORE_IMPL_H
#define CKPT_CORE_CORE_IMPL_H

#include "core/cli.h"
#include "core/digest.h"
#include "core/json.h"
#include "core/machine.h"

/* A hash table from names to indices. Keys are borrowed; everything else lives in the arena. */
typedef struct ckpt_names {
    const char **key;
    int *index;
    size_t room; /* power of two, at least twice the names */
} ckpt_names;

/* Room for `count` names. */
CKPT_MUST_USE ckpt_code ckpt_names_init(ckpt_names *names, int count, ckpt_arena *arena, ckpt_err *err);

/* -1 and the name is in; or the index it already has, and nothing changes. */
int ckpt_names_add(ckpt_names *names, const char *key, int index);
int ckpt_names_find(const ckpt_names *names, const char *key); /* -1: not there */

/* Put "file:line:column: " of the item before the message that is there, and hand `code` on. */
ckpt_code ckpt_item_blame(const ckpt_item *item, ckpt_code code, ckpt_err *err);

/* Places of all elements of an array in one walk. Cost: O(file). */
void ckpt_item_positions(const ckpt_item *array, ckpt_position *at);

/* Optional members: `missing` when the key is absent. */
CKPT_MUST_USE ckpt_code ckpt_member_text(const ckpt_item *object, const char *key, const char *missing, ckpt_arena *out,
                                         const char **text, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_member_int(const ckpt_item *object, const char *key, int64_t min, int64_t max,
                                        int64_t missing, int64_t *value, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_member_bool(const ckpt_item *object, const char *key, bool missing, bool *value,
                                         ckpt_err *err);

/* "target": "gpu" or "cpu"; absent: "cpu". */
CKPT_MUST_USE ckpt_code ckpt_member_target(const ckpt_item *object, ckpt_arena *out, bool *gpu, ckpt_err *err);

/* Members that must be there. */
CKPT_MUST_USE ckpt_code ckpt_need_text(const ckpt_item *object, const char *key, ckpt_arena *out, const char **text,
                                       ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_need_int(const ckpt_item *object, const char *key, int64_t min, int64_t max,
                                      int64_t *value, ckpt_err *err);
CKPT_MUST_USE ckpt_code ckpt_need_array(const ckpt_item *object, const char *key, ckpt_item *array, int *count,
                                        ckpt_err *err);
/* 64 of 0-9 a-f. */
CKPT_MUST_USE ckpt_code ckpt_need_digest(const ckpt_item *object, const char *key, ckpt_arena *scratch,
                                         char digest[CKPT_DIGEST_TEXT], ckpt_err *err);
/* An optional array: *count 0 when the key is absent. */
CKPT_MUST_USE ckpt_code ckpt_member_array(const ckpt_item *object, const char *key, ckpt_item *array, int *count,
                                          ckpt_err *err);

/* Times of 0 or more whose sum fits 63 bits, to and from an array; `time` has room for its elements. */
CKPT_MUST_USE ckpt_code ckpt_ns_list_read(const ckpt_item *array, int64_t *time, ckpt_err *err);
void ckpt_ns_list_write(const int64_t *time, int count, ckpt_text *text);

/* Write `before`, which ends in the member's key, and then the value as a JSON string; NULL is "". */
void ckpt_text_member(ckpt_text *text, const char *before, const char *value);

/* The program's options and then those of all programs; NULL behind the last. */
const ckpt_cli_option *ckpt_cli_option_at(const ckpt_cli *cli, int which);

/* Print the program's help as "text", "man", "bash", "zsh" or "fish"; false: no such form. */
bool ckpt_cli_help(const ckpt_cli *cli, const char *as);

/* The commit that was built, "-dirty" when files differ from it; "unknown" outside git. In a file the build writes. */
extern const char ckpt_commit[];

/* "machine" of a profile or trace; absent: all "". */
CKPT_MUST_USE ckpt_code ckpt_machine_item(const ckpt_item *parent, ckpt_arena *out, ckpt_machine *machine,
                                          ckpt_err *err);

#endif
