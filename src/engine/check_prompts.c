/* What the witness runs where no oracle brings its own prompts. */
#include "engine/check.h"

#include "base/rng.h"

#include <stdlib.h>

/* English prose, which every model of the family takes as it comes: on ids drawn at random a trained model
 * is chaotic, and a last-bit difference that turns one rounding of an activation moves its logits by percents. */
static const char prose[] =
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or twice she had "
    "peeped into the book her sister was reading, but it had no pictures or conversations in it, \"and what is the use of a book,\" "
    "thought Alice, \"without pictures or conversations?\"\n\nSo she was considering in her own mind (as well as she could, for the hot "
    "day made her feel very sleepy and stupid), whether the pleasure of making a daisy-chain would be worth the trouble of getting up "
    "and picking the daisies, when suddenly a White Rabbit with pink eyes ran close by her.\n\nThere was nothing so very remarkable in "
    "that; nor did Alice think it so very much out of the way to hear the Rabbit say to itself, \"Oh dear! Oh dear! I shall be late!\" "
    "(when she thought it over afterwards, it occurred to her that she ought to have wondered at this, but at the time it all seemed "
    "quite natural); but when the Rabbit actually took a watch out of its waistcoat-pocket, and looked at it, and then hurried on, "
    "Alice started to her feet, for it flashed across her mind that she had never before seen a rabbit with either a "
    "waistcoat-pocket, or a watch to take out of it, and burning with curiosity, she ran across the field after it, and fortunately "
    "was just in time to see it pop down a large rabbit-hole under the hedge.";

ds_status ds_check_prompt(const ds_engine *g, int32_t *ids, int n, struct ds_err *e)
{
    struct ds_ids text = { 0 };
    struct ds_rng rng;
    ds_rng_seed(&rng, (uint64_t)n);
    ds_status st = g->tok ? ds_tokenize(g, prose, sizeof prose - 1, false, &text, e) : DS_OK;
    for (int i = 0; i < n && !st; i++)
        ids[i] = text.n ? text.p[(size_t)i % text.n] : (int32_t)(ds_rng_u64(&rng) % (uint64_t)g->model.hp.n_vocab);
    free(text.p);
    return st;
}

ds_status ds_check_lengths(struct ds_check_report *r, int lengths[16], int *n, const struct ds_engine *g, double budget, struct ds_err *e)
{
    /* Around the conv kernel, the GDN chunk and a ubatch; the first three whatever they cost. */
    static const int all[] = { 1, 2, 5, 64, 65, 129, 257 };
    const int n_all = sizeof all / sizeof *all;
    for (*n = 0; *n < n_all; ++*n) {
        const int tokens = all[*n] + DS_CHECK_GREEDY;
        if (tokens > g->info.ctx || (*n > 2 && tokens * g->info.gemm_flop_per_token > budget)) break;
        lengths[*n] = all[*n];
    }
    r->n_left_out = n_all - *n;
    if (*n) return DS_OK;
    return ds_fail(e, DS_EARG, "a window of %lld tokens is too small for the cases: the shortest takes %d", (long long)g->info.ctx,
                   all[0] + DS_CHECK_GREEDY);
}
