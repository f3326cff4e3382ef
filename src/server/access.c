#include "server/access.h"

#include <ctype.h>
#include <string.h>

/* --- keys ------------------------------------------------------------------------------------------------ */

/* In a time that depends on the lengths alone. */
static bool same_key(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    unsigned diff = na != nb;
    for (size_t i = 0; i < na; i++) diff |= (unsigned char)a[i] ^ (unsigned char)(nb ? b[i % nb] : 0);
    return !diff;
}

static bool same_but_case(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[i])) return false;
    return true;
}

bool ds_access_same_word(const char *a, const char *b) { return strlen(a) == strlen(b) && same_but_case(a, b, strlen(a)); }

/* What follows the scheme "Bearer", whose case does not count (RFC 9110, 11.1); NULL: another scheme, or nothing. */
static const char *bearer_token(const char *s)
{
    static const char scheme[] = "Bearer ";
    if (!s || strlen(s) < sizeof scheme - 1 || !same_but_case(s, scheme, sizeof scheme - 1)) return NULL;
    for (s += sizeof scheme - 1; *s == ' ';) s++;
    return s;
}

bool ds_access_by_key(const struct ds_server_options *o, const struct ds_visitor *v, struct ds_refusal *r)
{
    const char *token = bearer_token(v->authorization);
    if (!o->api_key || (token && same_key(token, o->api_key)) || (v->x_api_key && same_key(v->x_api_key, o->api_key))) return true;
    if (token || v->x_api_key) return ds_refuse(r, 401, NULL, "the API key is not the one of this server");
    if (v->authorization) return ds_refuse(r, 401, NULL, "the Authorization header has no key, expected 'Bearer KEY'");
    return ds_refuse(r, 401, NULL, "the API key is wanted, as 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
}

/* --- names ----------------------------------------------------------------------------------------------- */

/* A host without its port: "name", "name:8080", "[::1]:8080". */
struct part { const char *p; size_t n; };

static struct part without_port(const char *host)
{
    const char *close = host[0] == '[' ? strchr(host, ']') : NULL;
    if (close) return (struct part){ host + 1, (size_t)(close - host - 1) };
    const char *colon = strrchr(host, ':');
    bool alone = colon && strchr(host, ':') == colon;        /* more of them: an address of IPv6 */
    return (struct part){ host, alone ? (size_t)(colon - host) : strlen(host) };
}

static bool is(struct part s, const char *name)
{
    return s.n == strlen(name) && same_but_case(s.p, name, s.n);
}

static bool is_loopback_address(struct part s)
{
    int dots = 0;
    if (s.n < 7 || memcmp(s.p, "127.", 4)) return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '.') dots++;
        else if (!isdigit((unsigned char)s.p[i])) return false;
    }
    return dots == 3;
}

/* Names that end in ".localhost" are nobody's (RFC 6761, 6.3). */
static bool is_below_localhost(struct part s)
{
    static const char end[] = ".localhost";
    size_t n = sizeof end - 1;
    return s.n > n && same_but_case(s.p + s.n - n, end, n);
}

bool ds_access_by_host(const struct ds_server_options *o, const struct ds_visitor *v, struct ds_refusal *r)
{
    if (o->api_key || !v->host) return true;
    struct part s = without_port(v->host);
    if (is(s, "localhost") || is_below_localhost(s) || is(s, "::1") || is_loopback_address(s) || (o->host && is(s, o->host))) return true;
    return ds_refuse(r, 403, NULL, "the Host header names '%.80s', which is not this server: without --api-key it is localhost only", v->host);
}

/* --- web pages --------------------------------------------------------------------------------------------- */

bool ds_access_reads(const struct ds_server_options *o, const char *origin)
{
    for (int i = 0; origin && i < o->n_origins; i++)
        if (!strcmp(o->origins[i], "*") || !strcmp(o->origins[i], origin)) return true;
    return false;
}

/* The page came from this server: its origin has the host and port that it asks. */
static bool is_own_page(const struct ds_visitor *v)
{
    const char *authority = strstr(v->origin, "://");
    return authority && v->host && strlen(authority + 3) == strlen(v->host) && same_but_case(authority + 3, v->host, strlen(v->host));
}

bool ds_access_posts(const struct ds_server_options *o, const struct ds_visitor *v, struct ds_refusal *r)
{
    if (!v->origin || is_own_page(v) || ds_access_reads(o, v->origin)) return true;
    return ds_refuse(r, 403, NULL, "pages of the origin '%.80s' may not use the server (see --cors-origin)", v->origin);
}
