/* Any bytes as a GGUF file; of what opens, everything that can be asked is asked. */
#include "gguf/gguf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;   /* so that no read is optimised away */

static void touch(const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) sink += b[i];
}

static void refused(const struct ds_err *e)
{
    if (!e->code || !e->msg[0] || strchr(e->msg, '\n')) abort();     /* a refusal is one sentence */
}

static void walk_array(const struct ds_arr *a)
{
    uint64_t step = a->n / 4096 + 1;
    for (uint64_t i = 0; i <= a->n; i += step) {
        struct ds_str s = ds_arr_str(a, i);
        touch(s.p, s.n);
        sink += (uint64_t)ds_arr_int(a, i) + (ds_arr_num(a, i) > 0);
    }
    struct ds_str last = ds_arr_str(a, a->n ? a->n - 1 : 0);
    touch(last.p, last.n);
    if (ds_arr_str(a, UINT64_MAX).n || ds_arr_int(a, a->n) || ds_arr_num(a, a->n) != 0) abort();
}

static void walk_keys(const struct ds_gguf *g)
{
    static char key[65536];
    struct ds_err e;
    for (size_t i = 0; i < ds_gguf_n_keys(g); i++) {
        struct ds_str name = ds_gguf_key_name(g, i), s;
        struct ds_arr a;
        uint64_t u;
        double f;
        bool b;
        memcpy(key, name.p, name.n);
        key[name.n] = 0;
        if (!ds_gguf_has(g, key)) abort();
        if (ds_gguf_u64(g, key, &u, &e)) refused(&e);
        if (ds_gguf_f64(g, key, &f, &e)) refused(&e);
        if (ds_gguf_bool(g, key, &b, &e)) refused(&e);
        if (ds_gguf_str(g, key, &s, &e)) refused(&e);
        else touch(s.p, s.n);
        if (ds_gguf_arr(g, key, &a, &e)) refused(&e);
        else walk_array(&a);
    }
}

static void walk_tensors(const struct ds_gguf *g, size_t size)
{
    for (size_t i = 0; i < ds_gguf_n_tensors(g); i++) {
        const struct ds_tensor *t = ds_gguf_tensor(g, i);
        if (ds_gguf_find(g, t->name) != t || t->n_dims < 1 || t->n_dims > 4 || !t->type != !t->data) abort();
        if (t->file_off > size || t->bytes > size - t->file_off) abort();
        if (!t->data) continue;
        const unsigned char *p = t->data;
        sink += p[0] + p[t->bytes - 1];
    }
    sink += ds_gguf_hash(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ds_gguf *g;
    struct ds_err e = { 0 };
    if (ds_gguf_open_mem(&g, "input", data, n, &e)) {
        refused(&e);
        return 0;
    }
    walk_keys(g);
    walk_tensors(g, n);
    ds_gguf_close(g);
    return 0;
}
