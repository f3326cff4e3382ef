#if defined(__APPLE__)
#define _DARWIN_C_SOURCE
#else
#define _GNU_SOURCE
#endif

#include "base/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct addrinfo *look_up(const char *host, int port, int *rc)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *list = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    *rc = getaddrinfo(host, service, &hints, &list);
    return *rc ? NULL : list;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

ds_status ds_host_look_up(const char *host, bool *loopback, struct ds_err *e)
{
    int rc;
    struct addrinfo *list = *host ? look_up(host, 0, &rc) : NULL;
    if (!*host) return ds_fail(e, DS_EARG, "the name of the host is empty");
    if (!list) return ds_fail(e, DS_EARG, "'%s' is no address, and no name of one: %s", host, gai_strerror(rc));
    *loopback = true;
    for (struct addrinfo *a = list; a; a = a->ai_next) *loopback = *loopback && is_loopback(a->ai_addr);
    freeaddrinfo(list);
    return DS_OK;
}

bool ds_is_origin(const char *s)
{
    static const char scheme[] = "abcdefghijklmnopqrstuvwxyz0123456789+-.", name[] = "abcdefghijklmnopqrstuvwxyz0123456789-._";
    const char *host = strstr(s, "://");
    if (!strcmp(s, "*")) return true;
    if (!host || host == s || strspn(s, scheme) != (size_t)(host - s)) return false;
    host += 3;
    bool v6 = *host == '[';
    const char *end = v6 ? strchr(host, ']') : host + strspn(host, name);
    if (!end || end == host) return false;
    end += v6;
    return !*end || (*end == ':' && end[1] && !end[1 + strspn(end + 1, "0123456789")]);
}

static int real_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&a)->sin6_port
                                         : ((struct sockaddr_in *)(void *)&a)->sin_port);
}

ds_status ds_socket_listen(const char *host, int *port, int *fd, struct ds_err *e)
{
    int rc, one = 1;
    struct addrinfo *list = look_up(host, *port, &rc);
    if (!list) return ds_fail(e, DS_EARG, "%s: %s", host, gai_strerror(rc));
    int s = socket(list->ai_family, list->ai_socktype, list->ai_protocol);
    bool ok = s >= 0 && !fcntl(s, F_SETFD, FD_CLOEXEC) && !setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
              !bind(s, list->ai_addr, list->ai_addrlen) && !listen(s, 1024);
    int why = errno;
    freeaddrinfo(list);
    if (!ok) {
        if (s >= 0) close(s);
        return ds_fail(e, DS_EIO, "%s port %d: %s", host, *port, strerror(why));
    }
    *fd = s;
    *port = real_port(s);
    return DS_OK;
}

void ds_files_raise(int n)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= (rlim_t)n) return;
    r.rlim_cur = r.rlim_max < (rlim_t)n ? r.rlim_max : (rlim_t)n;
    setrlimit(RLIMIT_NOFILE, &r);
}

void ds_socket_close(int fd) { close(fd); }
void ds_socket_shut(int fd) { shutdown(fd, SHUT_RDWR); }

bool ds_socket_left(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
#ifdef POLLRDHUP
    p.events |= POLLRDHUP;
    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
#else
    char c;
    if (poll(&p, 1, 0) <= 0) return false;
    if (p.revents & (POLLHUP | POLLERR | POLLNVAL)) return true;
    return p.revents & POLLIN && recv(fd, &c, 1, MSG_PEEK) == 0;
#endif
}
