/* The split before BPE. Merges never cross the border of a piece. */
#ifndef DS_TOKEN_PRETOK_H
#define DS_TOKEN_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

/* A flavour, named as in the key tokenizer.ggml.pre. */
struct ds_pretok {
    const char *name;
    bool marks_are_letters;    /* qwen35: \p{M} joins words; qwen2: it counts as punctuation */
};
const struct ds_pretok *ds_pretok_find(const char *name, size_t n);      /* NULL when unknown */
const char *ds_pretok_names(void);                                       /* "qwen35, qwen2" */

/* Length of the first piece of the n >= 1 bytes at s: the first alternative that matches of
 *
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)
 *     [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+
 *     \p{N}
 *      ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*
 *     \s*[\r\n]+
 *     \s+(?!\S)
 *     \s+
 *
 * (qwen2: without \p{M}). A byte that is no UTF-8 is one unit of the class of U+FFFD: neither
 * letter, mark, number nor space. Splitting a whole text this way takes time linear in its length. */
size_t ds_pretok_next(const struct ds_pretok *p, const char *s, size_t n);

#endif
