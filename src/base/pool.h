/* A pool of threads that runs one parallel loop at a time.
 *
 * ds_pool_run(p, fn, ctx, n) equals
 *     for (int i = 0; i < n; i++) fn(ctx, i, thread);
 * with the iterations handed out one by one to whichever thread is free (dynamic split, so uneven
 * work balances). The caller takes part as thread 0. Returns when all iterations are done; their
 * writes are visible to the caller. Workers spin briefly, then sleep. Not re-entrant: fn must not
 * call ds_pool_run on the same pool. */
#ifndef DS_BASE_POOL_H
#define DS_BASE_POOL_H

typedef struct ds_pool ds_pool;

ds_pool *ds_pool_new(int n_threads);             /* >= 1; NULL when threads or memory are refused */
void ds_pool_free(ds_pool *p);                   /* NULL allowed */
int ds_pool_threads(const ds_pool *p);
void ds_pool_run(ds_pool *p, void (*fn)(void *ctx, int i, int thread), void *ctx, int n);

#endif
