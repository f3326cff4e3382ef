/* deltascope tokenize: text to ids and back. */
#include "cmd/cmd.h"
#include "cmd/textin.h"
#include "common/options.h"
#include "common/tool.h"

#include "base/json.h"
#include "base/os.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT ((size_t)INT32_MAX)

struct request {
    const char *text, *file, *decode;
    bool special, json;
};

static const char *skip_blanks(const char *s) { return s + strspn(s, " \t\r\n"); }

/* "1,2 3" -> ids: blanks, one comma, or both lie between two of them. */
static ds_status parse_ids(const ds_engine *g, const char *s, struct ds_ids *out, struct ds_err *e)
{
    int n_vocab = ds_engine_info(g)->n_vocab;
    *out = (struct ds_ids){ malloc((strlen(s) / 2 + 1) * sizeof *out->p), 0 };
    if (!out->p) return ds_fail(e, DS_ENOMEM, "no memory for the ids");
    for (bool more = *(s = skip_blanks(s)); more;) {
        char *end;
        size_t len = strcspn(s, ", \t\r\n");
        errno = 0;
        long id = strtol(s, &end, 10);
        if (!len || *s < '0' || *s > '9' || end != s + len || errno || id >= n_vocab)
            return ds_fail(e, DS_EARG, "--decode: '%.*s' is no id, expected a whole number below %d", len < 40 ? (int)len : 40, s,
                           n_vocab);
        out->p[out->n++] = (int32_t)id;
        s = skip_blanks(end);
        more = *s;
        if (*s == ',') s = skip_blanks(s + 1);
    }
    return DS_OK;
}

static void put_decoded(struct ds_bytes *b, const ds_engine *g, const struct ds_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        const char *p;
        size_t n = ds_token_bytes(g, ids->p[i], &p);
        ds_bytes_add(b, p, n);
    }
}

static void put_json(struct ds_bytes *b, const ds_engine *g, const struct ds_ids *ids, const struct ds_bytes *decoded)
{
    struct ds_json_out j;
    ds_jo_init(&j, b, false);
    ds_jo_obj(&j);
    ds_jo_key(&j, "ids");
    ds_jo_arr(&j);
    for (size_t i = 0; i < ids->n && !ds_tool_interrupted; i++) ds_jo_int(&j, ids->p[i]);
    ds_jo_arr_end(&j);
    ds_jo_key(&j, "pieces");
    ds_jo_arr(&j);
    for (size_t i = 0; i < ids->n && !ds_tool_interrupted; i++) ds_jo_str(&j, ds_token_piece(g, ids->p[i]));
    ds_jo_arr_end(&j);
    if (decoded) {
        ds_jo_key(&j, "text");
        ds_jo_strn(&j, decoded->p ? decoded->p : "", decoded->n);
    }
    ds_jo_obj_end(&j);
    ds_bytes_puts(b, "\n");
}

static ds_status answer(const ds_engine *g, const struct request *q, const struct ds_ids *ids, struct ds_err *e)
{
    struct ds_bytes b, decoded;
    ds_bytes_init(&b, SIZE_MAX / 4);
    ds_bytes_init(&decoded, SIZE_MAX / 4);
    if (q->decode) put_decoded(&decoded, g, ids);
    if (q->json) put_json(&b, g, ids, q->decode ? &decoded : NULL);
    else if (!q->decode) {
        for (size_t i = 0; i < ids->n && !ds_tool_interrupted; i++) ds_bytes_printf(&b, "%s%d", i ? " " : "", (int)ids->p[i]);
        ds_bytes_puts(&b, "\n");
    } else {
        ds_bytes_add(&b, decoded.p, decoded.n);
        if (ds_is_terminal(1) && (!b.n || b.p[b.n - 1] != '\n')) ds_bytes_puts(&b, "\n");
    }
    ds_status st;
    if (ds_tool_interrupted) st = ds_fail(e, DS_ECANCEL, "interrupted before anything was written");
    else if (decoded.failed) st = ds_fail(e, DS_ENOMEM, "no memory for the text");
    else st = ds_tool_write(&b, NULL, e);
    ds_bytes_free(&b);
    ds_bytes_free(&decoded);
    return st;
}

static ds_status work(const ds_engine *g, const struct request *q, struct ds_err *e)
{
    struct ds_bytes text;
    struct ds_ids ids = { NULL, 0 };
    ds_status st = DS_OK;
    ds_bytes_init(&text, MAX_TEXT);
    if (q->decode) {
        st = parse_ids(g, q->decode, &ids, e);
    } else {
        if (q->file) st = ds_read_text(&text, q->file, e);
        const char *p = q->file ? text.p : q->text;
        size_t n = q->file ? text.n : strlen(p);
        if (!st) st = ds_tokenize_until(g, p ? p : "", n, q->special, ds_tool_stop, NULL, &ids, e);
    }
    if (!st) st = answer(g, q, &ids, e);
    free(ids.p);
    ds_bytes_free(&text);
    return st;
}

int ds_cmd_tokenize(int argc, char **argv)
{
    static const char prog[] = "deltascope tokenize";
    struct request q = { 0 };
    struct ds_common common = { 0 };
    const struct ds_opt opts[] = {
        { "-p", "--prompt", DS_OPT_TEXT, &q.text, "TEXT", 0, 0, "text to tokenize" },
        { "-f", "--file", DS_OPT_PATH, &q.file, "FILE", 0, 0, "file to tokenize, byte for byte; - is standard input" },
        { "--special", NULL, DS_OPT_FLAG, &q.special, NULL, 0, 0, "text of special tokens becomes their ids" },
        { "--decode", NULL, DS_OPT_TEXT, &q.decode, "IDS", 0, 0, "ids to text: numbers with commas or spaces between" },
        { "--json", NULL, DS_OPT_FLAG, &q.json, NULL, 0, 0, "ids and pieces as JSON on stdout, nothing else" },
    };
    struct ds_cli cli = {
        .prog = prog,
        .usage = "[-m MODEL] (-p TEXT | -f FILE | --decode IDS) [options]",
        .about = "Prints the ids of a text, or the text of ids, with a model's vocabulary.\n",
        .opts = opts, .n_opts = sizeof opts / sizeof *opts,
        .common = &common, .groups = DS_GROUP_MODEL,
    };
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc != DS_CLI_GO) return rc;
    if (!q.text + !q.file + !q.decode != 2) return ds_cli_usage(prog, "expected one of -p, -f and --decode");

    ds_engine *g;
    struct ds_err e;
    common.engine.threads = 1;      /* no forward will run */
    common.engine.ctx = 1;
    if (ds_tool_open(&g, &common.engine, &e)) return ds_tool_fail(prog, &e);
    ds_status st = work(g, &q, &e);
    ds_engine_close(g);
    return st ? ds_tool_fail(prog, &e) : DS_EXIT_OK;
}
