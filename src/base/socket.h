/* The little that a server asks of the system's sockets itself. */
#ifndef DS_BASE_SOCKET_H
#define DS_BASE_SOCKET_H

#include "base/err.h"

#include <stdbool.h>

/* *loopback: does every address that this name stands for belong to this machine alone? DS_EARG: it stands for none. */
ds_status ds_host_look_up(const char *host, bool *loopback, struct ds_err *e);
/* Is it an origin as browsers send it ("https://a.example:8443": a scheme, a host in lower case, perhaps a port), or "*"? */
bool ds_is_origin(const char *s);
/* Listens on host (a name or address) and port (0: any). *fd is the caller's to close; *port gets the real one. */
ds_status ds_socket_listen(const char *host, int *port, int *fd, struct ds_err *e);
/* So many open files may be had, as far as the system lets this process. */
void ds_files_raise(int n);
void ds_socket_close(int fd);
void ds_socket_shut(int fd);                 /* no more traffic either way; fd stays open */
bool ds_socket_left(int fd);                 /* has the other end closed, or is it gone? Never waits */

#endif
