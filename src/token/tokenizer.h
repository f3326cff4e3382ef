/* The parts of a tokenizer, for the files of this folder. */
#ifndef DS_TOKEN_TOKENIZER_H
#define DS_TOKEN_TOKENIZER_H

#include "token/bpe.h"
#include "token/pretok.h"
#include "token/special.h"
#include "token/vocab.h"

struct ds_tokenizer {
    struct ds_vocab vocab;
    struct ds_bpe bpe;
    struct ds_special special;
    const struct ds_pretok *pretok;
    bool *is_end;              /* [n] */
    struct ds_str chat_template;
};

#endif
