/* Finds the text of special tokens (types 3 and 4): a trie over their spellings. */
#ifndef DS_TOKEN_SPECIAL_H
#define DS_TOKEN_SPECIAL_H

#include "token/map64.h"
#include "token/vocab.h"

struct ds_special {
    struct ds_map64 edges;     /* node * 256 + byte -> node; the root is node 0 */
    int32_t *id;               /* [node] token that ends there, or -1 */
    bool first[256];           /* bytes that some spelling begins with */
};

/* A spelling longer than DS_SPECIAL_MAX bytes is refused: it bounds the work at each position. */
enum { DS_SPECIAL_MAX = 256 };
ds_status ds_special_init(struct ds_special *s, const struct ds_vocab *v, const char *path, struct ds_err *e);
void ds_special_free(struct ds_special *s);          /* accepts a zeroed struct */

/* First position >= from where a spelling stands; there, the longest. Returns its offset and sets
 * *id and *len; n when there is none. */
size_t ds_special_find(const struct ds_special *s, const char *text, size_t n, size_t from, int32_t *id, size_t *len);

#endif
