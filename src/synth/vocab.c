#include "synth/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256, LETTER_PAIRS = 26 * 26, TAIL = 276, LARGE = 4096 };
enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER = 4, TOKEN_UNUSED = 5 };

static const char *const specials[] = {
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
    "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
    "<tool_response>", "</tool_response>", "<think>", "</think>", "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>",
    "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>",
};
enum { N_SPECIALS = sizeof specials / sizeof *specials, END_OF_TEXT = 0, END_OF_TURN = 2 };

/* Tool and thinking marks are text of the conversation; the others steer it. */
static int32_t special_type(const char *s)
{
    return s[1] == '|' || !strncmp(s, "<tts", 4) ? TOKEN_CONTROL : TOKEN_USER;
}

/* The byte alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 upwards. Writes UTF-8. */
static void byte_symbol(char dst[4], int byte, int *others)
{
    bool plain = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    int cp = plain ? byte : 0x100 + (*others)++;
    if (cp < 0x80) {
        dst[0] = (char)cp;
        dst[1] = 0;
    } else {
        dst[0] = (char)(0xc0 | cp >> 6);
        dst[1] = (char)(0x80 | (cp & 63));
        dst[2] = 0;
    }
}

struct vocab {
    char (*text)[24];
    const char **token;
    int32_t *type;
    int n, first_special, n_pairs;
};

static void fill(struct vocab *v)
{
    int others = 0;
    for (int i = 0; i < v->n; i++) {
        char *s = v->text[i];
        int special = i - v->first_special, word = i - BYTES;
        v->token[i] = s;
        v->type[i] = TOKEN_NORMAL;
        if (i < BYTES) byte_symbol(s, i, &others);
        else if (special < 0 && word < v->n_pairs) snprintf(s, sizeof v->text[i], "%c%c", 'a' + word / 26, 'a' + word % 26);
        else if (special < 0) snprintf(s, sizeof v->text[i], "word%d", word);
        else if (special < N_SPECIALS) {
            v->token[i] = specials[special];
            v->type[i] = special_type(specials[special]);
        } else {
            snprintf(s, sizeof v->text[i], "[PAD%d]", i);
            v->type[i] = TOKEN_UNUSED;
        }
    }
}

static ds_status put_merges(struct ds_gguf_writer *w, const struct vocab *v, struct ds_err *e)
{
    char (*text)[4] = malloc(LETTER_PAIRS * sizeof *text);
    const char **merge = malloc(LETTER_PAIRS * sizeof *merge);
    ds_status st = DS_OK;
    if (text && merge) {
        for (int i = 0; i < v->n_pairs; i++) {
            const char *pair = v->text[BYTES + i];
            snprintf(text[i], sizeof text[i], "%c %c", pair[0], pair[1]);
            merge[i] = text[i];
        }
        ds_gguf_put_strs(w, "tokenizer.ggml.merges", merge, (size_t)v->n_pairs);
    } else {
        st = ds_fail(e, DS_ENOMEM, "the system refused memory for %d merges", LETTER_PAIRS);
    }
    free(text);
    free(merge);
    return st;
}

ds_status ds_synth_vocab(struct ds_gguf_writer *w, int vocab, struct ds_err *e)
{
    struct vocab v = { .n = vocab };
    int tail = vocab >= LARGE ? TAIL : N_SPECIALS;
    v.first_special = vocab - tail > BYTES ? vocab - tail : BYTES;
    v.n_pairs = v.first_special - BYTES < LETTER_PAIRS ? v.first_special - BYTES : LETTER_PAIRS;
    v.text = malloc((size_t)vocab * sizeof *v.text);
    v.token = malloc((size_t)vocab * sizeof *v.token);
    v.type = malloc((size_t)vocab * sizeof *v.type);
    ds_status st = DS_OK;
    if (v.text && v.token && v.type) {
        fill(&v);
        ds_gguf_put_str(w, "tokenizer.ggml.model", "gpt2");
        ds_gguf_put_str(w, "tokenizer.ggml.pre", "qwen35");
        ds_gguf_put_strs(w, "tokenizer.ggml.tokens", v.token, (size_t)vocab);
        ds_gguf_put_i32s(w, "tokenizer.ggml.token_type", v.type, (size_t)vocab);
        st = put_merges(w, &v, e);
        ds_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)(v.first_special + END_OF_TEXT));
        ds_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)(v.first_special + END_OF_TURN));
        ds_gguf_put_u32(w, "tokenizer.ggml.padding_token_id", (uint32_t)(v.first_special + END_OF_TEXT));
        ds_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    } else {
        st = ds_fail(e, DS_ENOMEM, "the system refused memory for a vocabulary of %d", vocab);
    }
    free(v.text);
    free(v.token);
    free(v.type);
    return st;
}
