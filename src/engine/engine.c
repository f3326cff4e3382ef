/* A loaded model on a backend: opening, facts, plan. */
#include "engine/engine.h"

#include "backend/tandem.h"
#include "base/cpu.h"
#include "base/os.h"
#include "synth/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- facts --- */

static double gemm_bytes_of(const struct ds_gguf *g, const struct ds_type *t)
{
    double n = 0;
    for (size_t i = 0; i < ds_gguf_n_tensors(g); i++)
        if (ds_gguf_tensor(g, i)->type == t) n += (double)ds_gguf_tensor(g, i)->bytes;
    return n;
}

static void main_type(const struct ds_gguf *g, char dst[16])
{
    double most = -1;
    for (int i = 0; i < DS_T_COUNT; i++) {
        double n = gemm_bytes_of(g, &ds_types[i]);
        if (n <= most) continue;
        most = n;
        snprintf(dst, 16, "%s", ds_types[i].name);
    }
}

static void copy_name(struct ds_engine *g)
{
    struct ds_str s;
    if (ds_gguf_str(g->gguf, "general.name", &s, NULL)) return;
    char *p = malloc(s.n + 1);
    if (!p) return;
    memcpy(p, s.p, s.n);
    p[s.n] = 0;
    g->info.name = p;
}

static void fill_info(struct ds_engine *g)
{
    const struct ds_hparams *hp = &g->model.hp;
    struct ds_model_info *f = &g->info;
    f->path = ds_gguf_path(g->gguf);
    f->arch = hp->arch;
    copy_name(g);
    f->hash = g->plan_only ? 0 : ds_gguf_hash(g->gguf);
    f->file_bytes = ds_gguf_file_bytes(g->gguf);
    f->params = g->model.params;
    main_type(g->gguf, f->type);
    f->n_layer = hp->n_layer;
    for (int i = 0; i < hp->n_layer; i++) f->n_attn += hp->attn[i];
    f->n_gdn = hp->n_layer - f->n_attn;
    f->n_mtp = hp->n_mtp;
    f->hidden = hp->hidden;
    f->n_vocab = hp->n_vocab;
    f->n_ff = hp->n_ff;
    f->n_head = hp->at.n_head;
    f->n_kv = hp->at.n_kv;
    f->head_dim = hp->at.hd;
    f->n_rot = hp->at.n_rot;
    f->gdn_kh = hp->gdn.n_kh;
    f->gdn_vh = hp->gdn.n_vh;
    f->gdn_dk = hp->gdn.dk;
    f->gdn_dv = hp->gdn.dv;
    f->conv_kernel = hp->gdn.conv_k;
    f->n_expert = hp->n_expert;
    f->n_expert_used = hp->n_expert_used;
    f->n_ff_exp = hp->n_ff_exp;
    f->n_ff_shexp = hp->n_ff_shexp;
    f->full_attention_interval = hp->interval;
    f->rms_eps = hp->eps;
    f->rope_base = hp->at.rope_base;
    f->tied = hp->tied;
    f->ctx_model = hp->ctx;
    f->n_tensors = (int)ds_gguf_n_tensors(g->gguf);
    f->gemm_flop_per_token = g->model.gemm_flop;
}

/* --- opening --- */

static ds_status load(struct ds_engine *g, const struct ds_options *o, struct ds_err *e)
{
    if (o->synth.like) {
        struct ds_synth_spec spec = o->synth;
        g->plan_only = spec.plan_only = spec.plan_only && g->be->plans;
        if (!spec.progress) spec.progress = o->progress, spec.progress_ctx = o->progress_ctx;
        return ds_synth_make(&spec, &g->gguf, e);
    }
    if (!o->model) return ds_fail(e, DS_EARG, "no model was given: name a GGUF file, or a geometry to synthesise");
    return ds_gguf_open(&g->gguf, o->model, e);
}

static ds_status open_backend(struct ds_engine *g, const struct ds_options *o, bool tandem, struct ds_err *e)
{
    const char *kv = o->kv ? o->kv : "f16", *gdn = o->gdn ? o->gdn : "auto";
    if (strcmp(kv, "f16") && strcmp(kv, "f32")) return ds_fail(e, DS_EARG, "KV type '%s' is unknown, expected f16 or f32", kv);
    if (strcmp(gdn, "auto") && strcmp(gdn, "seq") && strcmp(gdn, "chunk"))
        return ds_fail(e, DS_EARG, "GDN form '%s' is unknown, expected auto, seq or chunk", gdn);
    ds_status st = ds_cpu_mask(o->isa, &g->isa, e);
    if (st) return st;
    const int usable = ds_cpu_count();
    g->threads = o->threads <= 0 || o->threads > usable ? usable : o->threads;
    g->ubatch = o->ubatch;
    g->kv_f16 = !strcmp(kv, "f16");
    g->max_cuts = o->max_cuts < 0 ? 0 : o->max_cuts > DS_MAX_CUTS ? DS_MAX_CUTS : o->max_cuts;
    const struct ds_backend_options bo = { .threads = g->threads, .isa = g->isa, .kv = kv, .gdn = gdn, .gemm = o->gemm, .weights = o->weights,
                                           .gpu_work = (double)o->gpu_work };
    g->be = ds_backend_open(o->backend, o->placement, &bo, e);
    if (g->be && tandem) {
        /* A CPU path meets the same roundings in plain C. A device rounds otherwise: it meets products without any. */
        const bool device = strcmp(g->be->name, "cpu") != 0;
        const struct ds_backend_options plain = { .threads = g->threads, .isa = device ? g->isa : 0, .kv = kv, .gdn = "seq", .exact = device };
        struct ds_backend *b = ds_backend_open("cpu", "full", &plain, e), *path = g->be;
        g->be = b ? ds_tandem_new(path, b, e) : NULL;
        if (!b) path->ops->free(path);
    }
    return g->be ? DS_OK : e->code;
}

/* Bytes that weights without data would take of what mem_available tells. */
static uint64_t unmade_bytes(const struct ds_engine *g)
{
    uint64_t n = 0;
    if (!g->plan_only || g->be->owns_weights) return 0;
    for (size_t i = 0; i < ds_gguf_n_tensors(g->gguf); i++) {
        const struct ds_tensor *t = ds_gguf_tensor(g->gguf, i);
        if (!t->data) n += t->bytes;
    }
    return n;
}

static uint64_t sessions_of(const struct ds_options *o) { return o->sessions > 1 ? (uint64_t)o->sessions : 1; }

/* What is taken beside the weights and the KV rows. */
static uint64_t fixed_bytes(const struct ds_engine *g, const struct ds_options *o)
{
    return ds_scratch_bytes(&g->model, g->ubatch, g->max_cuts) + sessions_of(o) * ds_state_gdn_bytes(&g->model) + (64u << 20) + o->reserve +
           unmade_bytes(g);
}

static struct ds_sizes sizes_for(const struct ds_engine *g, const struct ds_options *o, int64_t ctx)
{
    struct ds_sizes sz = ds_model_sizes(&g->model, g->ubatch, ctx);
    sz.buffers = fixed_bytes(g, o) + sessions_of(o) * ds_state_kv_bytes(&g->model, ctx);
    return sz;
}

/* A window that memory is kept for when none was asked: before forms of the weights that only make products faster. */
#define LEAST_WINDOW 32768

static int64_t window_to_keep(const struct ds_engine *g, const struct ds_options *o)
{
    const int64_t model = g->model.hp.ctx;
    return o->ctx > 0 ? o->ctx : model < LEAST_WINDOW ? model : LEAST_WINDOW;
}

/* Unasked: what suits the backend, while it fits and a window is not much shorter. Kept states cost memory for every piece of a
 * chunk, so that with them the default stays short. */
static void choose_ubatch(struct ds_engine *g, const struct ds_options *o)
{
    if (g->ubatch > 0) return;
    g->ubatch = g->be->ubatch > DS_DEFAULT_UBATCH && !g->max_cuts ? g->be->ubatch : DS_DEFAULT_UBATCH;
    for (; g->ubatch > DS_DEFAULT_UBATCH; g->ubatch /= 2) {
        const struct ds_sizes sz = sizes_for(g, o, window_to_keep(g, o));
        if (g->ubatch < 2 * window_to_keep(g, o) && sz.buffers <= g->be->ops->mem_available(g->be, &sz)) break;
    }
}

/* The window: as asked, at most the model's; unasked, what memory allows of it (a plan alone: all of it where not even a token fits). */
static ds_status choose_ctx(struct ds_engine *g, const struct ds_options *o, struct ds_err *e)
{
    const struct ds_model *m = &g->model;
    const int64_t asked = o->ctx;
    choose_ubatch(g, o);
    const struct ds_sizes sz = sizes_for(g, o, window_to_keep(g, o));
    const uint64_t sessions = sessions_of(o), fixed = fixed_bytes(g, o), room = g->be->ops->mem_available(g->be, &sz);
    const uint64_t per_256 = sessions * ds_state_kv_bytes(m, 256);
    const uint64_t left = room > fixed ? room - fixed : 0;
    int64_t fits = per_256 ? (int64_t)(left / per_256) * 256 : m->hp.ctx;
    if (asked > m->hp.ctx)
        return ds_fail(e, DS_EARG, "a window of %lld tokens was asked for, but the model's is %lld", (long long)asked, (long long)m->hp.ctx);
    if (g->plan_only && fits < 1) fits = m->hp.ctx;
    g->info.ctx = asked > 0 ? asked : fits < m->hp.ctx ? fits : m->hp.ctx;
    if (g->plan_only) {
        g->room = room;
        return DS_OK;
    }
    if (asked > fits || g->info.ctx < 1) {
        const long long ctx = g->info.ctx < 1 ? 1 : (long long)g->info.ctx;
        char kept[64] = "";
        if (o->reserve) snprintf(kept, sizeof kept, " and %.1f MiB that are kept free", (double)o->reserve / 1048576.0);
        return ds_fail(e, DS_ENOMEM, "a window of %lld tokens needs %.1f MiB beside the weights%s, but %.1f MiB of memory are available", ctx,
                       (double)(sessions * ds_state_kv_bytes(m, ctx) + fixed - o->reserve) / 1048576.0, kept, (double)room / 1048576.0);
    }
    return DS_OK;
}

static ds_status open_steps(struct ds_engine *g, const struct ds_options *o, bool tandem, struct ds_err *e)
{
    ds_status st;
    if ((st = open_backend(g, o, tandem, e)) || (st = load(g, o, e))) return st;
    g->be->plan_only = g->plan_only;
    if ((st = ds_model_bind(&g->model, g->gguf, g->be, o->progress, o->progress_ctx, e)) || (st = ds_tokenizer_new(&g->tok, g->gguf, e)))
        return st;
    fill_info(g);
    if ((st = choose_ctx(g, o, e))) return st;
    const struct ds_sizes sz = sizes_for(g, o, g->info.ctx);
    if ((st = g->be->ops->reserve(g->be, &sz, e))) return st;
    return ds_scratch_new(&g->scratch, &g->model, g->ubatch, g->max_cuts, e);
}

static ds_status open_engine(ds_engine **out, const struct ds_options *o, bool tandem, struct ds_err *e)
{
    const uint64_t t0 = ds_now_ns();
    struct ds_err own = { 0 };
    if (!e) e = &own;
    *out = NULL;
    struct ds_engine *g = calloc(1, sizeof *g);
    if (!g) return ds_fail(e, DS_ENOMEM, "the system refused memory for the engine");
    ds_status st = open_steps(g, o, tandem, e);
    if (st) {
        ds_engine_close(g);
        return st;
    }
    g->run.be = g->be;
    g->info.load_ms = (double)(ds_now_ns() - t0) / 1e6;
    *out = g;
    return DS_OK;
}

ds_status ds_engine_open(ds_engine **out, const struct ds_options *o, struct ds_err *e) { return open_engine(out, o, false, e); }
ds_status ds_engine_open_tandem(ds_engine **out, const struct ds_options *o, struct ds_err *e) { return open_engine(out, o, true, e); }

void ds_engine_close(ds_engine *g)
{
    if (!g) return;
    if (g->be) {
        ds_scratch_free(&g->scratch, &g->model);
        g->model.be = g->be;
        ds_model_free(&g->model);
        g->be->ops->free(g->be);
    }
    ds_run_free(&g->run);
    ds_tokenizer_free(g->tok);
    ds_gguf_close(g->gguf);
    free((char *)(uintptr_t)g->info.name);
    free(g);
}

/* --- answers --- */

const struct ds_model_info *ds_engine_info(const ds_engine *g) { return &g->info; }
const char *ds_engine_backend(const ds_engine *g) { return g->be->name; }
const char *ds_engine_device(const ds_engine *g) { return g->be->device; }
const char *ds_engine_placement(const ds_engine *g) { return g->be->placement; }
const char *ds_engine_isa(const ds_engine *g) { return ds_cpu_level_name(g->isa); }
const char *ds_engine_gdn_form(const ds_engine *g) { return g->be->gdn_form; }
const char *ds_engine_weight_forms(const ds_engine *g) { return g->be->forms; }
const char *ds_engine_kv_type(const ds_engine *g) { return g->kv_f16 ? "f16" : "f32"; }
int ds_engine_threads(const ds_engine *g) { return g->threads; }
int ds_engine_ubatch(const ds_engine *g) { return g->ubatch; }
bool ds_engine_layer_is_attn(const ds_engine *g, int layer) { return layer >= 0 && layer < g->model.hp.n_layer && g->model.hp.attn[layer]; }

void ds_engine_plan(const ds_engine *g, struct ds_plan *p)
{
    const struct ds_model *m = &g->model;
    *p = (struct ds_plan){ .weights = g->info.file_bytes, .available = g->room };
    for (int i = 0; i < m->n_owned; i++) p->weights_extra += g->be->ops->weight_extra_bytes(g->be, m->owned[i]);
    if (g->be->owns_weights) {
        p->weights = p->weights_extra < p->weights ? p->weights_extra : p->weights;
        p->weights_extra -= p->weights;
    }
    p->kv = ds_state_kv_bytes(m, g->info.ctx);
    p->state = ds_state_gdn_bytes(m);
    p->snapshots = ds_state_kept_bytes(m) + (uint64_t)m->hp.n_vocab * sizeof(float);
    p->scratch = ds_scratch_bytes(m, g->ubatch, g->max_cuts) + g->be->ops->own_bytes(g->be);
}

bool ds_engine_type_row(const ds_engine *g, int i, const char **type, int *tensors, uint64_t *bytes)
{
    for (int t = 0, row = 0; t < DS_T_COUNT; t++) {
        int n = 0;
        uint64_t b = 0;
        for (size_t k = 0; k < ds_gguf_n_tensors(g->gguf); k++) {
            const struct ds_tensor *x = ds_gguf_tensor(g->gguf, k);
            if (x->type != &ds_types[t]) continue;
            n++;
            b += x->bytes;
        }
        if (!n || row++ != i) continue;
        *type = ds_types[t].name;
        *tensors = n;
        *bytes = b;
        return true;
    }
    return false;
}

/* True when an earlier matrix has the same class and type, so that each pair shows once. */
static bool seen_before(const struct ds_model *m, int i)
{
    for (int k = 0; k < i; k++)
        if (m->mats[k].cls == m->mats[i].cls && m->mats[k].t->type == m->mats[i].t->type) return true;
    return false;
}

bool ds_engine_kernel_row(const ds_engine *g, int i, const char **cls, const char **type, const char **kernel)
{
    const struct ds_model *m = &g->model;
    for (int c = 0, row = 0; c < DS_C_COUNT; c++)
        for (int k = 0; k < m->n_mats; k++) {
            if ((int)m->mats[k].cls != c || seen_before(m, k) || row++ != i) continue;
            *cls = ds_class_names[c];
            *type = m->mats[k].t->type->name;
            *kernel = g->be->ops->kernel_name(g->be, m->mats[k].w, g->ubatch);
            return true;
        }
    return false;
}

const struct ds_peaks *ds_engine_peaks_again(ds_engine *g)
{
    g->be->ops->peaks(g->be, &g->peaks);
    g->peaks_known = true;
    return &g->peaks;
}

const struct ds_peaks *ds_engine_peaks(ds_engine *g) { return g->peaks_known ? &g->peaks : ds_engine_peaks_again(g); }
