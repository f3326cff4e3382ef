#include "chat/reader.h"

#include "base/buf.h"
#include "chat/find.h"
#include "chat/scan.h"
#include "chat/value.h"

#include <ctype.h>
#include <stdlib.h>

enum mode { CONTENT, REASONING };
/* A failed call longer than this is not searched for calls inside it again. */
enum { RESCAN = 16384 };

struct ds_reader {
    const struct ds_dialog *d;
    ds_said_fn fn;
    void *ctx;
    struct ds_bytes held;      /* text that is not told yet */
    size_t off;                /* of it, used up */
    struct ds_str prefix;      /* the prompt's, until it is read */
    bool unseen;               /* it is told like the rest */
    size_t muted;              /* bytes of it that are still held, and not told */
    enum mode mode;
    size_t spaces;             /* of what is held: white space at its head that was looked at */
    bool tools;
    bool skip_space;           /* white space is dropped until something else comes */
    bool blank;                /* nothing but white space was said */
    bool thought_call;         /* a call ended the reasoning: its end tag may follow */
    bool scanning;             /* a call is being read from off on */
    struct ds_scan scan;
    size_t lead;               /* white space before it */
    bool live;                 /* calls are told in parts */
    int n_told;                /* of the scan's calls, those that were told whole */
    bool begun;                /* the next of them was told in part: */
    size_t n_members;          /* so many of its arguments whole, */
    bool in_text;              /* and of the next one, a text, */
    size_t text_told;          /* so many bytes */
    int n_calls;
    bool failed;
};

struct ds_reader *ds_reader_new(const struct ds_dialog *d, const struct ds_chat_tail *tail, bool live, ds_said_fn fn, void *ctx)
{
    struct ds_reader *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    *r = (struct ds_reader){ .d = d, .fn = fn, .ctx = ctx, .live = live, .mode = tail->in_think ? REASONING : CONTENT, .blank = true };
    r->tools = ds_dialog_n_tools(d) > 0;
    r->skip_space = tail->in_think;
    ds_bytes_init(&r->held, INT32_MAX);
    r->prefix = tail->prefix;
    r->unseen = tail->unseen;
    return r;
}

void ds_reader_free(struct ds_reader *r)
{
    if (!r) return;
    if (r->scanning) ds_scan_free(&r->scan);
    ds_bytes_free(&r->held);
    free(r);
}

static struct ds_str rest(const struct ds_reader *r)
{
    return (struct ds_str){ r->held.p + r->off, r->held.n - r->off };
}

static void drop(struct ds_reader *r, size_t n)
{
    r->off += n;
    if (n) r->spaces = 0;
    r->muted -= n < r->muted ? n : r->muted;
}

/* Tells the next n bytes, apart from those of the prefix. */
static void tell(struct ds_reader *r, size_t n)
{
    struct ds_str s = { rest(r).p, n };
    if (!n) return;
    r->skip_space = r->blank = r->thought_call = false;
    if (n > r->muted) r->fn(r->ctx, r->mode == REASONING ? DS_SAID_REASONING : DS_SAID_CONTENT, s.p + r->muted, n - r->muted);
    drop(r, n);
}

static void enter(struct ds_reader *r, enum mode mode)
{
    r->mode = mode;
    r->skip_space = true;
}

/* --- calls ---------------------------------------------------------------------------------------- */

/* Before an argument: its key, unless a part of it was told. */
static void put_key(struct ds_reader *r, struct ds_bytes *b, const char *key)
{
    json_t *k = r->in_text ? NULL : json_string(key);
    if (!k) return;
    ds_bytes_puts(b, r->n_members ? ", " : "{");
    ds_value_dump(b, k);
    ds_bytes_puts(b, ": ");
    json_decref(k);
}

/* Arguments that are whole and were not told. */
static void put_members(struct ds_reader *r, struct ds_bytes *b, json_t *arguments)
{
    size_t i = 0;
    for (void *it = json_object_iter(arguments); it; it = json_object_iter_next(arguments, it)) {
        const json_t *v = json_object_iter_value(it);
        if (i++ < r->n_members) continue;
        put_key(r, b, json_object_iter_key(it));
        if (r->in_text) {
            ds_value_escape(b, json_string_value(v) + r->text_told, json_string_length(v) - r->text_told);
            ds_bytes_puts(b, "\"");
        } else {
            ds_value_dump(b, v);
        }
        r->in_text = false;
        r->n_members++;
    }
}

/* The text that is being read, as far as it is certain. */
static void put_partial(struct ds_reader *r, struct ds_bytes *b, const char *param, struct ds_str value)
{
    if (!r->in_text) {
        put_key(r, b, param);
        ds_bytes_puts(b, "\"");
        r->text_told = 0;
    }
    r->in_text = true;
    ds_value_escape(b, value.p + r->text_told, value.n - r->text_told);
    r->text_told = value.n;
}

/* Tells the next of the scan's calls: what is new of it. whole: to its end. param: the text that is being read, or NULL. */
static void tell_call(struct ds_reader *r, bool whole, const char *param, struct ds_str value)
{
    const struct ds_scan_call *c = &r->scan.calls[r->n_told];
    struct ds_bytes args;
    ds_bytes_init(&args, INT32_MAX);
    if (!r->begun) {
        r->fn(r->ctx, DS_SAID_CALL, c->name, strlen(c->name));
        r->n_members = 0;
        r->n_calls++;
    }
    r->begun = !whole;
    put_members(r, &args, c->arguments);
    if (param) put_partial(r, &args, param, value);
    if (whole) ds_bytes_puts(&args, r->n_members ? "}" : "{}");
    r->failed |= args.failed;
    if (args.n) r->fn(r->ctx, DS_SAID_ARGUMENTS, args.p, args.n);
    ds_bytes_free(&args);
    if (!whole) return;
    r->fn(r->ctx, DS_SAID_CALL_END, "", 0);
    r->n_told++;
}

static void tell_calls(struct ds_reader *r, int n)
{
    while (r->n_told < n) tell_call(r, true, NULL, (struct ds_str){ "", 0 });
}

/* What stays as it is, while the scan waits for more. */
static void tell_so_far(struct ds_reader *r)
{
    bool open;
    const char *param = NULL;
    struct ds_str value = { "", 0 };
    tell_calls(r, ds_scan_n_whole(&r->scan, &open));
    if (!open) return;
    ds_scan_partial(&r->scan, ds_after(rest(r), r->lead), &param, &value);
    if (!param && json_object_size(r->scan.calls[r->n_told].arguments) <= (r->begun ? r->n_members : 0)) return;
    r->scan.committed = true;
    tell_call(r, false, param, value);
}

static void end_scan(struct ds_reader *r)
{
    ds_scan_free(&r->scan);
    r->scanning = r->begun = r->in_text = false;
    r->n_told = 0;
}

/* Reads on in a call. False: more text is needed. */
static bool go_on(struct ds_reader *r, bool end)
{
    enum ds_scan_result got = ds_scan_go(&r->scan, ds_after(rest(r), r->lead), end);
    r->failed |= r->scan.failed;
    if (got == DS_SCAN_WAIT) {
        if (r->live) tell_so_far(r);
        return false;
    }
    if (got == DS_SCAN_DONE) {
        bool thought = r->mode == REASONING;
        tell_calls(r, r->scan.n_calls);
        drop(r, r->lead + r->scan.at);
        enter(r, CONTENT);
        if (r->scan.stray.n) r->fn(r->ctx, DS_SAID_CONTENT, r->scan.stray.p, r->scan.stray.n);
        r->thought_call = thought;
        r->blank = false;
    } else {
        tell(r, r->lead + (r->scan.at < RESCAN ? 1 : r->scan.at));       /* a "<" like any other */
    }
    end_scan(r);
    return true;
}

/* A limit cut a call that is not whole: it is content, unless it was begun, and then it stays without an end. */
static void cut_call(struct ds_reader *r)
{
    bool open;
    tell_calls(r, ds_scan_n_whole(&r->scan, &open));
    if (r->n_told) {
        drop(r, r->lead + r->scan.begin);
        enter(r, CONTENT);
    }
    if (r->begun) drop(r, rest(r).n);
    tell(r, rest(r).n);
    end_scan(r);
}

/* --- text ----------------------------------------------------------------------------------------- */

enum tag { NONE, MAYBE, THINK, THINK_END, CALL };

/* What stands at the "<" that begins s. said: there are words before it that are not told yet. */
static enum tag tag_at(const struct ds_reader *r, struct ds_str s, bool said, bool end)
{
    static const char *const calls[] = { DS_TAG_CALL, DS_TAG_FUNCTION, DS_TAG_FUNCTION_NAME };
    bool may_think = r->blank && !said && !r->muted, may_end = r->mode == REASONING || (r->thought_call && !said), maybe = false;
    enum ds_match m;
    if (may_think && (m = ds_match(s, "<think>", end)) != DS_MATCH_NO) {
        if (m == DS_MATCH_YES) return THINK;
        maybe = true;
    }
    if (may_end && (m = ds_match(s, "</think>", end)) != DS_MATCH_NO) {
        if (m == DS_MATCH_YES) return THINK_END;
        maybe = true;
    }
    for (size_t i = 0; r->tools && i < sizeof calls / sizeof *calls; i++) {
        if ((m = ds_match(s, calls[i], end)) == DS_MATCH_YES) return CALL;
        maybe |= m == DS_MATCH_MAYBE;
    }
    return maybe ? MAYBE : NONE;
}

/* White space before a tag belongs to the tag, so it is told only when something else follows. */
static bool holds_space(const struct ds_reader *r)
{
    return r->tools || r->mode == REASONING || r->blank;
}

/* n without the white space at the end of the next n bytes. */
static size_t words_in(const struct ds_reader *r, size_t n)
{
    const char *p = rest(r).p;
    while (n > r->spaces && isspace((unsigned char)p[n - 1])) n--;
    return n > r->spaces ? n : 0;
}

/* Tells text up to the next tag, and does what the tag says. False: more text is needed. */
static bool text(struct ds_reader *r, bool end)
{
    struct ds_str s = rest(r);
    if (r->skip_space) {
        size_t n = 0;
        while (n < s.n && isspace((unsigned char)s.p[n])) n++;
        drop(r, n);
        s = rest(r);
    }
    if (!s.n) return false;
    size_t at = r->spaces;
    enum tag tag = NONE;
    for (; at < s.n; at++) {
        const char *lt = memchr(s.p + at, '<', s.n - at);
        at = lt ? (size_t)(lt - s.p) : s.n;
        if (!lt) break;
        tag = tag_at(r, ds_after(s, at), words_in(r, at) > 0, end);
        if (tag != NONE) break;
    }
    size_t words = words_in(r, at);
    if (tag == NONE || tag == MAYBE) {
        size_t n = holds_space(r) && !(end && tag == NONE) ? words : at;
        if (n) tell(r, n);
        r->spaces = at - n;
        return false;
    }
    if (words) tell(r, words);
    if (tag == CALL) {
        r->lead = at - words;
        ds_scan_begin(&r->scan, r->d, r->mode == REASONING);
        r->scanning = true;
        return true;
    }
    drop(r, at - words + (tag == THINK ? sizeof "<think>" - 1 : sizeof "</think>" - 1));
    r->thought_call = false;
    r->blank = false;
    enter(r, tag == THINK ? REASONING : CONTENT);
    return true;
}

static void advance(struct ds_reader *r, bool end)
{
    while (!r->failed && (r->scanning ? go_on(r, end) : text(r, end))) {}
    size_t left = r->held.n - r->off;
    if (!r->off) return;
    memmove(r->held.p, r->held.p + r->off, left);
    r->held.n = left;
    r->off = 0;
}

static void feed(struct ds_reader *r, const char *p, size_t n)
{
    ds_bytes_add(&r->held, p, n);
    r->failed |= r->held.failed;
    if (n) advance(r, false);
}

static void read_prefix(struct ds_reader *r)
{
    struct ds_str prefix = r->prefix;
    r->prefix.n = 0;
    if (!r->unseen) r->muted += prefix.n;
    feed(r, prefix.p, prefix.n);
}

void ds_reader_feed(struct ds_reader *r, const char *p, size_t n)
{
    if (r->prefix.n) read_prefix(r);
    feed(r, p, n);
}

void ds_reader_finish(struct ds_reader *r, bool cut)
{
    if (r->prefix.n) read_prefix(r);
    if (cut && r->scanning && !ds_scan_is_whole(&r->scan)) cut_call(r);
    else advance(r, true);
}

int ds_reader_n_calls(const struct ds_reader *r) { return r->n_calls; }
bool ds_reader_failed(const struct ds_reader *r) { return r->failed; }
