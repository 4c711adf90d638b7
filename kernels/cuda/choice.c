/* Writes and reads lines of algorithms. ckpt_device_bind refuses a line that is too long or has unknown pieces, because
 * a layer made from it names another line. */
#include "kernels/cuda/choice.h"

#include <stdio.h>
#include <string.h>

void ckpt_choice_add(char *choice, const char *key, const char *piece)
{
    const size_t used = strlen(choice);
    (void)snprintf(choice + used, CKPT_CHOICE_TEXT - used, "%s%s=%s", used > 0 ? ";" : "", key, piece);
}

const char *ckpt_choice_get(const char *choice, const char *key, char *piece)
{
    const size_t length = strlen(key);
    if (choice == NULL) {
        return NULL;
    }
    piece[0] = '\0';
    for (const char *at = choice; *at != '\0';) {
        const size_t here = strcspn(at, ";");
        if (here > length && strncmp(at, key, length) == 0 && at[length] == '=') {
            (void)snprintf(piece, CKPT_PIECE_TEXT, "%.*s", (int)(here - length - 1), at + length + 1);
            return piece;
        }
        at += here + (at[here] == ';');
    }
    return piece;
}
