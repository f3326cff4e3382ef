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
    int n_calls;
    bool failed;
};

struct ds_reader *ds_reader_new(const struct ds_dialog *d, const struct ds_chat_tail *tail, ds_said_fn fn, void *ctx)
{
    struct ds_reader *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    *r = (struct ds_reader){ .d = d, .fn = fn, .ctx = ctx, .mode = tail->in_think ? REASONING : CONTENT, .blank = true };
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

static void tell_calls(struct ds_reader *r)
{
    for (int i = 0; i < r->scan.n_calls; i++) {
        const struct ds_scan_call *c = &r->scan.calls[i];
        struct ds_bytes args;
        ds_bytes_init(&args, INT32_MAX);
        ds_value_dump(&args, c->arguments);
        r->failed |= args.failed;
        r->fn(r->ctx, DS_SAID_CALL, c->name, strlen(c->name));
        r->fn(r->ctx, DS_SAID_ARGUMENTS, args.n ? args.p : "", args.n);
        r->fn(r->ctx, DS_SAID_CALL_END, "", 0);
        ds_bytes_free(&args);
        r->n_calls++;
    }
}

/* Reads on in a call. False: more text is needed. */
static bool go_on(struct ds_reader *r, bool end)
{
    enum ds_scan_result got = ds_scan_go(&r->scan, ds_after(rest(r), r->lead), end);
    if (got == DS_SCAN_WAIT) return false;
    r->scanning = false;
    r->failed |= r->scan.failed;
    if (got == DS_SCAN_DONE) {
        bool thought = r->mode == REASONING;
        tell_calls(r);
        drop(r, r->lead + r->scan.at);
        enter(r, CONTENT);
        if (r->scan.stray.n) r->fn(r->ctx, DS_SAID_CONTENT, r->scan.stray.p, r->scan.stray.n);
        r->thought_call = thought;
        r->blank = false;
    } else {
        tell(r, r->lead + (r->scan.at < RESCAN ? 1 : r->scan.at));       /* a "<" like any other */
    }
    ds_scan_free(&r->scan);
    return true;
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
    if (cut && r->scanning && !ds_scan_is_whole(&r->scan)) {
        ds_scan_free(&r->scan);
        r->scanning = false;
        tell(r, rest(r).n);
        return;
    }
    advance(r, true);
}

int ds_reader_n_calls(const struct ds_reader *r) { return r->n_calls; }
bool ds_reader_failed(const struct ds_reader *r) { return r->failed; }
