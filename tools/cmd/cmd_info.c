/* deltascope info: what a model is, what memory it takes, which kernels will run. */
#include "cmd/cmd.h"
#include "common/member.h"
#include "common/grid.h"
#include "common/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OUTPUT_MAX (1u << 20)

struct shape { const char *key; double v; };

/* The geometry as members: one list for both forms of output. Returns their number. */
static int geometry(struct shape g[32], const struct ds_model_info *m)
{
    const struct shape all[] = {
        { "n_layer", m->n_layer }, { "n_gdn", m->n_gdn }, { "n_attn", m->n_attn }, { "n_mtp", m->n_mtp },
        { "full_attention_interval", m->full_attention_interval }, { "hidden", m->hidden }, { "n_ff", m->n_ff }, { "n_vocab", m->n_vocab },
        { "n_head", m->n_head }, { "n_kv", m->n_kv }, { "head_dim", m->head_dim }, { "n_rot", m->n_rot },
        { "gdn_key_heads", m->gdn_kh }, { "gdn_value_heads", m->gdn_vh }, { "gdn_dk", m->gdn_dk }, { "gdn_dv", m->gdn_dv },
        { "conv_kernel", m->conv_kernel }, { "n_expert", m->n_expert }, { "n_expert_used", m->n_expert_used },
        { "n_ff_expert", m->n_ff_exp }, { "n_ff_shared", m->n_ff_shexp }, { "rms_eps", (double)m->rms_eps },
        { "rope_base", (double)m->rope_base }, { "ctx_model", (double)m->ctx_model }, { "ctx", (double)m->ctx },
    };
    memcpy(g, all, sizeof all);
    return sizeof all / sizeof *all;
}

static uint64_t total(const struct ds_plan *p) { return p->weights + p->weights_extra + p->kv + p->state + p->snapshots + p->scratch; }

/* --- JSON ---------------------------------------------------------------------------------------- */

static void json_types(struct ds_json_out *j, const ds_engine *g)
{
    const char *type;
    int n;
    uint64_t bytes;
    ds_jm_obj(j, "types");
    for (int i = 0; ds_engine_type_row(g, i, &type, &n, &bytes); i++) ds_jm_int(j, type, n);
    ds_jo_obj_end(j);
    ds_jm_obj(j, "type_bytes");
    for (int i = 0; ds_engine_type_row(g, i, &type, &n, &bytes); i++) ds_jm_int(j, type, (int64_t)bytes);
    ds_jo_obj_end(j);
}

/* Kernels of one class, joined when its tensors have several types. */
static void class_kernels(char *dst, size_t size, const ds_engine *g, const char *cls)
{
    const char *c, *type, *kernel;
    dst[0] = 0;
    for (int i = 0; ds_engine_kernel_row(g, i, &c, &type, &kernel); i++)
        if (!strcmp(c, cls) && !strstr(dst, kernel)) snprintf(dst + strlen(dst), size - strlen(dst), "%s%s", *dst ? ", " : "", kernel);
}

static bool seen_before(const ds_engine *g, int row, const char *cls)
{
    const char *c, *type, *kernel;
    for (int i = 0; i < row && ds_engine_kernel_row(g, i, &c, &type, &kernel); i++)
        if (!strcmp(c, cls)) return true;
    return false;
}

static void json_kernels(struct ds_json_out *j, const ds_engine *g)
{
    const char *cls, *type, *kernel;
    ds_jm_obj(j, "kernels");
    for (int i = 0; ds_engine_kernel_row(g, i, &cls, &type, &kernel); i++) {
        char all[512];
        if (seen_before(g, i, cls)) continue;
        class_kernels(all, sizeof all, g, cls);
        ds_jm_text(j, cls, all);
    }
    ds_jo_obj_end(j);
}

static void write_json(struct ds_bytes *out, const ds_engine *g, const struct ds_model_info *m, const struct ds_plan *p)
{
    struct shape shapes[32];
    char hash[24];
    struct ds_json_out j;
    snprintf(hash, sizeof hash, "%016" PRIx64, m->hash);
    ds_jo_init(&j, out, true);
    ds_jo_obj(&j);
    ds_jm_text(&j, "path", m->path);
    ds_jm_text(&j, "hash", m->hash ? hash : NULL);
    ds_jm_text(&j, "arch", m->arch);
    ds_jm_text(&j, "name", m->name);
    ds_jm_text(&j, "type", m->type);
    ds_jm_obj(&j, "geometry");
    for (int i = 0, n = geometry(shapes, m); i < n; i++) ds_jm_num(&j, shapes[i].key, shapes[i].v);
    ds_jm_bool(&j, "tied", m->tied);
    ds_jo_obj_end(&j);
    json_types(&j, g);
    ds_jm_int(&j, "tensors", m->n_tensors);
    ds_jm_int(&j, "params", (int64_t)m->params);
    ds_jm_int(&j, "file_bytes", (int64_t)m->file_bytes);
    ds_jm_num(&j, "gemm_gflop_per_token", m->gemm_flop_per_token * 1e-9);
    ds_jm_int(&j, "ctx", m->ctx);
    ds_jm_int(&j, "ubatch", ds_engine_ubatch(g));
    ds_jm_obj(&j, "plan_bytes");
    ds_jm_int(&j, "weights", (int64_t)p->weights);
    ds_jm_int(&j, "weights_extra", (int64_t)p->weights_extra);
    ds_jm_int(&j, "kv", (int64_t)p->kv);
    ds_jm_int(&j, "state", (int64_t)p->state);
    ds_jm_int(&j, "snapshots", (int64_t)p->snapshots);
    ds_jm_int(&j, "scratch", (int64_t)p->scratch);
    ds_jm_int(&j, "total", (int64_t)total(p));
    ds_jo_obj_end(&j);
    ds_jm_positive(&j, "available_bytes", (double)p->available);
    ds_jm_text(&j, "backend", ds_engine_backend(g));
    ds_jm_text(&j, "placement", ds_engine_placement(g));
    ds_jm_text(&j, "isa", ds_engine_isa(g));
    ds_jm_text(&j, "gdn", ds_engine_gdn_form(g));
    ds_jm_text(&j, "kv", ds_engine_kv_type(g));
    ds_jm_int(&j, "threads", ds_engine_threads(g));
    ds_jm_text(&j, "weight_forms", ds_engine_weight_forms(g));
    json_kernels(&j, g);
    ds_jo_obj_end(&j);
    ds_bytes_puts(out, "\n");
}

/* --- text ---------------------------------------------------------------------------------------- */

static void text_head(struct ds_bytes *out, const struct ds_model_info *m)
{
    char size[16], params[16];
    ds_human_bytes(size, (double)m->file_bytes);
    ds_human_count(params, (double)m->params);
    ds_bytes_printf(out, "model      %s\n", m->path ? m->path : "made in memory");
    ds_bytes_printf(out, "name       %s (%s), %s parameters, mostly %s, %s, ", m->name ? m->name : "?", m->arch, params, m->type, size);
    if (m->hash) ds_bytes_printf(out, "hash %016" PRIx64 "\n", m->hash);
    else ds_bytes_puts(out, "not made\n");
    ds_bytes_printf(out, "layers     %d: %d GDN, %d full attention (every %d%s)%s\n", m->n_layer, m->n_gdn, m->n_attn, m->full_attention_interval,
                    m->full_attention_interval == 1 ? "st" : m->full_attention_interval == 2 ? "nd" : m->full_attention_interval == 3 ? "rd" : "th",
                    m->n_mtp ? ", and an MTP block that is not run" : "");
    ds_bytes_printf(out, "widths     hidden %d, vocabulary %d (%s head)", m->hidden, m->n_vocab, m->tied ? "tied" : "separate");
    if (m->n_expert) ds_bytes_printf(out, ", %d experts of %d, %d used, shared %d\n", m->n_expert, m->n_ff_exp, m->n_expert_used, m->n_ff_shexp);
    else ds_bytes_printf(out, ", feed-forward %d\n", m->n_ff);
    ds_bytes_printf(out, "GDN        %d key heads of %d, %d value heads of %d, convolution %d\n", m->gdn_kh, m->gdn_dk, m->gdn_vh,
                    m->gdn_dv, m->conv_kernel);
    ds_bytes_printf(out, "attention  %d query heads, %d key/value heads of %d, rotary %d, base %g\n", m->n_head, m->n_kv, m->head_dim, m->n_rot,
                    (double)m->rope_base);
    ds_bytes_printf(out, "work       %.3f GFLOP of layer products per token\n", m->gemm_flop_per_token * 1e-9);
}

static void text_types(struct ds_bytes *out, const ds_engine *g, const struct ds_model_info *m)
{
    struct ds_grid t;
    const char *type;
    int n;
    uint64_t bytes;
    ds_bytes_printf(out, "\n%d tensors\n", m->n_tensors);
    ds_grid_init(&t, "lrrr");
    ds_grid_cell(&t, "  type");
    ds_grid_cell(&t, "tensors");
    ds_grid_cell(&t, "size");
    ds_grid_cell(&t, "bytes");
    for (int i = 0; ds_engine_type_row(g, i, &type, &n, &bytes); i++) {
        char size[16];
        ds_human_bytes(size, (double)bytes);
        ds_grid_cell(&t, "  %s", type);
        ds_grid_cell(&t, "%d", n);
        ds_grid_cell(&t, "%s", size);
        ds_grid_cell(&t, "%" PRIu64, bytes);
    }
    ds_grid_text(out, &t);
    ds_grid_free(&t);
}

static void text_plan(struct ds_bytes *out, const ds_engine *g, const struct ds_model_info *m, const struct ds_plan *p)
{
    char kv[64], scratch[64];
    snprintf(kv, sizeof kv, "%" PRId64 " tokens in %s, one session", m->ctx, ds_engine_kv_type(g));
    snprintf(scratch, sizeof scratch, "activations of %d tokens, %d threads", ds_engine_ubatch(g), ds_engine_threads(g));
    const struct { const char *name; uint64_t bytes; const char *what; } rows[] = {
        { "  weights", p->weights, "the file, mapped, or its copy on the device" },
        { "  weights, extra", p->weights_extra, ds_engine_weight_forms(g) ? ds_engine_weight_forms(g) : "repacked or converted copies" },
        { "  KV cache", p->kv, kv },
        { "  state", p->state, "convolution and recurrent state, one session" },
        { "  snapshot", p->snapshots, "each; state and last logits" },
        { "  scratch", p->scratch, scratch },
        { "  total", total(p), "with one snapshot" },
    };
    struct ds_grid t;
    ds_bytes_printf(out, "\nmemory (the model's window is %" PRId64 " tokens; --ctx chooses)\n", m->ctx_model);
    ds_grid_init(&t, "lrrl");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char size[16];
        ds_human_bytes(size, (double)rows[i].bytes);
        ds_grid_cell(&t, "%s", rows[i].name);
        ds_grid_cell(&t, "%s", size);
        ds_grid_cell(&t, "%" PRIu64, rows[i].bytes);
        ds_grid_cell(&t, "%s", rows[i].what);
    }
    ds_grid_text(out, &t);
    ds_grid_free(&t);
    if (total(p) > p->available && p->available) {
        char have[16];
        ds_human_bytes(have, (double)p->available);
        ds_bytes_printf(out, "  DOES NOT FIT: %s of memory are available here\n", have);
    }
}

static void text_kernels(struct ds_bytes *out, const ds_engine *g)
{
    struct ds_grid t;
    const char *cls, *type, *kernel;
    ds_bytes_printf(out, "\nruns on %s, placement %s, %s, %d threads, recurrence %s\n", ds_engine_backend(g), ds_engine_placement(g),
                    ds_engine_isa(g), ds_engine_threads(g), ds_engine_gdn_form(g));
    ds_grid_init(&t, "lll");
    for (int i = 0; ds_engine_kernel_row(g, i, &cls, &type, &kernel); i++) {
        ds_grid_cell(&t, "  %s", cls);
        ds_grid_cell(&t, "%s", type);
        ds_grid_cell(&t, "%s", kernel);
    }
    ds_grid_text(out, &t);
    ds_grid_free(&t);
}

int ds_cmd_info(int argc, char **argv)
{
    struct ds_common common = { .skip = 0 };
    bool json = false;
    const struct ds_opt opts[] = { { "--json", NULL, DS_OPT_FLAG, &json, NULL, 0, 0, "JSON on stdout, nothing else" } };
    struct ds_cli cli = {
        .prog = "deltascope info", .usage = "[MODEL] [options]",
        .about = "Geometry, tensor types, the memory plan, and the kernel that each class of tensors will run on.\n",
        .opts = opts, .n_opts = 1, .common = &common, .groups = DS_GROUP_MODEL | DS_GROUP_SYNTH | DS_GROUP_ENGINE,
        .max_args = 1, .arg_is_model = true,
    };
    ds_engine *g;
    struct ds_plan plan;
    struct ds_bytes out;
    struct ds_err e;
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc != DS_CLI_GO) return rc;
    common.engine.synth.plan_only = true;
    if (ds_tool_open(&g, &common.engine, &e)) return ds_tool_fail(cli.prog, &e);
    const struct ds_model_info *m = ds_engine_info(g);
    ds_engine_plan(g, &plan);
    ds_bytes_init(&out, OUTPUT_MAX);
    if (json) {
        write_json(&out, g, m, &plan);
    } else {
        text_head(&out, m);
        text_types(&out, g, m);
        text_plan(&out, g, m, &plan);
        text_kernels(&out, g);
    }
    ds_status st = ds_tool_write(&out, NULL, &e);
    ds_bytes_free(&out);
    ds_engine_close(g);
    return st ? ds_tool_fail(cli.prog, &e) : DS_EXIT_OK;
}
