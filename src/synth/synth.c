#include "synth/synth.h"

#include "base/hash.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model under construction: the directory, and one block of memory that holds every tensor. */
struct build {
    const struct ds_synth_spec *spec;
    const struct ds_geometry *g;
    const struct ds_type *type;
    int layers, vocab;
    char label[96];
    struct ds_synth_tensor *t;
    size_t n;
    struct ds_gguf_writer *w;
    struct memory { void *p; uint64_t bytes; } *mem;
    bool writes;                   /* half of the progress is that of a file */
};

static void memory_free(void *owned)
{
    struct memory *m = owned;
    if (m && m->p) ds_mem_free(m->p, (size_t)m->bytes);
    free(m);
}

static void build_free(struct build *b)
{
    free(b->t);
    ds_gguf_writer_free(b->w);
    memory_free(b->mem);
}

/* --- what is asked for --- */

static ds_status unknown(struct ds_err *e, const char *what, const char *name, const char *list)
{
    return ds_fail(e, DS_EARG, "there is no %s '%.40s', expected one of %s", what, name, list);
}

static ds_status read_spec(struct build *b, struct ds_err *e)
{
    const struct ds_synth_spec *s = b->spec;
    char list[256] = "";
    const char *like = s->like ? s->like : "", *type = s->type ? s->type : "q8_0";
    b->g = ds_geometry_find(like);
    if (!b->g) {
        for (const char *const *p = ds_synth_names(); *p; p++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", *p);
        return unknown(e, "geometry", like, list);
    }
    b->type = ds_type_by_name(type);
    if (!b->type || !b->type->random) {
        for (int i = 0; i < DS_T_COUNT; i++)
            if (ds_types[i].random) snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", ds_types[i].name);
        return unknown(e, "weight type", type, list);
    }
    b->layers = s->layers ? s->layers : b->g->layers;
    b->vocab = s->vocab ? s->vocab : DS_GEO_VOCAB;
    if (b->layers < 1 || b->layers > DS_SYNTH_MAX_LAYERS)
        return ds_fail(e, DS_EARG, "a model of %d layers was asked for, expected 1 to %d", b->layers, DS_SYNTH_MAX_LAYERS);
    if (b->vocab < DS_SYNTH_MIN_VOCAB || b->vocab > DS_SYNTH_MAX_VOCAB)
        return ds_fail(e, DS_EARG, "a vocabulary of %d was asked for, expected %d to %d", b->vocab, DS_SYNTH_MIN_VOCAB, DS_SYNTH_MAX_VOCAB);
    snprintf(b->label, sizeof b->label, "%s %s, %d layers, vocabulary %d, seed %llu", b->g->name, b->type->name, b->layers, b->vocab,
             (unsigned long long)s->seed);
    return DS_OK;
}

/* --- keys --- */

static uint32_t file_type(const struct ds_type *t)
{
    static const uint32_t ids[DS_T_COUNT] = {
        [DS_T_F32] = 0, [DS_T_F16] = 1, [DS_T_Q4_0] = 2, [DS_T_Q4_1] = 3, [DS_T_Q8_0] = 7, [DS_T_Q5_0] = 8, [DS_T_Q5_1] = 9, [DS_T_Q2_K] = 10,
        [DS_T_Q3_K] = 11, [DS_T_Q4_K] = 14, [DS_T_Q5_K] = 16, [DS_T_Q6_K] = 18, [DS_T_IQ4_NL] = 25, [DS_T_IQ4_XS] = 30, [DS_T_BF16] = 32,
        [DS_T_MXFP4] = 38,
    };
    return ids[ds_type_id(t)];
}

static void put_count(struct build *b, const char *name, int v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", b->g->arch, name);
    ds_gguf_put_u32(b->w, key, (uint32_t)v);
}

static void put_real(struct build *b, const char *name, float v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", b->g->arch, name);
    ds_gguf_put_f32(b->w, key, v);
}

static void put_keys(struct build *b)
{
    static const int32_t sections[4] = { 11, 11, 10, 0 };
    const struct ds_geometry *g = b->g;
    char key[96];
    ds_gguf_put_str(b->w, "general.architecture", g->arch);
    ds_gguf_put_str(b->w, "general.type", "model");
    ds_gguf_put_str(b->w, "general.name", g->name);
    ds_gguf_put_str(b->w, "general.description", "random weights in the geometry of the name, for timing");
    ds_gguf_put_u32(b->w, "general.file_type", file_type(b->type));
    ds_gguf_put_u32(b->w, "general.quantization_version", 2);
    put_count(b, "block_count", b->layers);
    put_count(b, "context_length", DS_GEO_CONTEXT);
    put_count(b, "embedding_length", g->hidden);
    if (g->n_expert) {
        put_count(b, "expert_count", g->n_expert);
        put_count(b, "expert_used_count", g->n_expert_used);
        put_count(b, "expert_feed_forward_length", g->n_ff_exp);
        put_count(b, "expert_shared_feed_forward_length", g->n_ff_shexp);
    } else {
        put_count(b, "feed_forward_length", g->n_ff);
    }
    put_count(b, "attention.head_count", g->n_head);
    put_count(b, "attention.head_count_kv", g->n_kv);
    put_count(b, "attention.key_length", DS_GEO_HEAD_DIM);
    put_count(b, "attention.value_length", DS_GEO_HEAD_DIM);
    put_real(b, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_count(b, "rope.dimension_count", DS_GEO_ROT);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", g->arch);
    ds_gguf_put_i32s(b->w, key, sections, 4);
    put_real(b, "rope.freq_base", 1e7f);
    put_count(b, "full_attention_interval", DS_GEO_INTERVAL);
    put_count(b, "ssm.conv_kernel", DS_GEO_CONV);
    put_count(b, "ssm.state_size", DS_GEO_GDN_DIM);
    put_count(b, "ssm.group_count", g->n_kh);
    put_count(b, "ssm.time_step_rank", g->n_vh);
    put_count(b, "ssm.inner_size", g->n_vh * DS_GEO_GDN_DIM);
}

/* --- tensors --- */

/* Tensors are filled in pieces of PIECE elements, each from a seed of its own. */
enum { PIECE = 1 << 20 };
struct piece { const struct ds_synth_tensor *t; unsigned char *data; uint64_t at, seed; const unsigned char *embed; };

/* Bytes [at, at + n) of the embedding moved down by one row, the last row coming first. */
static void copy_shifted(unsigned char *dst, const unsigned char *embed, const struct ds_synth_tensor *t, uint64_t at, uint64_t n)
{
    uint64_t from = (at + t->bytes - t->bytes / t->ne[1]) % t->bytes, first = t->bytes - from < n ? t->bytes - from : n;
    memcpy(dst, embed + from, (size_t)first);
    memcpy(dst + first, embed, (size_t)(n - first));
}

static void fill_piece(void *ctx, int i, int thread)
{
    const struct piece *p = (const struct piece *)ctx + i;
    const struct ds_synth_tensor *t = p->t;
    (void)thread;
    uint64_t seed = p->seed + p->at / PIECE * 0x9e3779b97f4a7c15u, n = t->n - p->at < PIECE ? t->n - p->at : PIECE;
    uint64_t off = ds_type_row_bytes(t->type, (size_t)p->at);
    unsigned char *dst = p->data + off;
    if (t->fill == DS_FILL_NORMAL) {
        t->type->random(dst, (size_t)n, t->a, seed);
        return;
    }
    if (t->fill == DS_FILL_EMBED) {
        copy_shifted(dst, p->embed, t, off, ds_type_row_bytes(t->type, (size_t)n));
        return;
    }
    struct ds_rng r;
    ds_rng_seed(&r, seed);
    float *v = (float *)(void *)dst;
    for (uint64_t k = 0; k < n; k++) v[k] = t->a + (t->b - t->a) * ds_rng_uniform(&r);
}

/* Pieces from..to of n, in slices of some tens of milliseconds, with the progress told between them. */
static ds_status run_pieces(const struct build *b, struct ds_pool *pool, struct piece *p, size_t from, size_t to, size_t n, struct ds_err *e)
{
    const size_t slice = 16 * (size_t)ds_pool_threads(pool);
    for (size_t i = from; i < to; i += slice) {
        const size_t k = to - i < slice ? to - i : slice;
        const uint64_t done = b->mem->bytes / n * (i + k), total = b->mem->bytes;
        ds_pool_run(pool, fill_piece, p + i, (int)k);
        if (b->spec->progress && b->spec->progress(b->spec->progress_ctx, done, b->writes ? 2 * total : total))
            return ds_fail(e, DS_ECANCEL, "%s: stopped after %.1f of %.1f MiB of weights", b->label, (double)done * 0x1p-20, (double)total * 0x1p-20);
    }
    return DS_OK;
}

static bool has_data(const struct build *b, const struct ds_synth_tensor *t)
{
    return !b->spec->plan_only || (t->type == &ds_types[DS_T_F32] && t->bytes <= DS_SYNTH_SMALL);
}

/* Bytes of a tensor in the block of memory. */
static uint64_t room(const struct build *b, const struct ds_synth_tensor *t) { return has_data(b, t) ? (t->bytes + 63) & ~(uint64_t)63 : 0; }

/* Appends the pieces of all tensors that are copies, or of all others; returns their number. */
static size_t add_pieces(const struct build *b, struct piece *pieces, bool copies)
{
    unsigned char *data = b->mem->p;
    size_t k = 0;
    for (size_t i = 0; i < b->n; i++) {
        const struct ds_synth_tensor *t = &b->t[i];
        uint64_t seed = ds_hash64(t->name, strlen(t->name), b->spec->seed);
        const bool now = has_data(b, t) && (t->fill == DS_FILL_EMBED) == copies;
        for (uint64_t at = 0; at < t->n && now; at += PIECE) pieces[k++] = (struct piece){ t, data, at, seed, b->mem->p };
        data += room(b, t);
    }
    return k;
}

static ds_status fill_tensors(struct build *b, struct ds_err *e)
{
    size_t most = 0;
    const unsigned char *data = b->mem->p;
    for (size_t i = 0; i < b->n; i++) {
        const struct ds_synth_tensor *t = &b->t[i];
        if (has_data(b, t)) most += (size_t)((t->n + PIECE - 1) / PIECE);
        ds_gguf_put_tensor(b->w, t->name, t->type, t->n_dims, t->ne, has_data(b, t) ? data : NULL);
        data += room(b, t);
    }
    struct piece *pieces = malloc(most * sizeof *pieces);
    struct ds_pool *pool = pieces ? ds_pool_new(ds_cpu_count()) : NULL;
    ds_status st = pool ? DS_OK : ds_fail(e, DS_ENOMEM, "%s: the system refused threads or memory to make weights", b->label);
    if (!st) {
        size_t made = add_pieces(b, pieces, false);
        size_t n = made + add_pieces(b, pieces + made, true);
        st = run_pieces(b, pool, pieces, 0, made, n, e);
        if (!st) st = run_pieces(b, pool, pieces, made, n, n, e);
    }
    ds_pool_free(pool);
    free(pieces);
    return st;
}

static ds_status take_memory(struct build *b, struct ds_err *e)
{
    uint64_t need = 0, have = ds_mem_available();
    for (size_t i = 0; i < b->n; i++) need += room(b, &b->t[i]);
    if (need > have)
        return ds_fail(e, DS_ENOMEM, "%s: the weights take %.2f GiB, but %.2f GiB of memory are available here; ask for fewer layers, a smaller "
                       "vocabulary or a smaller type", b->label, (double)need * 0x1p-30, (double)have * 0x1p-30);
    b->mem = calloc(1, sizeof *b->mem);
    if (b->mem) b->mem->p = ds_mem_alloc((size_t)need);
    if (!b->mem || !b->mem->p) return ds_fail(e, DS_ENOMEM, "%s: the system refused %.2f GiB for weights", b->label, (double)need * 0x1p-30);
    b->mem->bytes = need;
    return DS_OK;
}

static ds_status build(struct build *b, const struct ds_synth_spec *spec, bool writes, struct ds_err *e)
{
    ds_status st;
    memset(b, 0, sizeof *b);
    b->spec = spec;
    b->writes = writes;
    if ((st = read_spec(b, e)) || (st = ds_synth_list(&b->t, &b->n, b->g, b->type, b->layers, b->vocab, e)) || (st = take_memory(b, e))) return st;
    if (!(b->w = ds_gguf_writer_new())) return ds_fail(e, DS_ENOMEM, "%s: the system refused memory for the directory", b->label);
    put_keys(b);
    if ((st = ds_synth_vocab(b->w, b->vocab, e))) return st;
    return fill_tensors(b, e);
}

ds_status ds_synth_make(const struct ds_synth_spec *spec, struct ds_gguf **out, struct ds_err *e)
{
    struct build b;
    struct ds_err own = { .code = DS_OK };
    ds_status st = build(&b, spec, false, e);
    *out = NULL;
    if (!st) {
        if (!e) e = &own;
        *out = ds_gguf_from_writer(b.w, b.label, b.mem, memory_free, e);
        b.w = NULL;
        b.mem = NULL;
        if (!*out) st = e->code;
    }
    build_free(&b);
    return st;
}

/* The second half of the progress. */
static int written(void *ctx, uint64_t done, uint64_t total)
{
    const struct build *b = ctx;
    const uint64_t bytes = b->mem->bytes;
    return b->spec->progress(b->spec->progress_ctx, bytes + (uint64_t)((double)done / (double)total * (double)bytes), 2 * bytes);
}

ds_status ds_synth_write(const struct ds_synth_spec *spec, const char *path, struct ds_err *e)
{
    struct build b;
    ds_status st = build(&b, spec, true, e);
    if (!st && spec->progress) ds_gguf_writer_progress(b.w, written, &b);
    if (!st) st = ds_gguf_write(b.w, path, e);
    build_free(&b);
    return st;
}
