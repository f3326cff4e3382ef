#include "common/rig.h"

#include "base/os.h"
#include "base/rng.h"
#include "common/stats.h"
#include "common/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- ids --------------------------------------------------------------------------------------- */

/* Ids are drawn over the whole table; padding rows and end marks are drawn again, as far as the
 * vocabulary tells (a synthetic one has no text at all). */
static int32_t draw_id(const ds_engine *g, struct ds_rng *rng, int n_vocab)
{
    int32_t id = 0;
    const char *bytes;
    for (int tries = 0; tries < 16; tries++) {
        id = (int32_t)(ds_rng_u64(rng) % (uint64_t)n_vocab);
        if (ds_token_bytes(g, id, &bytes) > 0 && !ds_token_is_end(g, id)) break;
    }
    return id;
}

static ds_status make_ids(struct ds_rig *r, int n, uint64_t seed, struct ds_err *e)
{
    struct ds_rng rng;
    r->ids = malloc((size_t)n * sizeof *r->ids);
    if (!r->ids) return ds_fail(e, DS_ENOMEM, "%d token ids: no memory", n);
    r->n_ids = n;
    ds_rng_seed(&rng, seed);
    for (int i = 0; i < n; i++) r->ids[i] = draw_id(r->g, &rng, ds_engine_info(r->g)->n_vocab);
    return DS_OK;
}

/* --- life -------------------------------------------------------------------------------------- */

ds_status ds_rig_open(struct ds_rig *r, const struct ds_options *o, int tokens, struct ds_err *e)
{
    struct ds_options with = *o;
    memset(r, 0, sizeof *r);
    if (tokens < DS_WARM_UP_MIN) tokens = DS_WARM_UP_MIN;
    if (!with.ctx) with.ctx = tokens;
    ds_status st = ds_tool_open(&r->g, &with, e);
    if (!st) st = ds_session_new(&r->s, r->g, e);
    if (!st) st = make_ids(r, tokens, o->synth.seed, e);
    if (st) ds_rig_close(r);
    return st;
}

void ds_rig_close(struct ds_rig *r)
{
    free(r->ids);
    ds_session_free(r->s);
    ds_engine_close(r->g);
    memset(r, 0, sizeof *r);
}

/* --- prefill ----------------------------------------------------------------------------------- */

/* An interrupt during the last chunk finds the prefill done, but ends the measurement all the same. */
static ds_status advance(struct ds_rig *r, int from, int n, struct ds_err *e)
{
    ds_status st = ds_session_prefill(r->s, r->ids + from, n, DS_ROWS_LAST, ds_progress_tick, &r->bar, e);
    return !st && ds_tool_interrupted ? ds_fail(e, DS_ECANCEL, "interrupted") : st;
}

static ds_status to_depth(struct ds_rig *r, int depth, unsigned skip, struct ds_err *e)
{
    ds_session_set_skip(r->s, skip);
    ds_session_set_profile(r->s, DS_PROF_OFF);
    ds_session_reset(r->s);
    if (!depth) return DS_OK;
    ds_status st = advance(r, 0, depth, e);
    ds_progress_part_done(&r->bar, depth);
    return st;
}

ds_status ds_rig_warm_up(struct ds_rig *r, int P, int *tokens, struct ds_err *e)
{
    double per_token = 0;
    ds_status st = DS_OK;
    *tokens = 0;
    for (int i = 0; i < 2 && !st; i++) {           /* the second says what a token takes */
        uint64_t t0 = ds_now_ns();
        st = to_depth(r, DS_WARM_UP_MIN, 0, e);
        per_token = (double)(ds_now_ns() - t0) * 1e-9 / DS_WARM_UP_MIN;
        *tokens += DS_WARM_UP_MIN;
    }
    if (st || P <= DS_WARM_UP_MIN || per_token * P > 1.0) return st;
    *tokens += P;
    return to_depth(r, P, 0, e);
}

static void print_line(struct ds_rig *r, const struct ds_profile *p, unsigned skip)
{
    char line[256];
    ds_progress_clear(&r->bar);
    ds_profile_line(p, ds_engine_backend(r->g), line, sizeof line);
    fprintf(stderr, "%s\n", line);
    if (skip) fprintf(stderr, "TIMING ONLY: %s left out of the line above\n", ds_skip_words(skip));
}

ds_status ds_rig_prefill(struct ds_rig *r, int depth, int P, unsigned skip, double *ms, struct ds_profile *p, struct ds_err *e)
{
    ds_status st = to_depth(r, depth, skip, e);
    if (st) return st;
    ds_session_set_profile(r->s, r->mode);
    uint64_t t0 = ds_now_ns();
    st = advance(r, depth, P, e);
    *ms = (double)(ds_now_ns() - t0) * 1e-6;
    if (st) return st;
    const struct ds_profile *seen = ds_session_profile(r->s);
    if (!seen && r->mode != DS_PROF_OFF) return ds_fail(e, DS_ENOMEM, "P=%d: there was no memory for the profile", P);
    if (seen) {
        *p = *seen;
        if (r->lines) print_line(r, seen, skip);
    }
    ds_progress_part_done(&r->bar, P);
    return DS_OK;
}

/* --- decode ------------------------------------------------------------------------------------ */

ds_status ds_rig_decode(struct ds_rig *r, int depth, int steps, double *ms, struct ds_err *e)
{
    ds_status st = to_depth(r, depth, 0, e);
    uint64_t t0 = ds_now_ns();
    for (int i = 0; i < steps && !st; i++) {
        st = ds_session_decode(r->s, r->ids[(depth + i) % r->n_ids], e);
        if (!st && ds_progress_tick(&r->bar, i + 1, steps)) st = ds_fail(e, DS_ECANCEL, "interrupted after %d of %d steps", i + 1, steps);
    }
    *ms = (double)(ds_now_ns() - t0) * 1e-6;
    ds_progress_part_done(&r->bar, steps);
    return st;
}

ds_status ds_rig_decode_gb(struct ds_rig *r, int depth, double *gb, struct ds_err *e)
{
    struct ds_profile p = { .P = 0 };
    double ms;
    const bool lines = r->lines;
    const enum ds_prof_mode mode = r->mode;
    r->lines = false;
    r->mode = DS_PROF_STAMP;                       /* the bytes are counted by the profiler, which a bare run leaves out */
    ds_status st = ds_rig_prefill(r, depth, 1, 0, &ms, &p, e);
    r->lines = lines;
    r->mode = mode;
    *gb = 0;
    for (int i = 0; i < DS_ST_COUNT; i++)
        if (i != DS_ST_QKNORM) *gb += p.stage_gb[i];
    return st;
}

/* --- repetitions ------------------------------------------------------------------------------- */

ds_status ds_cell_init(struct ds_cell *c, int reps, struct ds_err *e)
{
    c->n = 0;
    c->cap = reps;
    c->ms = calloc((size_t)reps, sizeof *c->ms);
    c->prof = calloc((size_t)reps, sizeof *c->prof);
    return c->ms && c->prof ? DS_OK : ds_fail(e, DS_ENOMEM, "%d repetitions: no memory", reps);
}

void ds_cell_free(struct ds_cell *c)
{
    free(c->ms);
    free(c->prof);
    c->ms = NULL;
    c->prof = NULL;
}

ds_status ds_cell_run(struct ds_cell *c, struct ds_rig *r, struct ds_err *e)
{
    ds_status st = ds_rig_prefill(r, c->depth, c->P, c->skip, &c->ms[c->n], &c->prof[c->n], e);
    c->ubatch = ds_engine_ubatch(r->g);
    if (!st) c->n++;
    return st;
}

int ds_cell_median(const struct ds_cell *c) { return ds_median_index(c->ms, c->n); }

const char *ds_skip_words(unsigned skip)
{
    static const char *const words[] = { "", "gdn", "attn", "gdn,attn" };
    return words[skip & (DS_SKIP_GDN | DS_SKIP_ATTN)];
}

void ds_say_timing_only(const char *prog, unsigned skip)
{
    if (skip) fprintf(stderr, "%s: TIMING ONLY: %s left out, so the output is no model answer\n", prog, ds_skip_words(skip));
}
