/* Keys -> hyper-parameters. Every key is range-checked here and checked against the tensors' shapes
 * in qwen35_bind.c; only full_attention_interval has a default. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct reader { const struct ds_gguf *g; const char *arch; struct ds_err *e; };

static const char *key_of(const struct reader *r, const char *name, char buf[96])
{
    snprintf(buf, 96, "%s.%s", r->arch, name);
    return buf;
}

/* An integer key in [lo, hi]. */
static ds_status get_int(const struct reader *r, const char *name, uint64_t lo, uint64_t hi, int *v)
{
    char key[96];
    uint64_t x = 0;
    ds_status st = ds_gguf_u64(r->g, key_of(r, name, key), &x, r->e);
    if (st) return st;
    if (x < lo || x > hi)
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s' is %llu, expected %llu to %llu", ds_gguf_path(r->g), key, (unsigned long long)x,
                       (unsigned long long)lo, (unsigned long long)hi);
    *v = (int)x;
    return DS_OK;
}

static ds_status get_opt_int(const struct reader *r, const char *name, uint64_t lo, uint64_t hi, int *v)
{
    char key[96];
    return ds_gguf_has(r->g, key_of(r, name, key)) ? get_int(r, name, lo, hi, v) : DS_OK;
}

static ds_status get_float(const struct reader *r, const char *name, bool zero_ok, float *v)
{
    char key[96];
    double x = 0;
    ds_status st = ds_gguf_f64(r->g, key_of(r, name, key), &x, r->e);
    if (st) return st;
    if (!isfinite(x) || x < 0 || (x == 0 && !zero_ok))
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s' is %g, expected a finite number %s 0", ds_gguf_path(r->g), key, x, zero_ok ? ">=" : ">");
    *v = (float)x;
    return DS_OK;
}

/* --- architecture --- */

static ds_status read_arch(struct ds_hparams *hp, const struct ds_gguf *g, struct ds_err *e)
{
    static const char *const known[] = { "qwen35", "qwen35moe" };
    struct ds_str a;
    ds_status st = ds_gguf_str(g, "general.architecture", &a, e);
    if (st) return st;
    for (int i = 0; i < 2; i++)
        if (a.n == strlen(known[i]) && !memcmp(a.p, known[i], a.n)) {
            hp->arch = known[i];
            return DS_OK;
        }
    char shown[DS_SHOW];
    if (a.n == 4 && !memcmp(a.p, "clip", 4))
        return ds_fail(e, DS_EUNSUP, "%s: this is a vision tower (architecture 'clip'), expected the text model's own file", ds_gguf_path(g));
    return ds_fail(e, DS_EUNSUP, "%s: key 'general.architecture' is '%s', expected qwen35 or qwen35moe", ds_gguf_path(g),
                   ds_str_show(shown, a));
}

static ds_status refuse_variants(const struct reader *r)
{
    char key[96], shown[DS_SHOW];
    struct ds_str s;
    const char *path = ds_gguf_path(r->g);
    if (ds_gguf_has(r->g, key_of(r, "ssm.v_grouped", key)) || ds_gguf_has(r->g, key_of(r, "gdn_v_grouped", key)))
        return ds_fail(r->e, DS_EUNSUP, "%s: key '%s' says that value heads are in grouped order, expected the converter's tiled order", path, key);
    if (ds_gguf_has(r->g, key_of(r, "rope.scaling.type", key)) && !ds_gguf_str(r->g, key, &s, NULL) && !(s.n == 4 && !memcmp(s.p, "none", 4)))
        return ds_fail(r->e, DS_EUNSUP, "%s: key '%s' is '%s', expected no RoPE scaling", path, key, ds_str_show(shown, s));
    return DS_OK;
}

/* --- arrays --- */

static bool integers(const struct ds_arr *a) { return a->t != DS_KV_STR && a->t != DS_KV_F32 && a->t != DS_KV_F64; }
static const char *of_kind(const struct ds_arr *a) { return integers(a) ? "" : " that are no integers"; }

/* One integer per block: of those that run, or with the MTP blocks. */
static bool per_block(const struct ds_hparams *hp, const struct ds_arr *a)
{
    return integers(a) && (a->n == (uint64_t)hp->n_layer || a->n == (uint64_t)(hp->n_layer + hp->n_mtp));
}

/* --- layers --- */

static ds_status read_layers(struct ds_hparams *hp, const struct reader *r)
{
    int blocks = 0;
    ds_status st = get_int(r, "block_count", 1, DS_MAX_LAYERS, &blocks);
    if (st || (st = get_opt_int(r, "nextn_predict_layers", 0, DS_MAX_LAYERS, &hp->n_mtp))) return st;
    if (hp->n_mtp >= blocks)
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s.nextn_predict_layers' is %d, expected less than block_count, which is %d", ds_gguf_path(r->g),
                       r->arch, hp->n_mtp, blocks);
    hp->n_layer = blocks - hp->n_mtp;
    hp->interval = 4;
    return get_opt_int(r, "full_attention_interval", 1, DS_MAX_LAYERS, &hp->interval);
}

/* The interval rule, unless the file lists its recurrent layers one by one. */
static ds_status read_layer_kinds(struct ds_hparams *hp, const struct reader *r)
{
    char key[96];
    for (int i = 0; i < hp->n_layer; i++) hp->attn[i] = (i + 1) % hp->interval == 0;
    if (!ds_gguf_has(r->g, key_of(r, "attention.recurrent_layers", key))) return DS_OK;
    struct ds_arr a;
    ds_status st = ds_gguf_arr(r->g, key, &a, r->e);
    if (st) return st;
    if (!per_block(hp, &a))
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s' has %llu elements%s, expected a flag for each of %d blocks", ds_gguf_path(r->g), key,
                       (unsigned long long)a.n, of_kind(&a), hp->n_layer + hp->n_mtp);
    for (int i = 0; i < hp->n_layer; i++) hp->attn[i] = ds_arr_int(&a, (uint64_t)i) == 0;
    return DS_OK;
}

/* --- attention --- */

/* head_count and head_count_kv: a number, or an array with one entry per block (0 in recurrent ones). */
static ds_status get_heads(const struct ds_hparams *hp, const struct reader *r, const char *name, int *v)
{
    char key[96];
    struct ds_arr a;
    if (ds_gguf_arr(r->g, key_of(r, name, key), &a, NULL)) return get_int(r, name, 1, 4096, v);
    if (!per_block(hp, &a))
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s' has %llu elements%s, expected an integer for each of %d blocks", ds_gguf_path(r->g), key,
                       (unsigned long long)a.n, of_kind(&a), hp->n_layer + hp->n_mtp);
    int64_t all = 0;
    for (int i = 0; i < hp->n_layer; i++) {
        int64_t x = ds_arr_int(&a, (uint64_t)i);
        if (x == 0 && !hp->attn[i]) continue;
        if (x < 1 || x > 4096 || (all && x != all))
            return ds_fail(r->e, DS_EFORMAT, "%s: key '%s' has %lld for block %d, expected one value of 1 to 4096 for all attention blocks",
                           ds_gguf_path(r->g), key, (long long)x, i);
        all = x;
    }
    if (!all) return ds_fail(r->e, DS_EFORMAT, "%s: key '%s' holds only zeros, expected a head count", ds_gguf_path(r->g), key);
    *v = (int)all;
    return DS_OK;
}

static ds_status check_sections(const struct ds_hparams *hp, const struct reader *r)
{
    char key[96];
    struct ds_arr a;
    ds_status st = ds_gguf_arr(r->g, key_of(r, "rope.dimension_sections", key), &a, r->e);
    if (st) return st;
    if (!integers(&a) || (a.n != 3 && a.n != 4))
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s' has %llu elements%s, expected 3 or 4 integers", ds_gguf_path(r->g), key,
                       (unsigned long long)a.n, of_kind(&a));
    int64_t sum = 0;
    for (uint64_t i = 0; i < a.n; i++) {
        int64_t x = ds_arr_int(&a, i);
        if (x < 0 || x > hp->at.n_rot) sum = -1;
        if (sum >= 0) sum += x;
    }
    if (sum != hp->at.n_rot / 2)
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s' does not sum to half of rope.dimension_count, which is %d", ds_gguf_path(r->g), key, hp->at.n_rot);
    return DS_OK;
}

static ds_status read_attention(struct ds_hparams *hp, const struct reader *r)
{
    struct ds_attn_shape *at = &hp->at;
    int vlen = 0;
    ds_status st;
    if ((st = get_heads(hp, r, "attention.head_count", &at->n_head)) || (st = get_heads(hp, r, "attention.head_count_kv", &at->n_kv)) ||
        (st = get_int(r, "attention.key_length", 2, 1024, &at->hd)) || (st = get_int(r, "attention.value_length", 2, 1024, &vlen)) ||
        (st = get_int(r, "rope.dimension_count", 2, 1024, &at->n_rot)) || (st = get_float(r, "rope.freq_base", false, &at->rope_base)) ||
        (st = get_float(r, "attention.layer_norm_rms_epsilon", true, &hp->eps)))
        return st;
    at->eps = hp->eps;
    if (at->n_head % at->n_kv)
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s.attention.head_count' is %d, expected a multiple of head_count_kv, which is %d",
                       ds_gguf_path(r->g), r->arch, at->n_head, at->n_kv);
    if (vlen != at->hd)
        return ds_fail(r->e, DS_EUNSUP, "%s: key '%s.attention.value_length' is %d, expected key_length, which is %d", ds_gguf_path(r->g), r->arch,
                       vlen, at->hd);
    if (at->n_rot % 2 || at->n_rot > at->hd || at->hd % 2)
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s.rope.dimension_count' is %d, expected an even number of at most key_length, which is %d",
                       ds_gguf_path(r->g), r->arch, at->n_rot, at->hd);
    return check_sections(hp, r);
}

/* --- GDN --- */

static ds_status read_gdn(struct ds_hparams *hp, const struct reader *r)
{
    struct ds_gdn_shape *s = &hp->gdn;
    int inner = 0;
    ds_status st;
    if ((st = get_int(r, "ssm.conv_kernel", 2, 16, &s->conv_k)) || (st = get_int(r, "ssm.state_size", 1, 1024, &s->dk)) ||
        (st = get_int(r, "ssm.group_count", 1, 4096, &s->n_kh)) || (st = get_int(r, "ssm.time_step_rank", 1, 4096, &s->n_vh)) ||
        (st = get_int(r, "ssm.inner_size", 1, 1 << 20, &inner)))
        return st;
    if (inner % s->n_vh)
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s.ssm.inner_size' is %d, expected a multiple of ssm.time_step_rank, which is %d",
                       ds_gguf_path(r->g), r->arch, inner, s->n_vh);
    if (s->n_vh % s->n_kh)
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s.ssm.time_step_rank' is %d, expected a multiple of ssm.group_count, which is %d",
                       ds_gguf_path(r->g), r->arch, s->n_vh, s->n_kh);
    s->dv = inner / s->n_vh;
    if (s->dv > 1024)
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s.ssm.inner_size' gives heads of %d values, expected at most 1024", ds_gguf_path(r->g), r->arch, s->dv);
    s->eps = hp->eps;
    return DS_OK;
}

/* --- FFN, vocabulary, window --- */

static ds_status read_ffn(struct ds_hparams *hp, const struct reader *r)
{
    ds_status st;
    if (strcmp(hp->arch, "qwen35moe")) return get_int(r, "feed_forward_length", 1, 1 << 20, &hp->n_ff);
    if ((st = get_int(r, "expert_count", 1, 4096, &hp->n_expert)) || (st = get_int(r, "expert_used_count", 1, 256, &hp->n_expert_used)) ||
        (st = get_int(r, "expert_feed_forward_length", 1, 1 << 20, &hp->n_ff_exp)) ||
        (st = get_int(r, "expert_shared_feed_forward_length", 1, 1 << 20, &hp->n_ff_shexp)))
        return st;
    if (hp->n_expert_used > hp->n_expert)
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s.expert_used_count' is %d, expected at most expert_count, which is %d", ds_gguf_path(r->g), r->arch,
                       hp->n_expert_used, hp->n_expert);
    return DS_OK;
}

static ds_status read_vocab(struct ds_hparams *hp, const struct reader *r)
{
    const struct ds_tensor *t = ds_gguf_find(r->g, "token_embd.weight");
    struct ds_arr a;
    if (!t) return ds_fail(r->e, DS_EFORMAT, "%s: tensor 'token_embd.weight' is missing", ds_gguf_path(r->g));
    if (t->n_dims != 2 || t->ne[1] < 1 || t->ne[1] > 1 << 24)
        return ds_fail(r->e, DS_EFORMAT, "%s: tensor 'token_embd.weight' has %llu rows in %u dims, expected a table of 1 to %d rows", ds_gguf_path(r->g),
                       (unsigned long long)t->ne[1], t->n_dims, 1 << 24);
    hp->n_vocab = (int)t->ne[1];
    hp->tied = !ds_gguf_find(r->g, "output.weight");
    if (!ds_gguf_has(r->g, "tokenizer.ggml.tokens")) return DS_OK;
    ds_status st = ds_gguf_arr(r->g, "tokenizer.ggml.tokens", &a, r->e);
    if (st) return st;
    if (a.t != DS_KV_STR || a.n != t->ne[1])
        return ds_fail(r->e, DS_EFORMAT, "%s: key 'tokenizer.ggml.tokens' has %llu elements%s, expected a string for each of the %d rows of token_embd.weight",
                       ds_gguf_path(r->g), (unsigned long long)a.n, a.t == DS_KV_STR ? "" : " that are no strings", hp->n_vocab);
    return DS_OK;
}

static ds_status read_window(struct ds_hparams *hp, const struct reader *r)
{
    char key[96];
    uint64_t ctx = 0;
    ds_status st = ds_gguf_u64(r->g, key_of(r, "context_length", key), &ctx, r->e);
    if (st) return st;
    if (ctx < 1 || ctx > (uint64_t)1 << 31)
        return ds_fail(r->e, DS_EFORMAT, "%s: key '%s' is %llu, expected 1 to 2147483648", ds_gguf_path(r->g), key, (unsigned long long)ctx);
    hp->ctx = (int64_t)ctx;
    return DS_OK;
}

ds_status ds_hparams_read(struct ds_hparams *hp, const struct ds_gguf *g, struct ds_err *e)
{
    memset(hp, 0, sizeof *hp);
    ds_status st = read_arch(hp, g, e);
    const struct reader r = { g, hp->arch, e };
    if (st || (st = refuse_variants(&r)) || (st = read_layers(hp, &r)) || (st = get_int(&r, "embedding_length", 1, 1 << 20, &hp->hidden)) ||
        (st = read_layer_kinds(hp, &r)) || (st = read_attention(hp, &r)) || (st = read_gdn(hp, &r)) || (st = read_ffn(hp, &r)) ||
        (st = read_vocab(hp, &r)))
        return st;
    return read_window(hp, &r);
}
