/* deltascope run: continue a text, or chat. */
#include "cmd/cmd.h"
#include "cmd/generate.h"
#include "cmd/textin.h"
#include "common/member.h"
#include "common/options.h"
#include "common/report.h"
#include "common/tool.h"

#include "base/os.h"
#include "deltascope_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT ((size_t)INT32_MAX)
#define PLAIN_N 128                  /* new tokens of a continuation when -n is not given */
#define NOT_GIVEN (-2)

static const char prog[] = "deltascope run";

struct request {
    const char *text, *file, *system, *thinking, *session;
    bool chat, echo, special, json;
    int max_new;
    struct ds_sampling sampling;     /* NAN and -1: not given */
    struct ds_texts stops;
    struct ds_common common;
};

/* --- options ------------------------------------------------------------------------------------------ */

/* What the family's vendor recommends for conversation, for which greedy picks tend to loop. */
static const struct ds_sampling chat_closed = {
    .temp = 0.7f, .top_p = 0.8f, .top_k = 20, .repeat_penalty = 1, .presence_penalty = 1.5f
};
static const struct ds_sampling chat_thinking = { .temp = 1, .top_p = 0.95f, .top_k = 20, .repeat_penalty = 1 };

static float given(float v, float otherwise) { return isnan(v) ? otherwise : v; }

/* A temperature that is given stands alone; otherwise a chat has its defaults and a continuation is greedy. */
static struct ds_sampling choose_sampling(const struct request *q, bool chat, bool thinking)
{
    struct ds_sampling d = DS_SAMPLING_GREEDY, s = q->sampling;
    if (chat && isnan(s.temp)) d = thinking ? chat_thinking : chat_closed;
    return (struct ds_sampling){
        .temp = given(s.temp, d.temp),
        .top_p = given(s.top_p, d.top_p),
        .min_p = given(s.min_p, d.min_p),
        .repeat_penalty = given(s.repeat_penalty, d.repeat_penalty),
        .presence_penalty = given(s.presence_penalty, d.presence_penalty),
        .top_k = s.top_k < 0 ? d.top_k : s.top_k,
        .seed = s.seed,
    };
}

/* --- one prompt ----------------------------------------------------------------------------------------- */

struct run {
    const struct request *q;
    struct ds_generation gen;
    bool thinking;
    ds_session_file *file;           /* held for the whole run; NULL: none */
    bool resumed;                    /* the session came from a file, */
    int64_t held;                    /* with so many tokens */
    bool cut_short;                  /* a prompt was interrupted: the session holds a part of it */
};

static ds_status read_prompt(const struct request *q, struct ds_bytes *b, struct ds_err *e)
{
    if (q->file) return ds_read_text(b, q->file, e);
    ds_bytes_puts(b, q->text);
    return b->failed ? ds_fail(e, DS_ENOMEM, "the prompt passes %zu bytes", b->max) : DS_OK;
}

static ds_status chat_ids(const struct run *r, const char *words, bool first, struct ds_ids *ids, struct ds_err *e)
{
    struct ds_message m[2] = { { "system", r->q->system }, { "user", words } };
    int skip = r->q->system && first ? 0 : 1;
    return ds_chat_tokenize(r->gen.g, m + skip, 2 - skip, r->thinking, ids, e);
}

static ds_status print_json(const struct run *r, size_t n_prompt, uint64_t seed, struct ds_err *e)
{
    struct ds_bytes b;
    struct ds_json_out j;
    ds_bytes_init(&b, SIZE_MAX / 4);
    ds_jo_init(&j, &b, false);
    ds_jo_obj(&j);
    ds_jm_int(&j, "prompt_tokens", (int64_t)n_prompt);
    if (r->q->session) ds_jm_int(&j, "resumed_tokens", r->held);
    ds_jm_arr(&j, "ids");
    for (size_t i = 0; i < r->gen.ids.n; i++) ds_jo_int(&j, r->gen.ids.p[i]);
    ds_jo_arr_end(&j);
    ds_jo_key(&j, "text");
    ds_jo_strn(&j, r->gen.text.p ? r->gen.text.p : "", r->gen.text.n);
    ds_jm_text(&j, "finish", ds_finish_names[r->gen.finish]);
    ds_jm_num(&j, "prefill_ms", r->gen.prefill_ms);
    ds_jm_num(&j, "decode_ms", r->gen.decode_ms);
    ds_jm_int(&j, "seed", (int64_t)seed);
    ds_jo_obj_end(&j);
    ds_bytes_puts(&b, "\n");
    ds_status st = ds_tool_write(&b, NULL, e);
    ds_bytes_free(&b);
    return st;
}

/* On a terminal the shell's prompt begins on a line of its own. */
static void end_line(const struct run *r)
{
    const struct ds_bytes *t = &r->gen.text;
    bool open_line = !t->n || t->p[t->n - 1] != '\n';
    if (r->gen.print && open_line && ds_is_terminal(1)) putchar('\n');
    fflush(stdout);
}

/* The exit code that the last answer's end calls for; a full window is said. */
static int finish_code(const struct run *r)
{
    if (r->gen.finish == DS_FINISH_INTERRUPTED) return DS_EXIT_INTERRUPTED;
    if (r->gen.finish != DS_FINISH_WINDOW) return DS_EXIT_OK;
    fprintf(stderr, "%s: the window of %lld tokens is full after %zu new ones (see --ctx)\n", prog,
            (long long)ds_engine_info(r->gen.g)->ctx, r->gen.ids.n);
    return DS_EXIT_FAIL;
}

static ds_status print_table(const struct run *r, struct ds_err *e)
{
    const struct ds_profile *p = ds_session_profile(r->gen.s);
    struct ds_bytes b;
    if (!p) return DS_OK;
    ds_bytes_init(&b, 1 << 20);
    ds_report_profile(&b, p, ds_engine_peaks(r->gen.g), r->gen.g, 0);
    fwrite(b.p, 1, b.n, stderr);
    ds_bytes_free(&b);
    return ds_check_rates(p, r->gen.g, e);
}

/* The session goes on: an answer is closed, then the next turn follows. */
static ds_status turn_ids(const struct run *r, const char *words, bool first, struct ds_ids *ids, struct ds_err *e)
{
    static const char closing[] = "<|im_end|>\n";
    struct ds_ids close = { NULL, 0 }, turn = { NULL, 0 };
    if (first) return chat_ids(r, words, true, ids, e);
    ds_status st = ds_tokenize(r->gen.g, closing, sizeof closing - 1, true, &close, e);
    if (!st) st = chat_ids(r, words, false, &turn, e);
    int32_t *all = st ? NULL : malloc((close.n + turn.n) * sizeof *all);
    if (!st && !all) st = ds_fail(e, DS_ENOMEM, "no memory for the turn");
    if (!st) {
        memcpy(all, close.p, close.n * sizeof *all);
        memcpy(all + close.n, turn.p, turn.n * sizeof *all);
        *ids = (struct ds_ids){ all, close.n + turn.n };
    }
    free(close.p);
    free(turn.p);
    return st;
}

static ds_status plain_ids(const struct run *r, const struct ds_bytes *text, struct ds_ids *ids, struct ds_err *e)
{
    return ds_tokenize_until(r->gen.g, text->p ? text->p : "", text->n, r->q->special, ds_tool_stop, NULL, ids, e);
}

static ds_status one_prompt(struct run *r, int *rc, struct ds_err *e)
{
    struct ds_bytes text;
    struct ds_ids ids = { NULL, 0 };
    ds_bytes_init(&text, MAX_TEXT);
    ds_status st = read_prompt(r->q, &text, e);
    const char *p = text.p ? text.p : "";
    if (!st && r->q->chat && strlen(p) < text.n) st = ds_fail(e, DS_EFORMAT, "the message holds a NUL byte, which no chat carries");
    if (!st) st = r->q->chat ? turn_ids(r, p, !r->resumed, &ids, e) : plain_ids(r, &text, &ids, e);
    if (!st && !ids.n && !ds_session_logits(r->gen.s)) st = ds_fail(e, DS_EFORMAT, "the prompt is empty, expected at least one token");
    if (!st) {
        if (r->q->echo && r->gen.print) st = ds_tool_print(p, text.n, e);
        if (!st) st = ds_generate(&r->gen, ids.p, ids.n, e);
        r->cut_short = r->gen.finish == DS_FINISH_INTERRUPTED && !r->gen.ids.n;
        end_line(r);
    }
    if (!st && r->q->json) st = print_json(r, ids.n, r->q->sampling.seed, e);
    if (!st) {
        *rc = finish_code(r);
        if (*rc == DS_EXIT_OK) st = print_table(r, e);
    }
    free(ids.p);
    ds_bytes_free(&text);
    return st;
}

/* --- conversation --------------------------------------------------------------------------------------- */

static ds_status one_turn(struct run *r, const char *words, bool first, struct ds_err *e)
{
    struct ds_ids ids = { NULL, 0 };
    ds_status st = turn_ids(r, words, first, &ids, e);
    if (!st) st = ds_generate(&r->gen, ids.p, ids.n, e);
    r->cut_short |= r->gen.finish == DS_FINISH_INTERRUPTED && !r->gen.ids.n;
    free(ids.p);
    return st;
}

static bool blank(const char *s) { return !s || !s[strspn(s, " \t\r\n")]; }

static ds_status conversation(struct run *r, int *rc, struct ds_err *e)
{
    bool terminal = ds_is_terminal(0);
    struct ds_bytes line;
    ds_status st = DS_OK;
    ds_bytes_init(&line, MAX_TEXT);
    if (terminal) fprintf(stderr, "Each line is a turn. Ctrl-C stops an answer, Ctrl-D ends the conversation.\n");
    for (bool first = !r->resumed; !st && *rc == DS_EXIT_OK;) {
        if (terminal) fputs("> ", stderr);
        if (!ds_read_line(&line, stdin)) break;
        if (blank(line.p)) continue;
        st = one_turn(r, line.p, first, e);
        first = false;
        if (st) break;
        if ((st = ds_tool_print("\n", 1, e))) break;
        if (r->gen.finish != DS_FINISH_INTERRUPTED) *rc = finish_code(r);
        else if (terminal) ds_tool_interrupted = 0;      /* the answer is stopped, the conversation goes on */
        else *rc = DS_EXIT_INTERRUPTED;
    }
    if (terminal && ferror(stdin)) fputc('\n', stderr);
    if (ds_tool_interrupted) *rc = DS_EXIT_INTERRUPTED;
    ds_bytes_free(&line);
    return st;
}

/* --- session file --------------------------------------------------------------------------------------- */

static ds_status load_session(struct run *r, struct ds_err *e)
{
    const char *path = r->q->session;
    if (!path) return DS_OK;
    ds_status st = ds_session_file_open(&r->file, r->gen.g, path, e);      /* now, and not when the answer would be lost */
    if (st || !ds_file_exists(path)) return st;
    if ((st = ds_session_load(r->gen.s, r->gen.g, path, e))) return st;
    r->resumed = true;
    r->held = ds_session_pos(r->gen.s);
    return DS_OK;
}

/* A part of a prompt is no place to go on from: then the file stays as it was. */
static ds_status save_session(struct run *r, struct ds_err *e)
{
    if (!r->file || r->cut_short || !(ds_session_pos(r->gen.s) || r->gen.owed.n)) return DS_OK;
    ds_status st = ds_generation_settle(&r->gen, e);
    return st ? st : ds_session_file_save(r->file, r->gen.s, e);
}

/* --- command -------------------------------------------------------------------------------------------- */

static int run(struct request *q)
{
    struct run r = { .q = q };
    struct ds_err e;
    ds_engine *g = NULL;
    bool has_prompt = q->text || q->file;
    int rc = DS_EXIT_OK;
    if (ds_tool_open(&g, &q->common.engine, &e)) return ds_tool_fail(prog, &e);

    const int asked = q->thinking ? !strcmp(q->thinking, "on") : -1;
    r.thinking = ds_chat_thinks(g, asked);
    if (asked >= 0 && asked != r.thinking)
        fprintf(stderr, "%s: --thinking %s changes nothing: the chat template of this file has no such switch\n", prog, q->thinking);
    struct ds_sampling s = choose_sampling(q, q->chat || !has_prompt, r.thinking);
    r.gen = (struct ds_generation){ .g = g, .sampling = s, .stops = q->stops, .max_new = q->max_new, .print = !q->json };
    ds_status st = ds_session_new(&r.gen.s, g, &e);
    if (!st) st = load_session(&r, &e);
    if (!st) {
        ds_session_set_profile(r.gen.s, q->common.profile);
        st = has_prompt ? one_prompt(&r, &rc, &e) : conversation(&r, &rc, &e);
    }
    if (!st) st = save_session(&r, &e);
    if (st) {
        ds_tool_fail(prog, &e);
        rc = e.code == DS_ECANCEL ? DS_EXIT_INTERRUPTED : DS_EXIT_FAIL;
    }
    ds_session_file_close(r.file);
    ds_generation_free(&r.gen);
    ds_session_free(r.gen.s);
    ds_engine_close(g);
    return rc;
}

static int check(struct request *q)
{
    bool has_prompt = q->text || q->file;
    if (q->text && q->file) return ds_cli_usage(prog, "-p and -f exclude each other");
    if (!has_prompt && !q->chat && !ds_is_terminal(0))
        return ds_cli_usage(prog, "no prompt: expected -p TEXT, -f FILE, or a terminal to chat on");
    if (!has_prompt && (q->json || q->echo)) return ds_cli_usage(prog, "--json and --echo need a prompt (-p or -f)");
    if (has_prompt && !q->chat && (q->system || q->thinking)) return ds_cli_usage(prog, "--system and --thinking need --chat");
    for (int i = 0; i < q->stops.n; i++)
        if (!q->stops.v[i][0]) return ds_cli_usage(prog, "--stop '': expected some text");
    if (q->max_new == NOT_GIVEN) q->max_new = has_prompt && !q->chat ? PLAIN_N : -1;
    return DS_CLI_GO;
}

int ds_cmd_run(int argc, char **argv)
{
    struct request q = {
        .max_new = NOT_GIVEN,
        .sampling = { .temp = NAN, .top_p = NAN, .min_p = NAN, .repeat_penalty = NAN, .presence_penalty = NAN, .top_k = -1,
                      .seed = ds_now_ns() & 0xFFFFFFFF },
    };
    struct ds_sampling *s = &q.sampling;
    const struct ds_opt opts[] = {
        { "-p", "--prompt", DS_OPT_TEXT, &q.text, "TEXT", 0, 0, "text to continue" },
        { "-f", "--file", DS_OPT_PATH, &q.file, "FILE", 0, 0, "file to continue, byte for byte; - is standard input" },
        { "-n", "--tokens", DS_OPT_INT, &q.max_new, "N", -1, 1 << 30,
          "new tokens; -1: until the model ends (default: 128, in a chat -1)" },
        { "--echo", NULL, DS_OPT_FLAG, &q.echo, NULL, 0, 0, "print the prompt too" },
        { "--special", NULL, DS_OPT_FLAG, &q.special, NULL, 0, 0, "text of special tokens in the prompt becomes their ids" },
        { "--chat", NULL, DS_OPT_FLAG, &q.chat, NULL, 0, 0,
          "the prompt is a user's turn; without one, each line of the input is" },
        { "--system", NULL, DS_OPT_TEXT, &q.system, "TEXT", 0, 0, "system message of a chat" },
        { "--thinking", NULL, DS_OPT_CHOICE, &q.thinking, "on|off", 0, 0,
          "think before an answer (default: as the model's template)" },
        { "--stop", NULL, DS_OPT_TEXTS, &q.stops, "TEXT", 0, 0, "end before this text; may be given several times" },
        { "--temp", NULL, DS_OPT_FLOAT, &s->temp, "T", 0, 100,
          "temperature, 0: the likeliest (default: 0; a chat without it takes the vendor's settings)" },
        { "--top-k", NULL, DS_OPT_INT, &s->top_k, "K", 0, 1 << 30, "among the K likeliest (0: all)" },
        { "--top-p", NULL, DS_OPT_FLOAT, &s->top_p, "P", 0, 1, "among the fewest that hold this probability (1: all)" },
        { "--min-p", NULL, DS_OPT_FLOAT, &s->min_p, "P", 0, 1, "at least this share of the likeliest one's probability" },
        { "--repeat-penalty", NULL, DS_OPT_FLOAT, &s->repeat_penalty, "R", 0.01, 100, "weakens tokens seen before (1: off)" },
        { "--presence-penalty", NULL, DS_OPT_FLOAT, &s->presence_penalty, "R", -100, 100,
          "taken from logits of tokens that the answer has (0: off)" },
        { "--seed", NULL, DS_OPT_SEED, &s->seed, "S", 0, 0, "seed of the picks (default: from the clock)" },
        { "--session", NULL, DS_OPT_PATH, &q.session, "FILE", 0, 0,
          "go on from the session saved there, if it exists, and save it at the end; the text is added to it" },
        { "--json", NULL, DS_OPT_FLAG, &q.json, NULL, 0, 0, "ids, text and times as JSON on stdout, nothing else" },
    };
    struct ds_cli cli = {
        .prog = prog,
        .usage = "[-m MODEL] [-p TEXT | -f FILE] [-n N] [--chat] [options]",
        .about = "Prints what the model says after the text, and nothing else, on stdout. Without a prompt, on a terminal, it\n"
                 "is a chat.\n",
        .opts = opts, .n_opts = sizeof opts / sizeof *opts,
        .common = &q.common, .groups = DS_GROUP_MODEL | DS_GROUP_ENGINE | DS_GROUP_ANSWER,
    };
    int rc = ds_cli_parse(&cli, argc, argv);
    if (rc == DS_CLI_GO) rc = check(&q);
    return rc == DS_CLI_GO ? run(&q) : rc;
}
