/* A step as one submission, recorded as a graph. Token ids lie in device memory, and for a step of one token the position too, so
 * that its graph serves all steps that divide attention's keys alike; a longer one serves its own position. */
#include "backend/cuda/host.h"

static bool same(const struct ds_cuda_graph *g, const struct ds_cuda_graph *key)
{
    return g->timeline == key->timeline && g->n == key->n && g->pos == key->pos && g->splits == key->splits && g->skip == key->skip && g->logits == key->logits;
}

static void drop(struct ds_cuda_graph *g)
{
    if (g->exec) cudaGraphExecDestroy(g->exec);
    *g = (struct ds_cuda_graph){ 0 };
}

void ds_cuda_graphs_drop(struct ds_cuda *c)
{
    for (int i = 0; i < DS_CUDA_GRAPHS; i++) drop(&c->graphs[i]);
}

/* The entry of this key; a new one takes the place used longest ago. Decode has places of its own, which no prompt takes. */
static struct ds_cuda_graph *entry(struct ds_cuda *c, const struct ds_cuda_graph *key)
{
    const int from = key->n == 1 ? 0 : DS_CUDA_GRAPHS / 2, to = key->n == 1 ? DS_CUDA_GRAPHS / 2 : DS_CUDA_GRAPHS;
    struct ds_cuda_graph *oldest = &c->graphs[from];
    for (int i = from; i < to; i++) {
        if (same(&c->graphs[i], key)) return &c->graphs[i];
        if (c->graphs[i].used < oldest->used) oldest = &c->graphs[i];
    }
    drop(oldest);
    *oldest = *key;
    return oldest;
}

bool ds_cuda_replay(struct ds_cuda *c)
{
    const struct ds_step *s = &c->be.step;
    if (!s->ids || !s->timeline || s->n_cuts || c->err.code) return false;
    const struct ds_cuda_graph key = { .timeline = s->timeline, .n = s->n, .pos = s->n == 1 ? 0 : s->pos, .skip = s->skip, .logits = s->logits,
                                       .splits = c->attn.n_head ? ds_cuda_splits(c, &c->attn, s->n, s->pos) : 1 };
    struct ds_cuda_graph *g = entry(c, &key);
    g->used = ++c->replays;
    if (g->exec) {
        ds_cuda_ok(c, cudaGraphLaunch(g->exec, c->stream), "replaying a step");
        return true;
    }
    /* the first time takes what is taken on first use: modules, attributes of kernels */
    if (++g->seen == 2 && ds_cuda_ok(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "recording a step"))
        c->recording = g;
    return false;
}

void ds_cuda_record_end(struct ds_cuda *c)
{
    struct ds_cuda_graph *g = c->recording;
    cudaGraph_t graph = NULL;
    if (!g) return;
    c->recording = NULL;
    ds_cuda_ok(c, cudaStreamEndCapture(c->stream, &graph), "recording a step");
    if (!c->err.code) ds_cuda_ok(c, cudaGraphInstantiate(&g->exec, graph, 0), "recording a step");
    if (!c->err.code) ds_cuda_ok(c, cudaGraphLaunch(g->exec, c->stream), "replaying a step");
    if (graph) cudaGraphDestroy(graph);
    if (c->err.code) drop(g);
}
