/* Errors are values: a status code and one sentence for the user.
 *
 * A function that can fail takes a `struct ds_err *` as its last argument (NULL is allowed) and
 * returns a ds_status, or a pointer that is NULL on failure. The library never prints or exits. */
#ifndef DS_BASE_ERR_H
#define DS_BASE_ERR_H

typedef enum {
    DS_OK = 0,
    DS_ENOMEM,     /* memory could not be had, or the plan does not fit */
    DS_EIO,        /* the system refused: open, read, write, map */
    DS_EFORMAT,    /* the input breaks its format */
    DS_EUNSUP,     /* well-formed, but nothing here handles it */
    DS_EARG,       /* the caller's arguments are off */
    DS_ENUM,       /* a NaN or Inf where a number was due */
    DS_ECANCEL     /* the caller asked to stop */
} ds_status;

struct ds_err {
    ds_status code;
    char msg[512];  /* one sentence, no newline, NUL-terminated */
};

#if defined(__GNUC__)
#define DS_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define DS_PRINTF(f, a)
#endif

/* Fills *e (when not NULL) and returns code, so that a check is one statement. */
ds_status ds_fail(struct ds_err *e, ds_status code, const char *fmt, ...) DS_PRINTF(3, 4);

#endif
