/* What a model file may claim: every shape key is needed, checked in range and against the tensors;
 * dialects that are known load. Each case rewrites one thing of a good small file. */
#include "model_fixture.h"

#include "gguf/gguf.h"

#include <stdint.h>

/* --- a file with one thing changed --- */

struct edit {
    const char *drop_key, *drop_tensor;
    const char *u32_key; uint32_t u32;             /* set or added */
    const char *f32_key; float f32;
    const char *str_key, *str;
    const char *i32s_key; const int32_t *i32s; size_t n_i32s;
    const char *poke_tensor; float poke; size_t poke_at;   /* f32 tensors: one value */
    const char *rename_from, *rename_to;
    const char *reshape; uint64_t ne0, ne1;
    const char *add_tensor; uint64_t add_ne0, add_ne1;
    const struct ds_type *add_type;
};

static bool is(struct ds_str k, const char *name) { return name && k.n == strlen(name) && !memcmp(k.p, name, k.n); }
static char *dup_str(struct ds_str s)
{
    char *p = malloc(s.n + 1);
    if (!p) abort();
    memcpy(p, s.p, s.n);
    p[s.n] = 0;
    return p;
}

static void copy_array(struct ds_gguf_writer *w, const char *key, const struct ds_arr *a)
{
    if (a->t == DS_KV_STR) {
        const char **p = malloc((a->n + 1) * sizeof *p);
        for (uint64_t i = 0; i < a->n; i++) p[i] = dup_str(ds_arr_str(a, i));
        ds_gguf_put_strs(w, key, p, a->n);
        for (uint64_t i = 0; i < a->n; i++) free((char *)(uintptr_t)p[i]);
        free(p);
        return;
    }
    int32_t *p = malloc((a->n + 1) * sizeof *p);
    for (uint64_t i = 0; i < a->n; i++) p[i] = (int32_t)ds_arr_int(a, i);
    ds_gguf_put_i32s(w, key, p, a->n);
    free(p);
}

static void copy_keys(struct ds_gguf_writer *w, const struct ds_gguf *g, const struct edit *d)
{
    for (size_t i = 0; i < ds_gguf_n_keys(g); i++) {
        const struct ds_str k = ds_gguf_key_name(g, i);
        char *key = dup_str(k);
        struct ds_arr a;
        struct ds_str s;
        bool b;
        uint64_t u;
        double f;
        if (is(k, d->drop_key) || is(k, d->u32_key) || is(k, d->f32_key) || is(k, d->str_key) || is(k, d->i32s_key) || is(k, "general.alignment")) {}
        else if (!ds_gguf_arr(g, key, &a, NULL)) copy_array(w, key, &a);
        else if (!ds_gguf_str(g, key, &s, NULL)) { char *v = dup_str(s); ds_gguf_put_str(w, key, v); free(v); }
        else if (!ds_gguf_bool(g, key, &b, NULL)) ds_gguf_put_bool(w, key, b);
        else if (!ds_gguf_u64(g, key, &u, NULL)) ds_gguf_put_u32(w, key, (uint32_t)u);
        else if (!ds_gguf_f64(g, key, &f, NULL)) ds_gguf_put_f32(w, key, (float)f);
        free(key);
    }
    if (d->u32_key) ds_gguf_put_u32(w, d->u32_key, d->u32);
    if (d->f32_key) ds_gguf_put_f32(w, d->f32_key, d->f32);
    if (d->str_key) ds_gguf_put_str(w, d->str_key, d->str);
    if (d->i32s_key) ds_gguf_put_i32s(w, d->i32s_key, d->i32s, d->n_i32s);
}

static void edited_file(const char *src, const char *dst, const struct edit *d)
{
    struct ds_gguf *g;
    struct ds_err e = { 0 };
    struct ds_gguf_writer *w = ds_gguf_writer_new();
    float *poked = NULL;
    void *zeros = calloc(1, 1 << 22);
    REQUIRE(w && zeros && !ds_gguf_open(&g, src, &e));
    copy_keys(w, g, d);
    for (size_t i = 0; i < ds_gguf_n_tensors(g); i++) {
        const struct ds_tensor *t = ds_gguf_tensor(g, i);
        const void *data = t->data;
        uint64_t ne[4] = { t->ne[0], t->ne[1], t->ne[2], t->ne[3] };
        const char *name = t->name;
        if (d->drop_tensor && !strcmp(name, d->drop_tensor)) continue;
        if (d->rename_from && !strcmp(name, d->rename_from)) name = d->rename_to;
        if (d->reshape && !strcmp(name, d->reshape)) { ne[0] = d->ne0; ne[1] = d->ne1; data = zeros; }
        if (d->poke_tensor && !strcmp(name, d->poke_tensor)) {
            poked = malloc(t->bytes);
            memcpy(poked, t->data, t->bytes);
            poked[d->poke_at] = d->poke;
            data = poked;
        }
        ds_gguf_put_tensor(w, name, t->type, d->reshape && !strcmp(name, d->reshape) ? 2 : t->n_dims, ne, data);
    }
    if (d->add_tensor) {
        const uint64_t ne[4] = { d->add_ne0, d->add_ne1, 1, 1 };
        ds_gguf_put_tensor(w, d->add_tensor, d->add_type ? d->add_type : &ds_types[DS_T_F32], 2, ne, zeros);
    }
    CHECK_MSG(!ds_gguf_write(w, dst, &e), "%s", e.msg);
    ds_gguf_writer_free(w);
    ds_gguf_close(g);
    free(poked);
    free(zeros);
}

#define TMP "build/bind_case.gguf"
static const char *base_file = FIXTURES "mini-dense.gguf";

static void refused(const struct edit *d, const char *word, const char *word2)
{
    struct ds_err e = { 0 };
    ds_engine *g = NULL;
    const struct ds_options o = { .model = TMP };
    edited_file(base_file, TMP, d);
    ds_status st = ds_engine_open(&g, &o, &e);
    CHECK_MSG(st && !g, "loaded, expected a sentence with '%s'", word);
    CHECK_MSG(strstr(e.msg, word) && strstr(e.msg, word2) && strstr(e.msg, TMP), "'%s' lacks '%s' or '%s' or the file", e.msg, word, word2);
    CHECK(!strchr(e.msg, '\n'));
    ds_engine_close(g);
    remove(TMP);
}

/* Loads, and computes what the unchanged file computes when same is set. */
static void loads(const struct edit *d, bool same)
{
    struct rig a, b;
    const struct ds_options oa = { .model = TMP }, ob = { .model = base_file };
    edited_file(base_file, TMP, d);
    if (rig_open(&a, &oa) && rig_open(&b, &ob)) {
        int32_t ids[20];
        fill_ids(ids, 20, ds_engine_info(a.g)->n_vocab, 4);
        if (rig_prefill(&a, ids, 20) && rig_prefill(&b, ids, 20) && same)
            CHECK(!memcmp(ds_session_logits(a.s), ds_session_logits(b.s), (size_t)ds_engine_info(a.g)->n_vocab * sizeof(float)));
        rig_close(&b);
    }
    rig_close(&a);
    remove(TMP);
}

/* --- keys --- */

static void every_shape_key_is_needed(void)
{
    static const char *const keys[] = {
        "general.architecture", "qwen35.block_count", "qwen35.context_length", "qwen35.embedding_length", "qwen35.feed_forward_length",
        "qwen35.attention.head_count", "qwen35.attention.head_count_kv", "qwen35.attention.key_length", "qwen35.attention.value_length",
        "qwen35.attention.layer_norm_rms_epsilon", "qwen35.rope.freq_base", "qwen35.rope.dimension_count", "qwen35.rope.dimension_sections",
        "qwen35.ssm.conv_kernel",
        "qwen35.ssm.state_size", "qwen35.ssm.group_count", "qwen35.ssm.time_step_rank", "qwen35.ssm.inner_size",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) refused(&(struct edit){ .drop_key = keys[i] }, keys[i], "");
    loads(&(struct edit){ .drop_key = "qwen35.full_attention_interval" }, true);
}

static void every_expert_key_is_needed(void)
{
    static const char *const keys[] = { "qwen35moe.expert_count", "qwen35moe.expert_used_count", "qwen35moe.expert_feed_forward_length",
                                        "qwen35moe.expert_shared_feed_forward_length" };
    base_file = FIXTURES "mini-moe.gguf";
    for (size_t i = 0; i < 4; i++) refused(&(struct edit){ .drop_key = keys[i] }, keys[i], "");
    refused(&(struct edit){ .u32_key = "qwen35moe.expert_used_count", .u32 = 9 }, "expert_used_count", "8");
    refused(&(struct edit){ .u32_key = "qwen35moe.expert_count", .u32 = 7 }, "blk.0.ffn_gate_inp.weight", "7");
    refused(&(struct edit){ .u32_key = "qwen35moe.expert_feed_forward_length", .u32 = 32 }, "ffn_gate_exps", "32");
    refused(&(struct edit){ .u32_key = "qwen35moe.expert_shared_feed_forward_length", .u32 = 32 }, "shexp", "32");
    base_file = FIXTURES "mini-dense.gguf";
}

static void integers_out_of_range_are_refused(void)
{
    static const struct { const char *key; uint32_t v[3]; } cases[] = {
        { "qwen35.block_count", { 0, 513, 1u << 31 } }, { "qwen35.embedding_length", { 0, 1u << 31, 0xffffffffu } },
        { "qwen35.attention.head_count", { 0, 1u << 31, 100000 } }, { "qwen35.attention.head_count_kv", { 0, 1u << 31, 100000 } },
        { "qwen35.attention.key_length", { 0, 1, 1u << 31 } }, { "qwen35.rope.dimension_count", { 0, 7, 1u << 31 } },
        { "qwen35.ssm.conv_kernel", { 0, 1, 1u << 31 } }, { "qwen35.ssm.state_size", { 0, 1u << 31, 5000 } },
        { "qwen35.ssm.group_count", { 0, 1u << 31, 3 } }, { "qwen35.ssm.time_step_rank", { 0, 1u << 31, 5 } },
        { "qwen35.ssm.inner_size", { 0, 1u << 31, 1 } }, { "qwen35.feed_forward_length", { 0, 1u << 31, 0xffffffffu } },
        { "qwen35.full_attention_interval", { 0, 1u << 31, 0xffffffffu } }, { "qwen35.context_length", { 0, 0, 0xffffffffu } },
        { "qwen35.nextn_predict_layers", { 4, 1u << 31, 100 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 3; k++) refused(&(struct edit){ .u32_key = cases[i].key, .u32 = cases[i].v[k] }, strchr(cases[i].key, '.') + 1, "expected");
}

static void floats_that_are_no_numbers_are_refused(void)
{
    const float bad[] = { NAN, INFINITY, -INFINITY, -1.0f };
    for (int i = 0; i < 4; i++) {
        refused(&(struct edit){ .f32_key = "qwen35.rope.freq_base", .f32 = bad[i] }, "rope.freq_base", "expected");
        refused(&(struct edit){ .f32_key = "qwen35.attention.layer_norm_rms_epsilon", .f32 = bad[i] }, "layer_norm_rms_epsilon", "expected");
    }
    refused(&(struct edit){ .f32_key = "qwen35.rope.freq_base", .f32 = 0 }, "rope.freq_base", "expected");
}

/* A key that disagrees with the tensors names the tensor, its shape and the expected one. */
static void keys_are_checked_against_tensor_shapes(void)
{
    static const struct { const char *key; uint32_t v; const char *tensor; } cases[] = {
        { "qwen35.embedding_length", 64, "token_embd.weight" }, { "qwen35.feed_forward_length", 128, "ffn_gate" },
        { "qwen35.attention.head_count", 8, "attn_q.weight" }, { "qwen35.attention.head_count_kv", 1, "attn_k.weight" },
        { "qwen35.ssm.state_size", 16, "attn_qkv" }, { "qwen35.ssm.conv_kernel", 3, "ssm_conv1d" },
        { "qwen35.ssm.inner_size", 64, "attn_qkv" }, { "qwen35.block_count", 5, "blk.4." },
        { "qwen35.block_count", 3, "blk.3." }, { "qwen35.block_count", 1, "block_count' is 1" },
        { "qwen35.full_attention_interval", 2, "block 1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(&(struct edit){ .u32_key = cases[i].key, .u32 = cases[i].v }, cases[i].tensor, "");
    refused(&(struct edit){ .u32_key = "qwen35.attention.value_length", .u32 = 16 }, "value_length", "expected");
    refused(&(struct edit){ .reshape = "blk.0.ssm_out.weight", .ne0 = 64, .ne1 = 64 }, "blk.0.ssm_out.weight", "expected");
    refused(&(struct edit){ .reshape = "output_norm.weight", .ne0 = 64, .ne1 = 1 }, "output_norm.weight", "expected");
}

/* --- tensors --- */

static void every_tensor_is_needed(void)
{
    static const char *const names[] = {
        "token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.post_attention_norm.weight", "blk.0.attn_qkv.weight",
        "blk.0.attn_gate.weight", "blk.0.ssm_beta.weight", "blk.0.ssm_alpha.weight", "blk.0.ssm_conv1d.weight", "blk.0.ssm_dt.bias",
        "blk.0.ssm_norm.weight", "blk.0.ssm_out.weight", "blk.3.attn_q.weight", "blk.3.attn_k.weight", "blk.3.attn_v.weight",
        "blk.3.attn_output.weight", "blk.3.attn_q_norm.weight", "blk.3.attn_k_norm.weight", "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight",
        "blk.1.ffn_down.weight", "blk.0.ssm_a",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) refused(&(struct edit){ .drop_tensor = names[i] }, names[i], "");
}

static void decay_must_be_negative(void)
{
    const float bad[] = { 0.0f, 1.0f, NAN, -INFINITY };
    for (int i = 0; i < 4; i++)
        refused(&(struct edit){ .poke_tensor = "blk.1.ssm_a", .poke = bad[i], .poke_at = 1 }, "blk.1.ssm_a", "negative");
}

static void a_missing_head_is_a_tied_one(void) { loads(&(struct edit){ .drop_tensor = "output.weight" }, false); }

/* --- the MTP block: promised, present, absent --- */

static void mtp_block_must_match_its_key(void)
{
    refused(&(struct edit){ .u32_key = "qwen35.nextn_predict_layers", .u32 = 1 }, "blk.3.nextn.eh_proj.weight", "missing");
    refused(&(struct edit){ .add_tensor = "blk.3.nextn.eh_proj.weight", .add_ne0 = 8, .add_ne1 = 8 }, "blk.3.nextn.eh_proj.weight", "nextn_predict_layers");
    refused(&(struct edit){ .u32_key = "qwen35.nextn_predict_layers", .u32 = 0, .add_tensor = "blk.3.nextn.eh_proj.weight", .add_ne0 = 8, .add_ne1 = 8 },
            "blk.3.nextn.eh_proj.weight", "present");
}

/* --- dialects that load --- */

static void known_dialects_load(void)
{
    const int32_t three[] = { 3, 3, 2 }, kv[] = { 0, 0, 0, 2 }, rec[] = { 1, 1, 1, 0 };
    loads(&(struct edit){ .i32s_key = "qwen35.rope.dimension_sections", .i32s = three, .n_i32s = 3 }, true);
    loads(&(struct edit){ .i32s_key = "qwen35.attention.head_count_kv", .i32s = kv, .n_i32s = 4 }, true);
    loads(&(struct edit){ .i32s_key = "qwen35.attention.recurrent_layers", .i32s = rec, .n_i32s = 4 }, true);
    loads(&(struct edit){ .u32_key = "somebody.else.key", .u32 = 7 }, true);
    loads(&(struct edit){ .add_tensor = "v.blk.0.attn_q.weight", .add_ne0 = 8, .add_ne1 = 8 }, true);
    loads(&(struct edit){ .add_tensor = "rope_freqs.weight", .add_ne0 = 8, .add_ne1 = 1 }, true);
}

static void foreign_files_are_refused_by_name(void)
{
    const int32_t other[] = { 0, 0, 0, 3 }, sections[] = { 1, 2 }, five[] = { 2, 2, 2, 2, 2 };
    refused(&(struct edit){ .i32s_key = "qwen35.attention.head_count_kv", .i32s = five, .n_i32s = 5 }, "head_count_kv", "5 elements");
    refused(&(struct edit){ .add_tensor = "blk.99.attn_norm.weight", .add_ne0 = 8, .add_ne1 = 8 }, "blk.99.attn_norm.weight", "block_count");
    refused(&(struct edit){ .str_key = "general.architecture", .str = "llama" }, "llama", "qwen35");
    refused(&(struct edit){ .str_key = "general.architecture", .str = "clip" }, "vision", "clip");
    refused(&(struct edit){ .u32_key = "general.architecture", .u32 = 7 }, "general.architecture", "");
    refused(&(struct edit){ .str_key = "qwen35.rope.scaling.type", .str = "yarn" }, "yarn", "scaling");
    refused(&(struct edit){ .i32s_key = "qwen35.attention.head_count_kv", .i32s = other, .n_i32s = 4 }, "head_count", "");
    refused(&(struct edit){ .i32s_key = "qwen35.rope.dimension_sections", .i32s = sections, .n_i32s = 2 }, "dimension_sections", "3 or 4");
    refused(&(struct edit){ .str_key = "qwen35.embedding_length", .str = "many" }, "embedding_length", "");
    refused(&(struct edit){ .str_key = "tokenizer.ggml.tokens", .str = "a b" }, "tokenizer.ggml.tokens", "");
    refused(&(struct edit){ .i32s_key = "tokenizer.ggml.tokens", .i32s = NULL, .n_i32s = 0 }, "tokenizer.ggml.tokens", "0");
}

/* --- numbers that are none, at run time --- */

static void nan_names_its_layer(void)
{
    static const struct { const char *tensor; const char *where; } cases[] = {
        { "blk.2.post_attention_norm.weight", "layer 2 (GDN)" }, { "blk.0.attn_norm.weight", "layer 0 (GDN)" },
        { "blk.3.attn_norm.weight", "layer 3 (full attention)" }, { "output_norm.weight", "head" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r;
        struct ds_err e = { 0 };
        int32_t ids[70];
        const struct ds_options o = { .model = TMP };
        edited_file(base_file, TMP, &(struct edit){ .poke_tensor = cases[i].tensor, .poke = i % 2 ? INFINITY : NAN, .poke_at = 3 });
        if (rig_open(&r, &o)) {
            fill_ids(ids, 70, 512, 6);
            CHECK(ds_session_prefill(r.s, ids, 70, DS_ROWS_LAST, NULL, NULL, &e) == DS_ENUM);
            CHECK_MSG(strstr(e.msg, cases[i].where), "%s: '%s'", cases[i].tensor, e.msg);
            CHECK(ds_session_logits(r.s) == NULL && ds_session_prefill(r.s, ids, 1, DS_ROWS_LAST, NULL, NULL, &e) == DS_EARG);
        }
        rig_close(&r);
        remove(TMP);
    }
}

/* An absurd window sizes nothing: the plan follows memory. */
static void absurd_window_sizes_nothing(void)
{
    struct ds_err e = { 0 };
    ds_engine *g = NULL;
    edited_file(base_file, TMP, &(struct edit){ .u32_key = "qwen35.context_length", .u32 = 1u << 31 });
    const struct ds_options o = { .model = TMP };
    CHECK_MSG(!ds_engine_open(&g, &o, &e), "%s", e.msg);
    if (g) CHECK(ds_engine_info(g)->ctx > 0 && ds_engine_info(g)->ctx <= (int64_t)1 << 31);
    ds_engine_close(g);
    remove(TMP);
}

static const struct ds_test tests[] = {
    { "every_shape_key_is_needed", every_shape_key_is_needed },
    { "every_expert_key_is_needed", every_expert_key_is_needed },
    { "integers_out_of_range_are_refused", integers_out_of_range_are_refused },
    { "floats_that_are_no_numbers_are_refused", floats_that_are_no_numbers_are_refused },
    { "keys_are_checked_against_tensor_shapes", keys_are_checked_against_tensor_shapes },
    { "every_tensor_is_needed", every_tensor_is_needed },
    { "decay_must_be_negative", decay_must_be_negative },
    { "a_missing_head_is_a_tied_one", a_missing_head_is_a_tied_one },
    { "mtp_block_must_match_its_key", mtp_block_must_match_its_key },
    { "known_dialects_load", known_dialects_load },
    { "foreign_files_are_refused_by_name", foreign_files_are_refused_by_name },
    { "nan_names_its_layer", nan_names_its_layer },
    { "absurd_window_sizes_nothing", absurd_window_sizes_nothing },
};
DS_TEST_MAIN(tests)
