/* Weight products alone, through the CPU backend's own op: packing of the activations included, every
 * thread at work. Each cell is checked in the same run: sampled outputs against a double-precision
 * product of the decoded weights and the rounded activations.
 *
 *     make bench-kernels && build/release/bench/kernels --type q8_0,q4_k --shape 1024x6144 --tokens 512 */
#include "backend/backend.h"
#include "base/buf.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/rng.h"
#include "common/member.h"
#include "common/options.h"
#include "common/record.h"
#include "common/stats.h"
#include "quant/act.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of 0.8B and 27B layers, K x rows. */
#define SHAPES "1024x6144,1024x7168,3584x1024,5120x16480,6144x5120,5120x34816,17408x5120"

struct options {
    const char *types, *shapes, *isa;
    struct ds_ints tokens;
    int threads, reps;
    bool decode, json, one_thread_pack;
};

struct cell {
    const struct ds_type *type;
    const char *isa, *kernel;
    int k, rows, n, threads;
    bool decode;
    double ms[64], error;
    int reps;
};

struct rig {
    struct ds_backend *be;
    struct ds_tensor tensor;
    struct ds_weight *w;
    struct ds_buf *x, *y;
    float *host_x, *host_y;
};

static void rig_free(struct rig *r)
{
    const struct ds_ops *o = r->be ? r->be->ops : NULL;
    if (o) {
        o->buf_free(r->be, r->x);
        o->buf_free(r->be, r->y);
        o->weight_free(r->be, r->w);
        o->free(r->be);
    }
    free((void *)r->tensor.data);
    free(r->host_x);
    free(r->host_y);
}

static ds_status rig_new(struct rig *r, const struct cell *c, struct ds_err *e)
{
    unsigned mask = 0;
    ds_status st = ds_cpu_mask(c->isa, &mask, e);
    if (st) return st;
    struct ds_backend_options bo = { .threads = c->threads, .isa = mask, .kv = "f16", .gdn = "auto" };
    *r = (struct rig){ .be = ds_backend_open("cpu", "full", &bo, e) };
    if (!r->be) return DS_ENOMEM;
    size_t elems = (size_t)c->k * (size_t)c->rows, bytes = ds_type_row_bytes(c->type, (size_t)c->k) * (size_t)c->rows;
    void *data = malloc(bytes);
    r->host_x = malloc(sizeof(float) * (size_t)c->n * (size_t)c->k);
    r->host_y = malloc(sizeof(float) * (size_t)c->n * (size_t)c->rows);
    r->tensor = (struct ds_tensor){ .name = "w", .n_dims = 2, .ne = { (uint64_t)c->k, (uint64_t)c->rows, 1, 1 }, .type = c->type,
                                    .gguf_id = c->type->gguf_id, .data = data, .bytes = bytes };
    if (!data || !r->host_x || !r->host_y) return ds_fail(e, DS_ENOMEM, "no memory for a %d x %d product", c->k, c->rows);
    c->type->random(data, elems, 0.02f, 1);
    struct ds_rng rng;
    ds_rng_seed(&rng, 2);
    for (size_t i = 0; i < (size_t)c->n * (size_t)c->k; i++) r->host_x[i] = ds_rng_normal(&rng);
    const struct ds_ops *o = r->be->ops;
    struct ds_sizes sz = { .ubatch = c->n, .ctx = c->n, .hidden = c->k };
    if (!(r->w = o->weight_new(r->be, &r->tensor, DS_USE_GEMM, e)) || (st = o->reserve(r->be, &sz, e)) ||
        !(r->x = o->buf_new(r->be, DS_BUF_ACT, (size_t)c->n, (size_t)c->k, e)) ||
        !(r->y = o->buf_new(r->be, DS_BUF_PROJ, (size_t)c->n, (size_t)c->rows, e)))
        return st ? st : DS_ENOMEM;
    o->buf_write(r->be, r->x, 0, r->host_x, (size_t)c->n * (size_t)c->k);
    return DS_OK;
}

static void product(struct rig *r, const struct cell *c)
{
    const struct ds_weight *w = r->w;
    const struct ds_step s = { .n = c->n, .decode = c->decode };
    r->be->ops->buf_map(r->be, r->x, true);         /* as if an op had just written it: packed forms are stale */
    r->be->ops->begin(r->be, &s);
    r->be->ops->matmul(r->be, 1, &r->y, &w, r->x, c->n, false);
    r->be->ops->end(r->be, NULL);
}

/* Activations as the product sees them. */
static void round_row(double *out, const float *x, const struct ds_type *t, int k)
{
    struct ds_block_q8_0 b0;
    struct ds_block_q8_k bk;
    for (int i = 0; i < k; i++) {
        if (t->act == DS_ACT_NONE) out[i] = x[i];
        else if (t->act == DS_ACT_Q8_K) {
            if (i % 256 == 0) ds_act_q8_k(&bk, x + i, 256);
            out[i] = (double)bk.d * bk.q[i % 256];
        } else {
            if (i % 32 == 0) ds_act_q8_0(&b0, x + i, 32);
            out[i] = (double)ds_f16_to_f32(b0.d) * b0.q[i % 32];
        }
    }
}

/* Worst error over sampled outputs, relative to the sum of magnitudes. */
static double check(struct rig *r, const struct cell *c)
{
    double worst = 0, *x = malloc(sizeof(double) * (size_t)c->k);
    float *w = malloc(sizeof(float) * (size_t)c->k);
    r->be->ops->buf_read(r->be, r->host_y, r->y, 0, (size_t)c->n * (size_t)c->rows);
    for (int i = 0; x && w && i < 64; i++) {
        int t = (int)((unsigned)i * 2654435761u % (unsigned)c->n), row = i == 63 ? c->rows - 1 : (int)((unsigned)i * 40503u % (unsigned)c->rows);
        round_row(x, r->host_x + (size_t)t * (size_t)c->k, c->type, c->k);
        c->type->decode(w, (const char *)r->tensor.data + ds_type_row_bytes(c->type, (size_t)c->k) * (size_t)row, (size_t)c->k);
        double s = 0, a = 0;
        for (int j = 0; j < c->k; j++) s += w[j] * x[j], a += fabs(w[j] * x[j]);
        double e = fabs(r->host_y[(size_t)t * (size_t)c->rows + (size_t)row] - s) / a;
        if (!(e <= worst)) worst = e;
    }
    free(x);
    free(w);
    return worst;
}

static ds_status measure(struct cell *c, struct ds_err *e)
{
    struct rig r;
    ds_status st = rig_new(&r, c, e);
    if (!st) {
        c->kernel = r.be->ops->kernel_name(r.be, r.w, c->n);
        product(&r, c);
        c->error = check(&r, c);
        for (int i = 0; i < c->reps; i++) {
            int times = 1;
            uint64_t t0 = ds_now_ns(), t1;
            do product(&r, c), t1 = ds_now_ns();
            while (t1 - t0 < 5000000 && ++times);       /* at least 5 ms per repetition */
            c->ms[i] = (double)(t1 - t0) * 1e-6 / times;
        }
    }
    rig_free(&r);
    return st;
}

static void report(const struct cell *c, struct ds_json_out *j)
{
    double ms = c->ms[ds_median_index(c->ms, c->reps)], gop = 2e-9 * c->k * c->rows * c->n;
    double gb = 1e-9 * ((double)ds_type_row_bytes(c->type, (size_t)c->k) * c->rows + 4.0 * c->n * (c->k + c->rows));
    if (!j) {
        printf("%-7s %-11s %5d x %-6d %5d  %9.3f %9.3f %9.3f  %8.1f  %6.2f  %.1e  %s\n", c->type->name, c->isa, c->k, c->rows, c->n, ms,
               ds_min(c->ms, c->reps), ds_max(c->ms, c->reps), gop / ms * 1e3, gb / ms * 1e3, c->error, c->kernel);
        fflush(stdout);
        return;
    }
    ds_jo_obj(j);
    ds_jo_key(j, "type"); ds_jo_str(j, c->type->name);
    ds_jo_key(j, "isa"); ds_jo_str(j, c->isa);
    ds_jo_key(j, "kernel"); ds_jo_str(j, c->kernel);
    ds_jo_key(j, "k"); ds_jo_int(j, c->k);
    ds_jo_key(j, "rows"); ds_jo_int(j, c->rows);
    ds_jo_key(j, "tokens"); ds_jo_int(j, c->n);
    ds_jo_key(j, "threads"); ds_jo_int(j, c->threads);
    ds_jo_key(j, "decode"); ds_jo_bool(j, c->decode);
    ds_jo_key(j, "ms"); ds_jo_arr(j);
    for (int i = 0; i < c->reps; i++) ds_jo_num(j, c->ms[i]);
    ds_jo_arr_end(j);
    ds_jo_key(j, "median_ms"); ds_jo_num(j, ms);
    ds_jo_key(j, "gops"); ds_jo_num(j, gop / ms * 1e3);
    ds_jo_key(j, "gbs"); ds_jo_num(j, gb / ms * 1e3);
    ds_jo_key(j, "error"); ds_jo_num(j, c->error);
    ds_jo_obj_end(j);
}

/* The word at *list (comma-separated) into dst; false at the end. */
static bool next_word(const char **list, char *dst, size_t cap)
{
    size_t n = strcspn(*list, ",");
    if (!**list) return false;
    snprintf(dst, cap, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return true;
}

static int run(const struct options *o, struct ds_json_out *j)
{
    const char *levels[16];
    int n_levels = ds_cpu_levels(levels, 16), bad = 0;
    char type[32], shape[32], isa[32];
    for (const char *ts = o->types; next_word(&ts, type, sizeof type);)
        for (const char *ss = o->shapes; next_word(&ss, shape, sizeof shape);)
            for (const char *is = o->isa; next_word(&is, isa, sizeof isa);)
                for (int t = 0; t < o->tokens.n; t++) {
                    struct cell c = { .type = ds_type_by_name(type), .isa = isa, .n = o->decode ? 1 : o->tokens.v[t], .threads = o->threads, .reps = o->reps,
                                      .decode = o->decode };
                    struct ds_err e;
                    if (!strcmp(isa, "best")) c.isa = levels[n_levels - 1];
                    if (!c.type || !c.type->random) return ds_cli_usage("kernels", "'%s' is not a weight type", type);
                    if (sscanf(shape, "%dx%d", &c.k, &c.rows) != 2 || c.k < 1 || c.rows < 1 || c.k % c.type->block)
                        return ds_cli_usage("kernels", "'%s' is not a shape KxROWS with K a multiple of %d", shape, c.type->block);
                    if (measure(&c, &e)) {
                        fprintf(stderr, "kernels: %s\n", e.msg);
                        return DS_EXIT_FAIL;
                    }
                    report(&c, j);
                    bad |= !(c.error <= 2e-6);
                }
    if (bad) fprintf(stderr, "kernels: an error above 2e-6: these times are no result\n");
    return bad ? DS_EXIT_FAIL : DS_EXIT_OK;
}

/* The highest level's peaks, which all shares are of. */
static bool peaks_of(struct ds_peaks *p, int threads)
{
    struct ds_err e;
    unsigned mask;
    if (ds_cpu_mask("auto", &mask, &e)) return false;
    struct ds_backend_options bo = { .threads = threads, .isa = mask, .kv = "f16", .gdn = "auto" };
    struct ds_backend *be = ds_backend_open("cpu", "full", &bo, &e);
    if (!be) return false;
    be->ops->peaks(be, p);
    be->ops->free(be);
    return true;
}

static int record(const struct options *o, int argc, char **argv)
{
    const char *levels[16];
    char command[512];
    struct ds_provenance p;
    struct ds_bytes b;
    struct ds_json_out j;
    ds_command_line(command, sizeof command, "kernels", argc, argv);
    ds_provenance_bare(&p, o->threads, levels[ds_cpu_levels(levels, 16) - 1], command);
    if (!peaks_of(&p.peaks, o->threads)) return DS_EXIT_FAIL;
    ds_bytes_init(&b, 1u << 24);
    ds_jo_init(&j, &b, true);
    ds_jo_obj(&j);
    ds_jm_text(&j, "kind", "kernels");
    ds_jm_arr(&j, "cells");
    int rc = run(o, &j);
    ds_jo_arr_end(&j);
    ds_provenance_end(&p);
    ds_provenance_json(&j, &p);
    ds_jo_obj_end(&j);
    puts(b.p);
    ds_bytes_free(&b);
    return rc;
}

int main(int argc, char **argv)
{
    struct options o = { .types = "q8_0", .shapes = SHAPES, .isa = "best", .tokens = { { 512 }, 1 }, .threads = ds_cpu_count(), .reps = 5 };
    const struct ds_opt opts[] = {
        { "--type", "-t", DS_OPT_TEXT, &o.types, "NAMES", 0, 0, "weight types, comma-separated" },
        { "--shape", "-s", DS_OPT_TEXT, &o.shapes, "KxROWS,..", 0, 0, "products; default: those of 0.8B and 27B layers" },
        { "--tokens", "-n", DS_OPT_INTS, &o.tokens, "N,..", 1, 65536, "tokens of a product" },
        { "--isa", NULL, DS_OPT_TEXT, &o.isa, "LEVELS", 0, 0, "instruction sets; best: the highest here" },
        { "--threads", NULL, DS_OPT_INT, &o.threads, "N", 1, 1024, "threads" },
        { "--reps", NULL, DS_OPT_INT, &o.reps, "R", 1, 64, "repetitions; the median counts" },
        { "--decode", NULL, DS_OPT_FLAG, &o.decode, NULL, 0, 0, "one token, the decode path" },
        { "--json", NULL, DS_OPT_FLAG, &o.json, NULL, 0, 0, "a record on stdout" },
    };
    struct ds_cli cli = { .prog = "kernels", .usage = "[options]", .about = "Times the weight products of the CPU backend.\n", .opts = opts,
                          .n_opts = sizeof opts / sizeof *opts };
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc != DS_CLI_GO) return rc;
    if (!o.json) {
        printf("type    isa             K x rows   tokens  median ms       min       max   Gop/s    GB/s    error  kernel\n");
        return run(&o, NULL);
    }
    return record(&o, argc, argv);
}
