/* Reads operator schemas as PyTorch prints them: "aten::relu_(Tensor(a!) self) -> Tensor(a!)". Arguments, keyword-only
 * ones included, are in the order of a node's inputs. "(a!)" marks what the operator writes. */
#include <string.h>

#include "imports/execution_impl.h"

/* The end of one argument: a comma or the closing bracket outside of brackets and quotes. */
static const char *argument_end(const char *at)
{
    int depth = 0;
    for (char quote = '\0'; *at != '\0'; at++) {
        if (quote != '\0') {
            quote = *at == quote ? '\0' : quote;
        } else if (*at == '"' || *at == '\'') {
            quote = *at;
        } else if (*at == '(' || *at == '[') {
            depth++;
        } else if (depth == 0 && (*at == ',' || *at == ')')) {
            break;
        } else if (*at == ')' || *at == ']') {
            depth--;
        }
    }
    return at;
}

/* "Tensor(a!)[] self", "int[2] stride=[1, 1]": the name is the last word before a default. */
static void split(const char *begin, const char *end, ckpt_et_argument *argument)
{
    const char *name_end = begin;
    while (name_end < end && *name_end != '=') {
        name_end++;
    }
    while (name_end > begin && name_end[-1] == ' ') {
        name_end--;
    }
    const char *name = name_end;
    while (name > begin && name[-1] != ' ') {
        name--;
    }
    *argument = (ckpt_et_argument){begin, name, (int)(name - begin), (int)(name_end - name),
                                   memchr(begin, '!', (size_t)(name - begin)) != NULL};
}

bool ckpt_et_next_argument(const char **at, ckpt_et_argument *argument)
{
    const char *begin = *at;
    if (begin[0] != '\0' && begin[0] != ',' && begin[0] != ')') { /* at the start of the schema */
        begin = strchr(begin, '(');
        if (begin == NULL) {
            return false;
        }
    } else if (begin[0] != ',') {
        return false;
    }
    do {
        begin++;
        while (*begin == ' ') {
            begin++;
        }
        *at = argument_end(begin);
        if (*at - begin > 1 || (*at - begin == 1 && *begin != '*')) {
            split(begin, *at, argument);
            return true;
        }
        begin = *at;
    } while (*begin == ','); /* "*" only marks that keywords follow */
    return false;
}

bool ckpt_et_argument_is(const ckpt_et_argument *argument, const char *name)
{
    return strlen(name) == (size_t)argument->name_length && memcmp(argument->name, name, strlen(name)) == 0;
}
