#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

ds_status ds_fail(struct ds_err *e, ds_status code, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        e->code = code;
        va_start(ap, fmt);
        vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        /* Names out of a file or a prompt may hold anything; the sentence stays one line that a terminal can show. */
        for (char *p = e->msg; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    }
    return code;
}
