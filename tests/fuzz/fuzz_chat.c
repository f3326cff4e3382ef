/* A model's words into the reader of chats: however they are split, the same is told.
 * Byte 0: how the prompt ended and where the text is split; the rest is the text. */
#include "chat/reader.h"

#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

struct log { struct ds_bytes b; enum ds_said last; };

static void note(void *ctx, enum ds_said kind, const char *text, size_t n)
{
    struct log *l = ctx;
    if (kind != l->last || (kind > DS_SAID_REASONING && kind != DS_SAID_ARGUMENTS)) ds_bytes_printf(&l->b, "\x01%d", (int)kind);
    if (n) ds_bytes_add(&l->b, text, n);
    l->last = kind;
}

static struct ds_dialog *dialog(void)
{
    static const struct ds_chat_template t = { .family = DS_CHAT_QWEN36 };
    static struct ds_dialog *d;
    if (d) return d;
    json_t *schema = json_loads("{\"properties\": {\"a\": {\"type\": \"integer\"},"
                                " \"c\": {\"type\": \"string\"}, \"b\": {\"anyOf\": [{\"type\": \"array\"}, {\"$ref\": \"#\"}]}}}", 0, NULL);
    if (!schema || !(d = ds_dialog_new(&t))) abort();
    ds_dialog_tool(d, "f", schema, schema);
    json_decref(schema);
    return d;
}

enum { THINKS = 1, CUT = 2, LIVE = 128 };

static void read_all(struct log *l, const char *text, size_t n, unsigned how, size_t step)
{
    struct ds_chat_tail tail = { .in_think = how & THINKS, .prefix = { "", 0 } };
    struct ds_reader *r = ds_reader_new(dialog(), &tail, how & LIVE, note, l);
    if (!r) abort();
    ds_bytes_init(&l->b, 64 << 20);
    l->last = DS_SAID_CALL_END;
    for (size_t at = 0; at < n; at += step) ds_reader_feed(r, text + at, step < n - at ? step : n - at);
    ds_reader_finish(r, how & CUT);
    ds_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct log whole, parts;
    if (n < 2) return 0;
    const char *text = (const char *)data + 1;
    read_all(&whole, text, n - 1, data[0], n);
    read_all(&parts, text, n - 1, data[0], 1 + (data[0] >> 2) % 16);
    if (whole.b.n != parts.b.n || (whole.b.n && memcmp(whole.b.p, parts.b.p, whole.b.n))) abort();
    ds_bytes_free(&whole.b);
    ds_bytes_free(&parts.b);
    return 0;
}
