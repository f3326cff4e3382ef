#include "gguf/gguf.h"
#include "../gguf_cases.h"
#include "../harness.h"

#include <math.h>
#include <stdlib.h>

/* The bytes at the end of their allocation, so that a sanitizer sees a read past them. Aligned start is not needed for
 * the header. */
static unsigned char *exact(const unsigned char *p, size_t n)
{
    unsigned char *q = malloc(n ? n : 1);
    if (q && n) memcpy(q, p, n);
    return q;
}

static ds_status open_case(const struct gguf_case *c, struct ds_gguf **g, unsigned char **bytes, struct ds_err *e)
{
    unsigned char room[GGUF_CASE_MAX];
    struct gb b = { room, 0, sizeof room, 0 };
    c->build(&b);
    CHECK_MSG(!b.full, "%s", c->name);
    *bytes = exact(room, b.n);
    return ds_gguf_open_mem(g, c->name, *bytes, b.n, e);
}

static void gguf_rules(void)
{
    for (int i = 0; i < N_GGUF_CASES; i++) {
        const struct gguf_case *c = &gguf_cases[i];
        struct ds_gguf *g = NULL;
        struct ds_err e = { 0 };
        unsigned char *bytes;
        ds_status s = open_case(c, &g, &bytes, &e);
        if (!c->words) {
            CHECK_MSG(s == DS_OK && g, "%s should load: %s", c->name, e.msg);
        } else {
            CHECK_MSG(s != DS_OK && s == e.code && !g, "%s loads", c->name);
            CHECK_MSG(strstr(e.msg, c->words), "%s: '%s' lacks '%s'", c->name, e.msg, c->words);
            CHECK_MSG(!strncmp(e.msg, c->name, strlen(c->name)) && !strchr(e.msg, '\n'), "%s: '%s'", c->name, e.msg);
        }
        ds_gguf_close(g);
        free(bytes);
    }
}

/* Where the file is cut, it is refused, and nothing past the cut is read. */
static void gguf_truncated_at_every_byte(void)
{
    static void (*const whole[])(struct gb *) = { valid, every_value_type, block_rows, bools };
    unsigned char room[GGUF_CASE_MAX];
    for (size_t w = 0; w < sizeof whole / sizeof *whole; w++) {
        struct gb b = { room, 0, sizeof room, 0 };
        whole[w](&b);
        size_t full = w == 2 ? b.n - (128 - 102) : b.n;   /* block_rows has slack after its 3 blocks of 34 bytes */
        for (size_t n = 0; n <= b.n; n++) {
            struct ds_gguf *g;
            struct ds_err e = { 0 };
            unsigned char *p = exact(room, n);
            ds_status s = ds_gguf_open_mem(&g, "cut", p, n, &e);
            CHECK_MSG((s == DS_OK) == (n >= full), "file %zu, %zu of %zu bytes: %s", w, n, b.n, e.msg);
            if (s) CHECK_MSG(e.msg[0] && !g, "%zu", n);
            ds_gguf_close(g);
            free(p);
        }
    }
}

static void gguf_directory(void)
{
    static const struct gguf_case c = { "valid", valid, NULL };
    struct ds_gguf *g;
    unsigned char *bytes;
    REQUIRE(open_case(&c, &g, &bytes, NULL) == DS_OK);
    CHECK(!strcmp(ds_gguf_path(g), "valid") && ds_gguf_n_shards(g) == 1 && ds_gguf_shard(g, 0)->data == bytes);
    CHECK(!ds_gguf_shard(g, 1) && !ds_gguf_shard(g, -1));
    CHECK(ds_gguf_file_bytes(g) == ds_gguf_shard(g, 0)->size);
    CHECK(ds_gguf_n_tensors(g) == 2 && !ds_gguf_tensor(g, 2) && !ds_gguf_find(g, "") && !ds_gguf_find(g, "b"));
    const struct ds_tensor *a = ds_gguf_find(g, "a"), *b = ds_gguf_find(g, "b.weight");
    REQUIRE(a && b && a == ds_gguf_tensor(g, 0) && b == ds_gguf_tensor(g, 1));
    CHECK(a->n_dims == 1 && a->ne[0] == 8 && a->ne[1] == 1 && a->ne[3] == 1 && a->bytes == 32 && !strcmp(a->type->name, "f32"));
    CHECK(b->n_dims == 2 && b->ne[0] == 4 && b->ne[1] == 2 && b->bytes == 32 && b->shard == 0 && b->file_off == a->file_off + 32);
    CHECK(a->file_off % 32 == 0 && (const unsigned char *)a->data == bytes + a->file_off &&
          *(const unsigned char *)b->data == 0x11);
    CHECK(ds_gguf_n_keys(g) == 3 && ds_gguf_key_name(g, 1).n == 16 && ds_gguf_key_name(g, 3).n == 0);
    ds_gguf_close(g);
    free(bytes);
    ds_gguf_close(NULL);
}

static void gguf_unsupported_type_is_listed(void)
{
    static const struct gguf_case c = { "type_unsupported", type_unsupported, NULL };
    struct ds_gguf *g;
    unsigned char *bytes;
    REQUIRE(open_case(&c, &g, &bytes, NULL) == DS_OK);
    const struct ds_tensor *t = ds_gguf_find(g, "t");
    CHECK(t && !t->type && t->gguf_id == GB_T_IQ2_XXS && !t->data && t->bytes == 0 && t->ne[0] == 256);
    CHECK(!strcmp(ds_type_gguf_name(t->gguf_id), "iq2_xxs"));
    ds_gguf_close(g);
    free(bytes);
}

/* Each getter on each value type: the value, or a sentence with the key, what it is and what was expected. */
static void gguf_getters(void)
{
    static const struct gguf_case c = { "every_value_type", every_value_type, NULL };
    static const struct { const char *key; int u64, f64, boolean, str, arr; double num; } v[] = {
        { "u8", 1, 1, 0, 0, 0, 200 },          { "i8", -1, 1, 0, 0, 0, -5 },     { "u16", 1, 1, 0, 0, 0, 60000 },
        { "i16", -1, 1, 0, 0, 0, -300 },       { "u32", 1, 1, 0, 0, 0, 4e9 },    { "i32", -1, 1, 0, 0, 0, -70000 },
        { "f32", 0, 1, 0, 0, 0, 1.5 },         { "bool", 0, 0, 1, 0, 0, 0 },     { "str", 0, 0, 0, 1, 0, 0 },
        { "arr", 0, 0, 0, 0, 1, 0 },           { "u64", 1, 1, 0, 0, 0, 0x1p64 }, { "i64", -1, 1, 0, 0, 0, -0x1p63 },
        { "f64", 0, 1, 0, 0, 0, -0.5 },        { "none", 0, 0, 0, 0, 0, 0 },
    };
    struct ds_gguf *g;
    unsigned char *bytes;
    REQUIRE(open_case(&c, &g, &bytes, NULL) == DS_OK);
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct ds_err e[5] = { 0 };
        uint64_t u = 0;
        double f = 0;
        bool b = false;
        struct ds_str s = { 0 };
        struct ds_arr a = { 0 };
        const char *k = v[i].key;
        ds_status got[5] = { ds_gguf_u64(g, k, &u, &e[0]), ds_gguf_f64(g, k, &f, &e[1]), ds_gguf_bool(g, k, &b, &e[2]),
                             ds_gguf_str(g, k, &s, &e[3]), ds_gguf_arr(g, k, &a, &e[4]) };
        int want[5] = { v[i].u64, v[i].f64, v[i].boolean, v[i].str, v[i].arr };
        for (int n = 0; n < 5; n++) {
            CHECK_MSG((got[n] == DS_OK) == (want[n] == 1), "key %s getter %d", k, n);
            if (got[n]) CHECK_MSG(strstr(e[n].msg, k) && strstr(e[n].msg, "every_value_type: key '"), "%s", e[n].msg);
            if (got[n] && i < 13 && want[n] == 0) CHECK_MSG(strstr(e[n].msg, "expected a"), "%s", e[n].msg);
        }
        if (got[0] == DS_OK) CHECK_MSG(u == (i == 10 ? UINT64_MAX : (uint64_t)v[i].num), "%s", k);
        if (got[1] == DS_OK) CHECK_MSG(f == v[i].num, "%s is %g", k, f);
        if (want[0] < 0) CHECK_MSG(strstr(e[0].msg, "not negative"), "%s", e[0].msg);
        if (got[2] == DS_OK) CHECK(b);
        if (got[3] == DS_OK) CHECK(s.n == 3 && !memcmp(s.p, "a\0b", 3));
        CHECK(ds_gguf_has(g, k) == (i < 13));
        if (i == 13) CHECK(strstr(e[0].msg, "is missing"));
    }
    ds_gguf_close(g);
    free(bytes);
}

static void gguf_array_elements(void)
{
    static unsigned char room[4096];
    struct gb b = { room, 0, sizeof room, 0 };
    gb_header(&b, 3, 0, 10);
    gb_key_arr(&b, "u8", GB_U8, 2), gb_int(&b, 0xff01, 2);
    gb_key_arr(&b, "i8", GB_I8, 2), gb_int(&b, 0xff01, 2);
    gb_key_arr(&b, "i16", GB_I16, 1), gb_int(&b, 0x8000, 2);
    gb_key_arr(&b, "u32", GB_U32, 1), gb_int(&b, UINT32_MAX, 4);
    gb_key_arr(&b, "i32", GB_I32, 1), gb_int(&b, UINT32_MAX, 4);
    gb_key_arr(&b, "u64", GB_U64, 1), gb_int(&b, UINT64_MAX, 8);
    gb_key_arr(&b, "f32", GB_F32, 2), gb_int(&b, 0x3fc00000, 4), gb_int(&b, 0x7fc00000, 4);
    gb_key_arr(&b, "f64", GB_F64, 2), gb_int(&b, 0, 8), gb_int(&b, 0xbfe0000000000000u, 8);
    gb_key_arr(&b, "bool", GB_BOOL, 2), gb_int(&b, 0x0001, 2);
    gb_key_arr(&b, "str", GB_STR, 3), gb_str(&b, "ab"), gb_str(&b, ""), gb_strn(&b, "c\0", 2);
    struct ds_gguf *g;
    struct ds_arr a;
    REQUIRE(ds_gguf_open_mem(&g, "arrays", room, b.n, NULL) == DS_OK);
    CHECK(!ds_gguf_arr(g, "u8", &a, NULL) && a.t == DS_KV_U8 && a.n == 2 && ds_arr_int(&a, 1) == 255 && ds_arr_num(&a, 0) == 1);
    CHECK(ds_arr_int(&a, 2) == 0 && ds_arr_num(&a, UINT64_MAX) == 0 && ds_arr_str(&a, 0).n == 0);
    CHECK(!ds_gguf_arr(g, "i8", &a, NULL) && ds_arr_int(&a, 1) == -1);
    CHECK(!ds_gguf_arr(g, "i16", &a, NULL) && ds_arr_int(&a, 0) == -32768);
    CHECK(!ds_gguf_arr(g, "u32", &a, NULL) && ds_arr_int(&a, 0) == UINT32_MAX);
    CHECK(!ds_gguf_arr(g, "i32", &a, NULL) && ds_arr_int(&a, 0) == -1 && ds_arr_num(&a, 0) == -1);
    CHECK(!ds_gguf_arr(g, "u64", &a, NULL) && ds_arr_int(&a, 0) == INT64_MAX && ds_arr_num(&a, 0) == 0x1p64);
    CHECK(!ds_gguf_arr(g, "f32", &a, NULL) && ds_arr_num(&a, 0) == 1.5 && isnan(ds_arr_num(&a, 1)) && ds_arr_int(&a, 0) == 0);
    CHECK(!ds_gguf_arr(g, "f64", &a, NULL) && a.n == 2 && ds_arr_num(&a, 1) == -0.5 && ds_arr_int(&a, 1) == 0);
    CHECK(!ds_gguf_arr(g, "bool", &a, NULL) && ds_arr_int(&a, 0) == 1 && ds_arr_int(&a, 1) == 0);
    CHECK(!ds_gguf_arr(g, "str", &a, NULL) && a.n == 3 && ds_arr_str(&a, 0).n == 2 && !memcmp(ds_arr_str(&a, 0).p, "ab", 2));
    CHECK(ds_arr_str(&a, 1).n == 0 && ds_arr_str(&a, 2).n == 2 && ds_arr_str(&a, 3).n == 0 && ds_arr_int(&a, 0) == 0);
    struct ds_err e = { 0 };
    uint64_t u;
    CHECK(ds_gguf_u64(g, "f32", &u, &e) && strstr(e.msg, "is an array of f32, expected an integer"));
    ds_gguf_close(g);
}

/* Rules whose files are too large to keep. */
static void gguf_large_claims(void)
{
    size_t n = 40u << 20;
    unsigned char *p = ds_mem_alloc(n);
    REQUIRE(p != NULL);
    for (int c = 0; c < 6; c++) {
        struct gb b = { p, 0, n, 0 };
        struct ds_gguf *g;
        struct ds_err e = { 0 };
        size_t size = n;
        const char *words = NULL;
        switch (c) {
        case 0: case 1:                      /* a name of 64 KB, and the longest that is legal */
            gb_header(&b, 3, 0, 1);
            gb_int(&b, 65536 - (unsigned)c, 8);
            gb_fill(&b, 'k', 65536 - (unsigned)c);
            gb_int(&b, GB_U32, 4);
            gb_int(&b, 7, 4);
            words = c ? NULL : "name of 65536 bytes, the limit is 65535";
            size = b.n;
            break;
        case 2:                              /* 40 million bytes that are there: too many elements all the same */
            gb_header(&b, 3, 0, 1);
            gb_key_arr(&b, "big", GB_U8, 40000000);
            words = "array elements above the limit";
            break;
        case 3:                              /* counts that would fit the size */
            gb_header(&b, 3, 0, 100000);
            words = "100000 keys, the limit is 65536";
            break;
        case 4:
            gb_header(&b, 3, 1100000, 0);
            words = "1100000 tensors, the limit is 1048576";
            break;
        case 5:                              /* in the limits, and nothing but zeros: refused at the first */
            gb_header(&b, 3, 1000000, 0);
            words = "tensor 0 has an empty name";
            break;
        }
        ds_status s = ds_gguf_open_mem(&g, "large", p, size, &e);
        CHECK_MSG((s == DS_OK) == !words && (!words || strstr(e.msg, words)), "case %d: %s", c, e.msg);
        ds_gguf_close(g);
        memset(p, 0, 1 << 17);
    }
    ds_mem_free(p, n);
}

/* The size of a real vocabulary. A reader that looks for duplicates or strings by walking would need minutes. */
static void gguf_large_vocabulary_opens_fast(void)
{
    size_t cap = 32u << 20;
    struct gb b = { ds_mem_alloc(cap), 0, cap, 0 };
    char text[32];
    REQUIRE(b.p != NULL);
    gb_header(&b, 3, 2000, 2002);
    gb_key_arr(&b, "tokens", GB_STR, 248320);
    for (int i = 0; i < 248320; i++) snprintf(text, sizeof text, "token%d", i), gb_str(&b, text);
    gb_key_arr(&b, "merges", GB_STR, 247587);
    for (int i = 0; i < 247587; i++) snprintf(text, sizeof text, "left%d right", i), gb_str(&b, text);
    for (int i = 0; i < 2000; i++) snprintf(text, sizeof text, "key.%d", i), gb_key_u32(&b, text, (uint32_t)i);
    for (int i = 0; i < 2000; i++)
        snprintf(text, sizeof text, "blk.%d.weight", i), gb_tensor1(&b, text, 8, GB_T_F32, 32u * (unsigned)i);
    finish(&b, 2000 * 32);
    REQUIRE(!b.full);
    struct ds_gguf *g;
    struct ds_err e = { 0 };
    uint64_t t0 = ds_now_ns(), v = 0;
    ds_status s = ds_gguf_open_mem(&g, "vocabulary", b.p, b.n, &e);
    double ms = (double)(ds_now_ns() - t0) / 1e6;
    REQUIRE(s == DS_OK);
    CHECK_MSG(ms < 1000, "%.1f ms", ms);
    struct ds_arr a;
    CHECK(!ds_gguf_arr(g, "tokens", &a, NULL) && a.n == 248320);
    struct ds_str last = ds_arr_str(&a, 248319);
    CHECK(last.n == 11 && !memcmp(last.p, "token248319", 11));
    CHECK(!ds_gguf_u64(g, "key.1999", &v, NULL) && v == 1999 && ds_gguf_find(g, "blk.1999.weight")->file_off % 32 == 0);
    ds_gguf_close(g);
    ds_mem_free(b.p, cap);
}

static void gguf_shows_strings_safely(void)
{
    char d[DS_SHOW], longer[200];
    CHECK(!strcmp(ds_str_show(d, (struct ds_str){ "a\n\x1b\\\xc3z", 6 }), "a\\x0a\\x1b\\x5c\\xc3z"));
    CHECK(!strcmp(ds_str_show(d, (struct ds_str){ NULL, 0 }), ""));
    for (int fill = 0; fill < 2; fill++) {
        memset(longer, fill ? 'x' : 1, sizeof longer);
        for (size_t n = 0; n <= sizeof longer; n++) {
            ds_str_show(d, (struct ds_str){ longer, n });
            size_t len = strlen(d);
            CHECK(len < DS_SHOW && (len == n * (fill ? 1 : 4) || !strcmp(d + len - 3, "...")));
        }
    }
}

/* The checked-in corpus of the fuzzer is these cases. */
static void gguf_corpus_is_current(void)
{
    for (int i = 0; i < N_GGUF_CASES; i++) {
        unsigned char want[GGUF_CASE_MAX], got[GGUF_CASE_MAX + 1];
        char path[200];
        struct gb b = { want, 0, sizeof want, 0 };
        gguf_cases[i].build(&b);
        snprintf(path, sizeof path, "tests/fuzz/corpus/gguf/%s", gguf_cases[i].name);
        FILE *f = fopen(path, "rb");
        CHECK_MSG(f != NULL, "%s is missing; tests/fuzz/make_corpus.c writes it", path);
        if (!f) continue;
        size_t n = fread(got, 1, sizeof got, f);
        fclose(f);
        CHECK_MSG(n == b.n && !memcmp(got, want, n), "%s is not what the case builds", path);
    }
}

static const struct ds_test tests[] = {
    { "gguf_rules", gguf_rules },
    { "gguf_truncated_at_every_byte", gguf_truncated_at_every_byte },
    { "gguf_directory", gguf_directory },
    { "gguf_unsupported_type_is_listed", gguf_unsupported_type_is_listed },
    { "gguf_getters", gguf_getters },
    { "gguf_array_elements", gguf_array_elements },
    { "gguf_large_claims", gguf_large_claims },
    { "gguf_large_vocabulary_opens_fast", gguf_large_vocabulary_opens_fast },
    { "gguf_shows_strings_safely", gguf_shows_strings_safely },
    { "gguf_corpus_is_current", gguf_corpus_is_current },
};
DS_TEST_MAIN(tests)
