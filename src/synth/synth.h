/* Models of random weights in a published geometry: for timing, memory plans and tests, not for text.
 *
 * Every number is a function of the seed and the tensor's name, on any host and with any number of
 * threads. 2-D weights have the type asked for; where a row is no multiple of its block they fall back
 * to q8_0, and where that does not fit either to f16. 1-D tensors, ssm_conv1d and the router are f32.
 *
 * Scales. Embeddings have unit rms, projections keep it, and the matrices that write into the residual
 * stream are small enough that all branches together add about as much as the embedding brought. Such a
 * network amplifies rounding little: activations rounded to 8 bits move the logits by one to three
 * percent of their spread at full depth, where plain 1/sqrt(fan-in) weights move them by half. */
#ifndef DS_SYNTH_SYNTH_H
#define DS_SYNTH_SYNTH_H

#include "deltascope.h"
#include "gguf/gguf.h"
#include "synth/geometry.h"

#include <stddef.h>
#include <stdint.h>

/* A model in memory, as if read from a file. With plan_only, tensors above DS_SYNTH_SMALL bytes and all but f32 ones have no data (the
 * vectors, which every backend reads when it opens, have theirs). Fails before allocating when it does not fit into the memory
 * that is free (DS_ENOMEM with both numbers), on an unknown name or type, or on a vocabulary below
 * DS_SYNTH_MIN_VOCAB (DS_EARG). */
ds_status ds_synth_make(const struct ds_synth_spec *spec, struct ds_gguf **out, struct ds_err *e);

enum { DS_SYNTH_SMALL = 1 << 20 };
enum { DS_SYNTH_MIN_VOCAB = 288, DS_SYNTH_MAX_VOCAB = 1 << 20, DS_SYNTH_MAX_LAYERS = 512 };

/* --- within src/synth --- */

enum ds_fill {
    DS_FILL_NORMAL,                /* mean 0, deviation a */
    DS_FILL_UNIFORM,               /* in [a, b); f32 only */
    DS_FILL_EMBED                  /* row j is row j - 1 of the first tensor, the embedding, which has the same shape and type */
};

struct ds_synth_tensor {
    char name[64];
    const struct ds_type *type;
    uint32_t n_dims;
    uint64_t ne[4], n, bytes;      /* n: elements */
    enum ds_fill fill;
    float a, b;
};

/* All tensors in file order; *out from malloc. type: of the 2-D weights. */
ds_status ds_synth_list(struct ds_synth_tensor **out, size_t *n, const struct ds_geometry *g, const struct ds_type *type, int layers, int vocab,
                        struct ds_err *e);

/* tokenizer.* keys of a made-up vocabulary: the 256 byte symbols, pairs of letters with their merges, made-up words, and
 * the family's special tokens (from 4096 entries on with the family's padding after them, so that a full vocabulary has
 * the published ids). */
ds_status ds_synth_vocab(struct ds_gguf_writer *w, int vocab, struct ds_err *e);

#endif
