/* Any text into the JSON reader; what it accepts must survive being written and read again. */
#include "base/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void write_out(struct ds_bytes *b, const struct ds_json *v, bool pretty)
{
    struct ds_json_out j;
    ds_bytes_init(b, 16 << 20);
    ds_jo_init(&j, b, pretty);
    ds_jo_copy(&j, v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ds_err e;
    struct ds_json *v = ds_json_parse((const char *)data, n, &e);
    if (!v) {
        if (!e.msg[0] || strchr(e.msg, '\n')) abort();     /* a refusal is one sentence */
        return 0;
    }
    struct ds_bytes once, twice;
    write_out(&once, v, false);
    struct ds_json *again = ds_json_parse(once.p, once.n, &e);
    if (!again) abort();
    write_out(&twice, again, false);
    if (once.n != twice.n || memcmp(once.p, twice.p, once.n)) abort();
    ds_json_free(again);
    ds_json_free(v);
    ds_bytes_free(&once);
    ds_bytes_free(&twice);
    return 0;
}
