/* Which matrices form one product, told by their names, and what --gemm and --weights ask of each kind. */
#include "backend/cuda/host.h"

#include <stdlib.h>
#include <string.h>

/* Matrices that the model multiplies together, in its order, then those whose product adds into the residual. */
static const char *const NAMES[DS_CUDA_OTHER][4] = {
    [DS_CUDA_GDN_IN] = { "attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha" },
    [DS_CUDA_ATTN_IN] = { "attn_q", "attn_k", "attn_v" },
    [DS_CUDA_FFN_IN] = { "ffn_gate", "ffn_up" },
    [DS_CUDA_GDN_OUT] = { "ssm_out" },
    [DS_CUDA_ATTN_OUT] = { "attn_output" },
    [DS_CUDA_FFN_DOWN] = { "ffn_down" },
};
/* The norm before each kind's product. */
static const char *const NORMS[DS_CUDA_OTHER] = {
    [DS_CUDA_GDN_IN] = "attn_norm",  [DS_CUDA_ATTN_IN] = "attn_norm", [DS_CUDA_FFN_IN] = "post_attention_norm",
    [DS_CUDA_GDN_OUT] = "ssm_norm",
};

/* "blk.12." of "blk.12.ffn_up.weight": its length. */
static size_t layer_prefix(const struct ds_tensor *t)
{
    const char *dot = strchr(t->name, '.'), *second = dot ? strchr(dot + 1, '.') : NULL;
    return second ? (size_t)(second + 1 - t->name) : 0;
}

/* Whether w is NAME of the layer that `of` belongs to. */
static bool is_named(const struct ds_weight *w, const struct ds_weight *of, const char *name)
{
    const size_t prefix = layer_prefix(of->t), n = strlen(name);
    return !strncmp(w->t->name, of->t->name, prefix) && !strncmp(w->t->name + prefix, name, n) &&
           !strcmp(w->t->name + prefix + n, ".weight");
}

static struct ds_weight *sibling(const struct ds_cuda *c, const struct ds_weight *of, const char *name)
{
    for (struct ds_weight *w = c->weights; w; w = w->next)
        if (is_named(w, of, name)) return w;
    return NULL;
}

static enum ds_cuda_kind kind_of(const struct ds_weight *w, int *member)
{
    *member = 0;
    for (int k = 0; layer_prefix(w->t) && k < DS_CUDA_OTHER; k++)
        for (*member = 0; *member < 4 && NAMES[k][*member]; ++*member)
            if (is_named(w, w, NAMES[k][*member])) return (enum ds_cuda_kind)k;
    *member = 0;
    return DS_CUDA_OTHER;
}

static ds_status new_group(struct ds_cuda *c, enum ds_cuda_kind kind, int n, struct ds_weight *const *w, struct ds_err *e)
{
    struct ds_cuda_group *g = calloc(1, sizeof *g);
    if (!g) return ds_fail(e, DS_ENOMEM, "the system refused memory for groups of matrices");
    *g = (struct ds_cuda_group){ .n_w = n, .live = n, .in = w[0]->in, .kind = kind, .next = c->groups };
    for (int i = 0; i < n; i++) {
        g->w[i] = w[i];
        w[i]->group = g;
        w[i]->row = g->out;
        g->out += w[i]->out;
    }
    if (n > 1) g->out = (g->out + 15) & ~15;               /* rows of zeros behind the last, so that every row of a result is aligned */
    c->groups = g;
    return DS_OK;
}

/* The members of w's set, when all are there and fit together; otherwise w alone. */
static ds_status group_one(struct ds_cuda *c, struct ds_weight *w, struct ds_err *e)
{
    struct ds_weight *all[4] = { w };
    int member, n = 1;
    const enum ds_cuda_kind kind = kind_of(w, &member);
    if (kind >= DS_CUDA_SETS) return new_group(c, kind, 1, all, e);
    for (n = 0; n < 4 && NAMES[kind][n]; n++) {
        struct ds_weight *m = sibling(c, w, NAMES[kind][n]);
        if (!m || m->group || !(m->use & DS_USE_GEMM) || m->in != w->in || m->n_expert != 1 || m->in % 8) break;
        all[n] = m;
    }
    if (n == 4 || !NAMES[kind][n]) return new_group(c, kind, n, all, e);
    all[0] = w;
    return new_group(c, member ? DS_CUDA_OTHER : kind, 1, all, e);
}

ds_status ds_cuda_group_all(struct ds_cuda *c, struct ds_err *e)
{
    ds_status st = DS_OK;
    for (struct ds_weight *w = c->weights; w && !st; w = w->next)
        if (w->use & DS_USE_GEMM && !w->group) st = group_one(c, w, e);
    for (const struct ds_cuda_group *g = c->groups; g; g = g->next) {
        struct ds_weight *gain = g->kind < DS_CUDA_OTHER && NORMS[g->kind] ? sibling(c, g->w[0], NORMS[g->kind]) : NULL;
        if (gain) gain->f8_gain = ds_cuda_wants_f8(c, g);
    }
    return st;
}

void ds_cuda_group_leave(struct ds_cuda *c, struct ds_weight *w)
{
    struct ds_cuda_group *g = w->group, **p = &c->groups;
    w->group = NULL;
    if (!g || --g->live) return;
    while (*p != g) p = &(*p)->next;
    *p = g->next;
    if (g->bytes) ds_cuda_mem_give(c, g->f8 ? (void *)g->f8 : g->bf16, (size_t)g->bytes);
    free(g);
}

/* --- options --- */

bool ds_cuda_wants_f8(const struct ds_cuda *c, const struct ds_cuda_group *g)
{
    const bool whole = g->kind >= DS_CUDA_SETS || g->n_w > 1;     /* a set in parts shares its input with bf16 products */
    return whole && c->f8_kinds >> g->kind & 1 && g->w[0]->n_expert == 1 && g->in % 16 == 0 && g->out % 16 == 0;
}

static const struct { const char *name; unsigned kinds; } SWITCHES[] = {
    { "gdn-in", 1u << DS_CUDA_GDN_IN },   { "gdn-out", 1u << DS_CUDA_GDN_OUT }, { "attn-in", 1u << DS_CUDA_ATTN_IN },
    { "attn-out", 1u << DS_CUDA_ATTN_OUT }, { "ffn-in", 1u << DS_CUDA_FFN_IN }, { "ffn-down", 1u << DS_CUDA_FFN_DOWN },
    { "ffn", 1u << DS_CUDA_FFN_IN | 1u << DS_CUDA_FFN_DOWN },
};
/* Attention's output comes from a kernel whose blocks see one head each and cannot know a row's scale. */
static const unsigned F8_DEFAULT = 1u << DS_CUDA_GDN_IN | 1u << DS_CUDA_GDN_OUT | 1u << DS_CUDA_ATTN_IN | 1u << DS_CUDA_FFN_IN |
                                   1u << DS_CUDA_FFN_DOWN;

static ds_status add_switch(struct ds_cuda *c, const char *name, size_t n, struct ds_err *e)
{
    for (size_t i = 0; i < sizeof SWITCHES / sizeof *SWITCHES; i++)
        if (strlen(SWITCHES[i].name) == n && !strncmp(SWITCHES[i].name, name, n)) {
            c->f8_kinds |= SWITCHES[i].kinds;
            return DS_OK;
        }
    return ds_fail(e, DS_EARG, "--gemm: '%.*s' is no product, expected gdn-in, gdn-out, attn-in, attn-out, ffn-in, ffn-down or ffn", (int)n, name);
}

ds_status ds_cuda_parse_gemm(struct ds_cuda *c, const char *text, struct ds_err *e)
{
    if (!text || !strcmp(text, "bf16")) return DS_OK;
    if (strncmp(text, "fp8", 3) || (text[3] && text[3] != ':'))
        return ds_fail(e, DS_EARG, "--gemm '%s': expected bf16, fp8, or fp8: and a list of products", text);
    if (c->sm != 90)
        return ds_fail(e, DS_EUNSUP, "--gemm fp8 needs a GPU of compute capability 9.0 (H100, H200), this one has %d.%d", c->sm / 10, c->sm % 10);
    if (!text[3]) c->f8_kinds = F8_DEFAULT;
    ds_status st = DS_OK;
    for (const char *p = text + 3; *p == ':' || *p == ','; ) {
        const size_t n = strcspn(++p, ",");
        if ((st = add_switch(c, p, n, e))) return st;
        p += n;
    }
    c->be.cosine_limit = 0.999;                /* e4m3 operands */
    c->be.cache_limit = 1e-1;
    return st;
}

ds_status ds_cuda_parse_weights(struct ds_cuda *c, const char *text, struct ds_err *e)
{
    if (!text || !strcmp(text, "auto")) return DS_OK;
    c->copies = !strcmp(text, "bf16") ? DS_CUDA_ALL_COPIES : DS_CUDA_NO_COPIES;
    if (!strcmp(text, "bf16") || !strcmp(text, "blocks")) return DS_OK;
    return ds_fail(e, DS_EARG, "--weights '%s': expected auto, blocks or bf16", text);
}
