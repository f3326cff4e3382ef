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
    }
    return code;
}
