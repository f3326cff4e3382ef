/* Who may use the server: keys, names in Host, origins of web pages. Texts alone, no HTTP library.
 *
 * A server without a key listens on loopback addresses alone, so nobody reaches it from elsewhere but through a browser on this
 * machine. Two ways are shut: a page whose own name was made to point here (DNS rebinding) says so in Host; a page of
 * another site that posts without reading the answer says so in Origin. */
#ifndef DS_SERVER_ACCESS_H
#define DS_SERVER_ACCESS_H

#include "server/api.h"

/* What a request's headers say; NULL: nothing. */
struct ds_visitor { const char *host, *origin, *authorization, *x_api_key; };

/* True, or refused: 401, with another sentence for a key that is not the right one than for none. */
bool ds_access_by_key(const struct ds_server_options *o, const struct ds_visitor *v, struct ds_refusal *r);
/* True, or refused with 403. Without a key only loopback names and o->host are names of this server. */
bool ds_access_by_host(const struct ds_server_options *o, const struct ds_visitor *v, struct ds_refusal *r);
/* May pages of this origin read answers? */
bool ds_access_reads(const struct ds_server_options *o, const char *origin);
/* True, or refused with 403: a page posts that neither came from here nor has a --cors-origin. */
bool ds_access_posts(const struct ds_server_options *o, const struct ds_visitor *v, struct ds_refusal *r);

/* Equal but for the case of letters, as words in headers are. */
bool ds_access_same_word(const char *a, const char *b);

#endif
