/* Two backends in step: equal ones agree, a wrong op is found and named, and its fault stays with it. */
#include "../harness.h"

#include "backend/cpu/open.h"
#include "backend/tandem.h"

#include <math.h>

static struct ds_ops faulty;
static const struct ds_ops *sound;

/* One activation in a thousand is off by a hundredth: what a wrong tail of a vector loop does. */
static void wrong_swiglu(struct ds_backend *be, struct ds_buf *act, const struct ds_buf *gate, const struct ds_buf *up, int rows, int dim)
{
    sound->swiglu(be, act, gate, up, rows, dim);
    float *p = be->ops->buf_map(be, act, true);
    for (int i = dim - 1; i < rows * dim; i += 1000) p[i] *= 1.01f;
}

static double worst_of(bool plant, char name[80])
{
    const struct ds_backend_options o = { .threads = 2, .isa = 0, .kv = "f32", .gdn = "seq" };
    struct ds_err e = { 0 };
    struct ds_backend *a = ds_cpu_open(&o, &e), *b = ds_cpu_open(&o, &e);
    sound = a->ops;
    faulty = *sound;
    faulty.swiglu = wrong_swiglu;
    if (plant) a->ops = &faulty;
    struct ds_backend *t = ds_tandem_new(a, b, &e);
    struct ds_buf *gate = t->ops->buf_new(t, DS_BUF_PROJ, 3, 64, &e), *up = t->ops->buf_new(t, DS_BUF_PROJ, 3, 64, &e);
    struct ds_buf *act = t->ops->buf_new(t, DS_BUF_ACT, 3, 64, &e);
    float x[192], y[192];
    for (int i = 0; i < 192; i++) x[i] = sinf((float)i), y[i] = cosf((float)(3 * i));
    t->ops->buf_write(t, gate, 0, x, 192);
    t->ops->buf_write(t, up, 0, y, 192);
    ds_tandem_reset(t);
    t->ops->swiglu(t, act, gate, up, 3, 64);
    const double worst = ds_tandem_read(t)->worst;
    snprintf(name, 80, "%s", ds_tandem_read(t)->worst_op);
    t->ops->buf_free(t, gate);
    t->ops->buf_free(t, up);
    t->ops->buf_free(t, act);
    t->ops->free(t);
    return worst;
}

static void equal_backends_agree(void)
{
    char name[80];
    CHECK(worst_of(false, name) == 0);
}

static void a_wrong_op_is_named(void)
{
    char name[80];
    const double worst = worst_of(true, name);
    CHECK_MSG(worst > 1e-5, "%g", worst);
    CHECK_MSG(!strcmp(name, "swiglu"), "%s", name);
}

static const struct ds_test tests[] = {
    { "equal_backends_agree", equal_backends_agree },
    { "a_wrong_op_is_named", a_wrong_op_is_named },
};
DS_TEST_MAIN(tests)
