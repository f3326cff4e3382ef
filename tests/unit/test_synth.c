/* Synthetic models: the right tensors in the right shapes, the same bytes every time, sane statistics, files that load. */
#include "deltascope.h"
#include "base/hash.h"
#include "base/os.h"
#include "gguf/gguf.h"
#include "synth/synth.h"
#include "../harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct ds_gguf *make(const char *like, const char *type, int layers, int vocab, uint64_t seed)
{
    struct ds_synth_spec s = { .like = like, .type = type, .layers = layers, .vocab = vocab, .seed = seed };
    struct ds_gguf *g = NULL;
    struct ds_err e = { 0 };
    ds_status st = ds_synth_make(&s, &g, &e);
    CHECK_MSG(!st && g, "%s %s: %s", like, type, e.msg);
    return g;
}

static uint64_t key(const struct ds_gguf *g, const char *name)
{
    char full[96];
    uint64_t v = 0;
    struct ds_str arch = { 0 };
    ds_gguf_str(g, "general.architecture", &arch, NULL);
    snprintf(full, sizeof full, "%.*s.%s", (int)arch.n, arch.p, name);
    CHECK_MSG(!ds_gguf_u64(g, full, &v, NULL), "%s", full);
    return v;
}

static void expect(const struct ds_gguf *g, const char *name, uint64_t n0, uint64_t n1, uint64_t n2)
{
    const struct ds_tensor *t = ds_gguf_find(g, name);
    CHECK_MSG(t != NULL, "%s: %s is missing", ds_gguf_path(g), name);
    if (!t) return;
    CHECK_MSG(t->ne[0] == n0 && t->ne[1] == n1 && t->ne[2] == n2 && t->ne[3] == 1, "%s {%llu %llu %llu}, expected {%llu %llu %llu}", name,
              (unsigned long long)t->ne[0], (unsigned long long)t->ne[1], (unsigned long long)t->ne[2], (unsigned long long)n0,
              (unsigned long long)n1, (unsigned long long)n2);
}

static void expect_in(const struct ds_gguf *g, int layer, const char *name, uint64_t n0, uint64_t n1, uint64_t n2)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    expect(g, full, n0, n1, n2);
}

/* --- shapes --- */

struct published {
    const char *like;
    uint64_t hidden, q, kv, channels, inner, heads, ff;      /* ff 0: experts */
    int layers, tied;
    uint64_t params;                                          /* of the whole text model */
};
static const struct published models[] = {
    { "qwen3.5-0.8b", 1024, 4096, 512, 6144, 2048, 16, 3584, 24, 1, 752393024 },
    { "qwen3.5-2b", 2048, 4096, 512, 6144, 2048, 16, 6144, 24, 1, 1881825088 },
    { "qwen3.5-4b", 2560, 8192, 1024, 8192, 4096, 32, 9216, 32, 1, 4205751296 },
    { "qwen3.5-9b", 4096, 8192, 1024, 8192, 4096, 32, 12288, 32, 0, 8953803264 },
    { "qwen3.5-27b", 5120, 12288, 1024, 10240, 6144, 48, 17408, 64, 0, 26895998464 },
    { "qwen3.6-27b", 5120, 12288, 1024, 10240, 6144, 48, 17408, 64, 0, 26895998464 },
    { "qwen3.6-35b-a3b", 2048, 8192, 512, 8192, 4096, 32, 0, 40, 0, 34660610688 },
};
enum { N_MODELS = sizeof models / sizeof *models };

static void published_parameters(void)
{
    const char *const *names = ds_synth_names();
    for (int i = 0; i < N_MODELS; i++) {
        REQUIRE(names[i] && !strcmp(names[i], models[i].like));
        const struct ds_geometry *g = ds_geometry_find(names[i]);
        REQUIRE(g);
        struct ds_synth_tensor *t;
        size_t n;
        uint64_t params = 0;
        REQUIRE(!ds_synth_list(&t, &n, g, &ds_types[DS_T_Q4_K], g->layers, DS_GEO_VOCAB, NULL));
        for (size_t k = 0; k < n; k++) {
            params += t[k].n;
            if (strstr(t[k].name, "ssm_a") && t[k].n_dims == 1) CHECK(t[k].fill == DS_FILL_UNIFORM && t[k].a < t[k].b && t[k].b < 0);
        }
        CHECK_MSG(params == models[i].params, "%s: %llu", names[i], (unsigned long long)params);
        CHECK(strcmp(g->name, "qwen3.6-27b") || n == 851);
        free(t);
    }
    CHECK(!names[N_MODELS]);
    CHECK(ds_geometry_find("QWEN3.5-9B") && !ds_geometry_find("qwen3.5-9") && !ds_geometry_find(""));
}

static void check_layer(const struct ds_gguf *g, const struct published *m, int i)
{
    expect_in(g, i, "attn_norm.weight", m->hidden, 1, 1);
    expect_in(g, i, "post_attention_norm.weight", m->hidden, 1, 1);
    if ((i + 1) % 4 == 0) {
        expect_in(g, i, "attn_q.weight", m->hidden, m->q, 1);
        expect_in(g, i, "attn_k.weight", m->hidden, m->kv, 1);
        expect_in(g, i, "attn_v.weight", m->hidden, m->kv, 1);
        expect_in(g, i, "attn_output.weight", m->q / 2, m->hidden, 1);
        expect_in(g, i, "attn_q_norm.weight", 256, 1, 1);
        expect_in(g, i, "attn_k_norm.weight", 256, 1, 1);
    } else {
        expect_in(g, i, "attn_qkv.weight", m->hidden, m->channels, 1);
        expect_in(g, i, "attn_gate.weight", m->hidden, m->inner, 1);
        expect_in(g, i, "ssm_beta.weight", m->hidden, m->heads, 1);
        expect_in(g, i, "ssm_alpha.weight", m->hidden, m->heads, 1);
        expect_in(g, i, "ssm_a", m->heads, 1, 1);
        expect_in(g, i, "ssm_dt.bias", m->heads, 1, 1);
        expect_in(g, i, "ssm_conv1d.weight", 4, m->channels, 1);
        expect_in(g, i, "ssm_norm.weight", 128, 1, 1);
        expect_in(g, i, "ssm_out.weight", m->inner, m->hidden, 1);
    }
    if (m->ff) {
        expect_in(g, i, "ffn_gate.weight", m->hidden, m->ff, 1);
        expect_in(g, i, "ffn_up.weight", m->hidden, m->ff, 1);
        expect_in(g, i, "ffn_down.weight", m->ff, m->hidden, 1);
    } else {
        expect_in(g, i, "ffn_gate_inp.weight", m->hidden, 256, 1);
        expect_in(g, i, "ffn_gate_exps.weight", m->hidden, 512, 256);
        expect_in(g, i, "ffn_up_exps.weight", m->hidden, 512, 256);
        expect_in(g, i, "ffn_down_exps.weight", 512, m->hidden, 256);
        expect_in(g, i, "ffn_gate_shexp.weight", m->hidden, 512, 1);
        expect_in(g, i, "ffn_up_shexp.weight", m->hidden, 512, 1);
        expect_in(g, i, "ffn_down_shexp.weight", 512, m->hidden, 1);
        expect_in(g, i, "ffn_gate_inp_shexp.weight", m->hidden, 1, 1);
    }
}

/* A slice of every model: keys and tensors complete. One type each, small ones for the large models. */
static void slices(void)
{
    static const char *const types[N_MODELS] = { "f32", "bf16", "q8_0", "q6_k", "q2_k", "q4_0", "q2_k" };
    for (int m = 0; m < N_MODELS; m++) {
        int layers = m == 0 ? 5 : m < 3 ? 4 : 1;
        struct ds_gguf *g = make(models[m].like, types[m], layers, 512, 1);
        REQUIRE(g);
        CHECK(key(g, "block_count") == (uint64_t)layers && key(g, "embedding_length") == models[m].hidden);
        CHECK(key(g, "attention.head_count") * 512 == models[m].q && key(g, "attention.head_count_kv") * 256 == models[m].kv);
        CHECK(key(g, "ssm.time_step_rank") == models[m].heads && key(g, "ssm.inner_size") == models[m].inner);
        CHECK(key(g, "ssm.group_count") == 16 && key(g, "ssm.state_size") == 128 && key(g, "ssm.conv_kernel") == 4);
        expect(g, "token_embd.weight", models[m].hidden, 512, 1);
        expect(g, "output_norm.weight", models[m].hidden, 1, 1);
        if (!models[m].tied) expect(g, "output.weight", models[m].hidden, 512, 1);
        else CHECK(!ds_gguf_find(g, "output.weight"));
        for (int i = 0; i < layers; i++) check_layer(g, &models[m], i);
        const struct ds_type *t = ds_type_by_name(types[m]);
        for (size_t i = 0; i < ds_gguf_n_tensors(g); i++) {
            const struct ds_tensor *x = ds_gguf_tensor(g, i);
            bool f32 = x->n_dims == 1 || strstr(x->name, "conv1d") || strstr(x->name, "ffn_gate_inp.");
            CHECK_MSG(x->type == (f32 ? &ds_types[DS_T_F32] : t), "%s is %s", x->name, x->type->name);
        }
        ds_gguf_close(g);
    }
}

/* --- contents --- */

static void moments(const struct ds_tensor *t, double *mean, double *sd, double *lo, double *hi)
{
    uint64_t n = t->bytes / t->type->bytes * t->type->block;
    float *y = malloc(n * sizeof *y);
    double s = 0, s2 = 0;
    *mean = *sd = NAN;
    if (!y) return;
    t->type->decode(y, t->data, n);
    *lo = *hi = y[0];
    for (uint64_t i = 0; i < n; i++) {
        s += y[i];
        s2 += (double)y[i] * y[i];
        *lo = y[i] < *lo ? y[i] : *lo;
        *hi = y[i] > *hi ? y[i] : *hi;
    }
    *mean = s / (double)n;
    *sd = sqrt(s2 / (double)n - *mean * *mean);
    free(y);
}

static void every_type(void)
{
    for (int i = 0; i < DS_T_COUNT; i++) {
        if (!ds_types[i].decode) continue;
        struct ds_gguf *g = make("qwen3.5-0.8b", ds_types[i].name, 1, 288, 3);
        REQUIRE(g);
        double mean, sd, lo, hi;
        moments(ds_gguf_find(g, "token_embd.weight"), &mean, &sd, &lo, &hi);
        CHECK_MSG(fabs(sd - 1) < 0.02 && fabs(mean) < 0.01, "%s: embedding %g +- %g", ds_types[i].name, mean, sd);
        moments(ds_gguf_find(g, "blk.0.attn_qkv.weight"), &mean, &sd, &lo, &hi);
        CHECK_MSG(fabs(sd * 32 - 1) < 0.03, "%s: qkv sd %g", ds_types[i].name, sd);
        moments(ds_gguf_find(g, "blk.0.ffn_down.weight"), &mean, &sd, &lo, &hi);
        CHECK_MSG(fabs(sd * sqrt(3584 * 2) / 1.7 - 1) < 0.03, "%s: ffn_down sd %g", ds_types[i].name, sd);
        moments(ds_gguf_find(g, "blk.0.ssm_a"), &mean, &sd, &lo, &hi);
        CHECK(lo >= -16 && hi < 0 && hi - lo > 5);
        moments(ds_gguf_find(g, "blk.0.attn_norm.weight"), &mean, &sd, &lo, &hi);
        CHECK(lo >= 0.9 - 1e-6 && hi <= 1.1 && hi - lo > 0.15);
        ds_gguf_close(g);
    }
}

static uint64_t tensor_hash(const struct ds_gguf *g, const char *name)
{
    const struct ds_tensor *t = ds_gguf_find(g, name);
    return t ? ds_hash64(t->data, t->bytes, 0) : 0;
}

/* A tensor depends on seed and name alone: not on threads, on the number of layers or on the vocabulary. */
static void same_seed_same_weights(void)
{
    struct ds_gguf *a = make("qwen3.5-0.8b", "q8_0", 2, 400, 7), *b = make("qwen3.5-0.8b", "q8_0", 2, 400, 7);
    struct ds_gguf *c = make("qwen3.5-0.8b", "q8_0", 2, 400, 8), *d = make("qwen3.5-0.8b", "q8_0", 3, 288, 7);
    REQUIRE(a && b && c && d);
    CHECK(ds_gguf_hash(a) == ds_gguf_hash(b) && ds_gguf_hash(a) != ds_gguf_hash(c));
    for (size_t i = 0; i < ds_gguf_n_tensors(a); i++) {
        const char *name = ds_gguf_tensor(a, i)->name;
        CHECK_MSG(tensor_hash(a, name) == tensor_hash(b, name), "%s", name);
        CHECK_MSG(tensor_hash(a, name) != tensor_hash(c, name), "%s does not depend on the seed", name);
    }
    CHECK(tensor_hash(a, "blk.0.attn_qkv.weight") == tensor_hash(d, "blk.0.attn_qkv.weight"));
    CHECK(tensor_hash(a, "blk.0.attn_qkv.weight") != tensor_hash(a, "blk.1.attn_qkv.weight"));
    /* Known bytes: a change of the generator changes every model that was ever measured. */
    CHECK_MSG(tensor_hash(a, "blk.1.ssm_out.weight") == UINT64_C(0xaff6345f5f1f0cc3), "%016llx",
              (unsigned long long)tensor_hash(a, "blk.1.ssm_out.weight"));
    ds_gguf_close(a);
    ds_gguf_close(b);
    ds_gguf_close(c);
    ds_gguf_close(d);
}

/* Row j of an untied head is row j - 1 of the embedding, through several pieces and around the end. */
static void head_counts(void)
{
    struct ds_gguf *g = make("qwen3.5-9b", "q4_0", 1, 600, 2);
    REQUIRE(g);
    const struct ds_tensor *embed = ds_gguf_find(g, "token_embd.weight"), *head = ds_gguf_find(g, "output.weight");
    REQUIRE(embed && head && embed->bytes == head->bytes);
    const size_t row = head->bytes / 600;
    for (size_t j = 0; j < 600; j++)
        CHECK(!memcmp((const char *)head->data + j * row, (const char *)embed->data + (j + 599) % 600 * row, row));
    ds_gguf_close(g);
}

/* --- vocabulary --- */

static void vocabulary(void)
{
    static const int sizes[] = { 288, 289, 400, 4096, 20000 };
    for (int k = 0; k < 5; k++) {
        struct ds_gguf_writer *w = ds_gguf_writer_new();
        struct ds_err e = { 0 };
        REQUIRE(w && !ds_synth_vocab(w, sizes[k], &e));
        struct ds_gguf *g = ds_gguf_from_writer(w, "vocabulary", NULL, NULL, &e);
        CHECK_MSG(g != NULL, "%s", e.msg);
        REQUIRE(g);
        struct ds_arr tokens, types, merges;
        uint64_t eos = 0;
        REQUIRE(!ds_gguf_arr(g, "tokenizer.ggml.tokens", &tokens, &e) && !ds_gguf_arr(g, "tokenizer.ggml.token_type", &types, &e));
        REQUIRE(!ds_gguf_arr(g, "tokenizer.ggml.merges", &merges, &e) && !ds_gguf_u64(g, "tokenizer.ggml.eos_token_id", &eos, &e));
        CHECK(tokens.n == (uint64_t)sizes[k] && types.n == tokens.n);
        struct ds_str end = ds_arr_str(&tokens, eos), space = ds_arr_str(&tokens, ' '), soft = ds_arr_str(&tokens, 0xad), last = ds_arr_str(&tokens, 255);
        CHECK(end.n == 10 && !memcmp(end.p, "<|im_end|>", 10) && ds_arr_int(&types, eos) == 3);
        CHECK(space.n == 2 && !memcmp(space.p, "\xc4\xa0", 2) && last.n == 2 && !memcmp(last.p, "\xc3\xbf", 2));
        CHECK(soft.n == 2 && !memcmp(soft.p, "\xc5\x83", 2));               /* the last of the 68 bytes that move to U+0100 and on */
        for (uint64_t i = 0; i < tokens.n && tokens.n <= 4096; i++)
            for (uint64_t j = 0; j < i; j++) {
                struct ds_str s = ds_arr_str(&tokens, i), t = ds_arr_str(&tokens, j);
                CHECK_MSG(s.n != t.n || memcmp(s.p, t.p, s.n), "token %d equals token %d", (int)i, (int)j);
            }
        CHECK(sizes[k] < 4096 || (eos == tokens.n - 274 && ds_arr_int(&types, tokens.n - 1) == 5));
        CHECK(merges.n == (sizes[k] < 4096 ? (uint64_t)(sizes[k] > 289 ? sizes[k] - 289 : 0) : 676));
        ds_gguf_close(g);
    }
}

/* --- files and errors --- */

static void file_round_trip(void)
{
    static const struct { const char *like, *type; } cases[] = { { "qwen3.5-0.8b", "q4_k" }, { "qwen3.6-35b-a3b", "q3_k" } };
    for (int k = 0; k < 2; k++) {
        const char *path = "build/test_synth.gguf";
        struct ds_synth_spec s = { .like = cases[k].like, .type = cases[k].type, .layers = 1, .vocab = 300, .seed = 5 };
        struct ds_err e = { 0 };
        struct ds_gguf *file = NULL, *mem = make(s.like, s.type, 1, 300, 5);
        CHECK_MSG(!ds_synth_write(&s, path, &e), "%s", e.msg);
        CHECK_MSG(!ds_gguf_open(&file, path, &e), "%s", e.msg);
        REQUIRE(file && mem);
        CHECK(ds_gguf_hash(file) == ds_gguf_hash(mem) && ds_gguf_file_bytes(file) == ds_gguf_file_bytes(mem));
        CHECK(ds_gguf_n_tensors(file) == ds_gguf_n_tensors(mem) && ds_gguf_n_keys(file) == ds_gguf_n_keys(mem));
        for (size_t i = 0; i < ds_gguf_n_tensors(file); i++) {
            const struct ds_tensor *a = ds_gguf_tensor(file, i), *b = ds_gguf_find(mem, a->name);
            CHECK_MSG(b && a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes), "%s", a->name);
        }
        ds_gguf_close(file);
        ds_gguf_close(mem);
        remove(path);
    }
}

/* The directory of a model without its matrices: the same keys and shapes, and the same bytes where there are any. */
static void plan_has_all_but_matrices(void)
{
    struct ds_synth_spec s = { .like = "qwen3.6-35b-a3b", .type = "q4_k", .layers = 4, .vocab = 3000, .seed = 7, .plan_only = true };
    struct ds_err e = { 0 };
    struct ds_gguf *plan = NULL, *full = make(s.like, s.type, s.layers, s.vocab, s.seed);
    CHECK_MSG(!ds_synth_make(&s, &plan, &e), "%s", e.msg);
    REQUIRE(plan && full);
    CHECK(ds_gguf_n_tensors(plan) == ds_gguf_n_tensors(full) && ds_gguf_file_bytes(plan) == ds_gguf_file_bytes(full));
    CHECK(ds_gguf_n_keys(plan) == ds_gguf_n_keys(full));
    uint64_t held = 0;
    for (size_t i = 0; i < ds_gguf_n_tensors(plan); i++) {
        const struct ds_tensor *a = ds_gguf_tensor(plan, i), *b = ds_gguf_tensor(full, i);
        CHECK_MSG(!strcmp(a->name, b->name) && a->type == b->type && a->bytes == b->bytes && !memcmp(a->ne, b->ne, sizeof a->ne), "%s", a->name);
        bool small = a->n_dims == 1 || strstr(a->name, "ssm_conv1d");
        CHECK_MSG((a->data != NULL) == small, "%s", a->name);
        if (a->data) CHECK_MSG(!memcmp(a->data, b->data, a->bytes), "%s", a->name);
        if (a->data) held += a->bytes;
    }
    CHECK(held < 2u << 20);
    ds_gguf_close(plan);
    ds_gguf_close(full);
    /* A model that no memory holds has a plan all the same. */
    struct ds_synth_spec giant = { .like = "qwen3.6-35b-a3b", .type = "f32", .layers = 300, .plan_only = true };
    CHECK_MSG(!ds_synth_make(&giant, &plan, &e), "%s", e.msg);
    ds_gguf_close(plan);
}

struct stop { uint64_t after, last; int calls; };

static int stop_after(void *ctx, uint64_t done, uint64_t total)
{
    struct stop *s = ctx;
    CHECK(done >= s->last && done <= total);
    s->last = done;
    s->calls++;
    return s->after <= 100 && done * 100 >= total * s->after;
}

/* While weights are made and while they are written. */
static void can_be_stopped(void)
{
    static const uint64_t percent[] = { 0, 30, 70, 95 };
    const char *path = "build/test_synth_stop.gguf";
    remove(path);
    for (size_t i = 0; i < sizeof percent / sizeof *percent; i++) {
        struct stop s = { .after = percent[i] };
        struct ds_synth_spec spec = { .like = "qwen3.5-0.8b", .type = "q8_0", .layers = 2, .vocab = 60000, .progress = stop_after, .progress_ctx = &s };
        struct ds_gguf *g = NULL;
        struct ds_err e = { 0 };
        CHECK_MSG(ds_synth_write(&spec, path, &e) == DS_ECANCEL && strstr(e.msg, "stopped after"), "at %d %%: %s", (int)percent[i], e.msg);
        CHECK(s.calls > 0 && !ds_file_exists(path) && !ds_file_exists("build/test_synth_stop.gguf.part"));
        s.last = 0;
        CHECK(ds_synth_make(&spec, &g, &e) == DS_ECANCEL && !g);
    }
    struct stop never = { .after = 101 };
    struct ds_synth_spec spec = { .like = "qwen3.5-0.8b", .type = "q4_0", .layers = 1, .vocab = 300, .progress = stop_after, .progress_ctx = &never };
    CHECK(!ds_synth_write(&spec, path, NULL) && never.calls > 1);
    remove(path);
}

static void refuse(struct ds_synth_spec s, ds_status expected, const char *word)
{
    struct ds_gguf *g = NULL;
    struct ds_err e = { 0 };
    ds_status st = ds_synth_make(&s, &g, &e);
    CHECK_MSG(st == expected && !g && strstr(e.msg, word), "%d: %s", st, e.msg);
    CHECK(!strchr(e.msg, '\n'));
    CHECK(ds_synth_make(&s, &g, NULL) == expected);
    ds_gguf_close(g);
}

static void refusals(void)
{
    refuse((struct ds_synth_spec){ .like = "qwen9" }, DS_EARG, "qwen3.5-0.8b");
    refuse((struct ds_synth_spec){ 0 }, DS_EARG, "geometry");
    refuse((struct ds_synth_spec){ .like = "qwen3.5-2b", .type = "iq2_xxs" }, DS_EARG, "mxfp4");
    refuse((struct ds_synth_spec){ .like = "qwen3.5-2b", .type = "i32" }, DS_EARG, "weight type");
    refuse((struct ds_synth_spec){ .like = "qwen3.5-2b", .vocab = 287 }, DS_EARG, "288");
    refuse((struct ds_synth_spec){ .like = "qwen3.5-2b", .vocab = -1 }, DS_EARG, "288");
    refuse((struct ds_synth_spec){ .like = "qwen3.5-2b", .layers = 513 }, DS_EARG, "512");
    refuse((struct ds_synth_spec){ .like = "qwen3.5-2b", .layers = -4 }, DS_EARG, "512");
    /* 1.1 TB of weights: refused with both numbers, unless this machine is a giant. */
    if (ds_mem_available() < (uint64_t)1 << 39)
        refuse((struct ds_synth_spec){ .like = "qwen3.6-35b-a3b", .type = "f32", .layers = 300 }, DS_ENOMEM, "are available");
}

static const struct ds_test tests[] = {
    { "published_parameters", published_parameters },
    { "slices", slices },
    { "every_type", every_type },
    { "same_seed_same_weights", same_seed_same_weights },
    { "head_counts", head_counts },
    { "vocabulary", vocabulary },
    { "file_round_trip", file_round_trip },
    { "plan_has_all_but_matrices", plan_has_all_but_matrices },
    { "can_be_stopped", can_be_stopped },
    { "refusals", refusals },
};
DS_TEST_MAIN(tests)
