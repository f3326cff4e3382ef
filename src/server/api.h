/* The seam between HTTP and the APIs: routes, a call, its reply.
 *
 * A handler gets a parsed body and either replies at once, refuses with a status and a sentence (which the route's own
 * error shape turns into JSON), or hands over a request for the engine with an adapter that renders its events
 * (server/request.h). Handlers run on intake threads, several at a time; they may take long, and touch no socket. */
#ifndef DS_SERVER_API_H
#define DS_SERVER_API_H

#include "deltascope_server.h"
#include "server/request.h"

#include <jansson.h>

struct ds_server;

struct ds_call {
    struct ds_server *server;       /* for handlers of this folder: status, metrics */
    const ds_engine *g;             /* text functions and facts only (deltascope.h, "text") */
    const char *model;              /* the served model's name */
    const char *path;               /* as asked for, without the query */
    const char *rest;               /* what stands for the * of the route's path; "" otherwise */
    const json_t *body;             /* an object, for routes with a body; NULL otherwise */
    const struct ds_server_options *options;
    void (*note)(const struct ds_call *c, const char *sentence);    /* one line of the server's log */
};

struct ds_refusal {
    int status;                     /* 400...; 0: none */
    char param[64];                 /* the field that is meant: "messages[2].content"; may be empty */
    char msg[512];
    const char *code;              /* OpenAI's word for the case, static; NULL: it has none */
};
/* Always false, so that a check is one statement. The sentence is one line, whatever words of the request are in it. param may be NULL. */
bool ds_refuse(struct ds_refusal *r, int status, const char *param, const char *fmt, ...) DS_PRINTF(4, 5);

struct ds_reply {
    struct ds_refusal refusal;      /* status set: the call is refused; the server frees the rest of the reply, used or not */
    /* at once: */
    int status;                     /* 200 as it comes */
    const char *type;               /* static; "application/json" as it comes */
    struct ds_bytes body;
    /* or by the engine: */
    struct ds_request *request;     /* from malloc, passes to the server; NULL: the reply is above */
    const struct ds_api *api;
    void *ctx;                      /* the server calls api->free */
};

/* Makes r one by the engine: a request (ds_request_init) and a zeroed ctx of `size` bytes. What a handler's refusal leaves behind
 * is freed by the server. The ctx; NULL: refused for want of memory. */
void *ds_reply_by_engine(struct ds_reply *r, const struct ds_api *api, size_t size, const char *label);

typedef void (*ds_handler)(const struct ds_call *c, struct ds_reply *r);
/* The API's JSON for a refusal; also used for what HTTP itself refuses (401, 404, 405, 413, 429, 503). */
typedef void (*ds_error_shape)(const struct ds_refusal *r, struct ds_bytes *out);

struct ds_route {
    const char *method;             /* "GET" answers HEAD too; NULL ends a table */
    const char *path;               /* exact, or with one * at its end */
    ds_handler handle;
    ds_error_shape shape;
    bool open;                      /* needs no API key: health and the page */
};
/* Every API file has a table of its own; routes.c lists the tables. */
extern const struct ds_route *const ds_route_tables[];

/* {"error":{"message","type","param","code"}}: OpenAI's shape, and that of paths that belong to nobody. code: a string or null. */
void ds_error_openai(const struct ds_refusal *r, struct ds_bytes *out);
/* {"type":"error","error":{"type","message"}}: Anthropic's. */
void ds_error_anthropic(const struct ds_refusal *r, struct ds_bytes *out);

/* The object that a body is; NULL: refused. Half a surrogate pair in a string becomes U+FFFD, in place; a depth above 128 and
 * more than 1 Mi values beside 8 Mi numbers are refused. A new reference. */
json_t *ds_body_parse(struct ds_bytes *b, struct ds_refusal *r);

/* --- fields of a JSON object -----------------------------------------------------------------------
 *
 * `name` says where a field stands, and what follows its last point is its key in o: "n", "thinking.type" of the object
 * "thinking", "messages[3].role" of that message. Absent and null leave *v as it is. What is there must have the type and lie
 * in the range, else the call is refused with 400 and a sentence that names the field. Fields that nobody asks for
 * are nobody's business. o that is no object has no fields. */
bool ds_field_num(const json_t *o, const char *name, double min, double max, double *v, struct ds_refusal *r);
bool ds_field_float(const json_t *o, const char *name, double min, double max, float *v, struct ds_refusal *r);
bool ds_field_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *v, struct ds_refusal *r);
bool ds_field_bool(const json_t *o, const char *name, bool *v, struct ds_refusal *r);
/* A string without NUL bytes; *v stays the body's. */
bool ds_field_text(const json_t *o, const char *name, const char **v, struct ds_refusal *r);
/* One of the words, which single blanks separate. */
bool ds_field_word(const json_t *o, const char *name, const char *words, const char **v, struct ds_refusal *r);
/* An object, an array, or a string of any bytes. Absent and null: *v becomes NULL. */
bool ds_field_json(const json_t *o, const char *name, json_type type, const json_t **v, struct ds_refusal *r);
/* A text that must be there, and not be empty: a name. */
bool ds_field_name(const json_t *o, const char *name, const char **v, struct ds_refusal *r);
/* An array that must be there, and not be empty. */
bool ds_field_items(const json_t *o, const char *name, const json_t **v, struct ds_refusal *r);
/* v as such: an item of an array. */
bool ds_is_object(const json_t *v, const char *name, struct ds_refusal *r);
/* "model": any name of up to 256 bytes, as every piece of the answer repeats it. */
bool ds_field_model(const json_t *o, const char **v, struct ds_refusal *r);
const char *ds_json_type(const json_t *v);       /* "a string", for sentences */

/* "where.key", or the key alone when where is ""; "where[i]". */
struct ds_name { char s[96]; };
struct ds_name ds_name(const char *where, const char *key);
struct ds_name ds_item(const char *where, size_t i);

/* Fields that change nothing here, but have a type all the same (STRINGS: an object whose values are strings); and those that would
 * change the answer and cannot be honoured, of the type in their kind's name (NO_NAME: a string or an object): they are refused
 * unless they say nothing (null, false, an empty array), and `words` says why. */
enum ds_rule_kind {
    DS_RULE_END, DS_RULE_TEXT, DS_RULE_BOOL, DS_RULE_COUNT, DS_RULE_OBJECT, DS_RULE_ARRAY, DS_RULE_STRINGS, DS_RULE_WORD,
    DS_RULE_NO_TEXT, DS_RULE_NO_BOOL, DS_RULE_NO_OBJECT, DS_RULE_NO_ARRAY, DS_RULE_NO_NAME
};
struct ds_rule { enum ds_rule_kind kind; const char *name, *words; };
bool ds_field_rules(const json_t *o, const char *where, const struct ds_rule *rules, struct ds_refusal *r);
/* An array of objects, whose "type", where they have one, is the word; word NULL: any text. Absent and null: *v becomes NULL. */
bool ds_field_objects(const json_t *o, const char *name, const char *word, const json_t **v, struct ds_refusal *r);

/* Groups of fields that APIs share. temperature, top_p, top_k, min_p, seed, repetition_penalty; presence_penalty,
 * frequency_penalty, logit_bias. Nothing given: greedy. */
bool ds_field_sampling(const json_t *o, const struct ds_call *c, struct ds_request *q, struct ds_refusal *r);
/* Stop strings under `name`: a string or an array of up to 16. Empty ones are refused. */
bool ds_field_stops(const json_t *o, const char *name, struct ds_request *q, struct ds_refusal *r);
/* stream, return_progress, ignore_eos. */
bool ds_field_delivery(const json_t *o, struct ds_request *q, struct ds_refusal *r);
/* OpenAI's stream_options. */
bool ds_field_stream_options(const json_t *o, bool *include_usage, struct ds_refusal *r);
/* Refuses a prompt that is empty, and one that leaves no room in the window for one token more, unless q->max_new, which must be
 * known, is 0 (both numbers in the sentence). */
bool ds_request_fits(const struct ds_call *c, const struct ds_request *q, const char *param, struct ds_refusal *r);

/* Control characters become '?': a request's words in a sentence or a log must not look like lines of their own. */
void ds_one_line(char *s);

/* --- writing ------------------------------------------------------------------------------------- */

/* An SSE event around one JSON text: "event: NAME\n" (unless NULL) "data: ", then, by ds_sse_end, the blank line. */
void ds_sse_begin(struct ds_bytes *out, const char *event);
void ds_sse_end(struct ds_bytes *out);
/* Members of an object. ms: three digits after the point. */
struct ds_json_out;
void ds_jo_member_str(struct ds_json_out *j, const char *key, const char *v);
void ds_jo_member_int(struct ds_json_out *j, const char *key, int64_t v);
void ds_jo_member_ms(struct ds_json_out *j, const char *key, double v);
void ds_jo_member_text(struct ds_json_out *j, const char *key, const struct ds_bytes *b);
void ds_jo_progress(struct ds_json_out *j, const struct ds_prompt_progress *p);     /* "prompt_progress": {...} */
/* "usage" and "timings" as OpenAI's completions have them. */
void ds_jo_usage(struct ds_json_out *j, const struct ds_ending *f);
/* A failure while the answer is under way, in OpenAI's shape; stream: as an event. */
void ds_failure_openai(bool stream, int status, const char *sentence, struct ds_bytes *out);
/* "prefix" and 24 hexadecimal digits that differ from call to call. */
void ds_make_id(char dst[48], const char *prefix);
int64_t ds_unix_seconds(void);

#endif
