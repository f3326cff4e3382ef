/* The decode product over its rows: gemv_activations, row_q8_0, row_q8_k and row_float of an instruction set, by type. */

INLINE void rows_of(enum ds_type_id id, const struct ds_gemm_call *c)
{
    const struct ds_gemm_form f = ds_gemm_form_of(id);
    const size_t stride = ds_type_row_bytes(&ds_types[id], (size_t)c->k);
    float *y = c->y + (c->yrow ? (size_t)c->yrow[0] * c->ldy : 0);
    const char *w = (const char *)c->w + stride * (size_t)c->r0;
    const char *x = gemv_activations(id, c);
    for (int r = c->r0; r < c->r1; r++, w += stride) {
        float v = f.chunk == 0 ? row_float(id, w, c->x, c->k) : f.xblock == 32 ? row_q8_0(id, w, x, c->k) : row_q8_k(id, w, x, c->k);
        y[r] = c->add ? y[r] + v : v;
    }
}

/* A function for each type: in one they would share registers, and a change to one would change the others' speed. */
#define ROWS_OF(id) static __attribute__((noinline)) void rows_##id(const struct ds_gemm_call *c) { rows_of(DS_T_##id, c); }
ROWS_OF(F32)
ROWS_OF(F16)
ROWS_OF(BF16)
ROWS_OF(Q8_0)
ROWS_OF(Q4_0)
ROWS_OF(Q4_1)
ROWS_OF(Q5_0)
ROWS_OF(Q5_1)
ROWS_OF(IQ4_NL)
ROWS_OF(MXFP4)
ROWS_OF(Q2_K)
ROWS_OF(Q3_K)
ROWS_OF(Q4_K)
ROWS_OF(Q5_K)
ROWS_OF(Q6_K)
ROWS_OF(IQ4_XS)
#undef ROWS_OF

static void gemv(const struct ds_gemm_kernels *g, const struct ds_gemm_call *c)
{
    (void)g;
    switch (ds_type_id(c->type)) {
    case DS_T_F32: rows_F32(c); break;
    case DS_T_F16: rows_F16(c); break;
    case DS_T_BF16: rows_BF16(c); break;
    case DS_T_Q8_0: rows_Q8_0(c); break;
    case DS_T_Q4_0: rows_Q4_0(c); break;
    case DS_T_Q4_1: rows_Q4_1(c); break;
    case DS_T_Q5_0: rows_Q5_0(c); break;
    case DS_T_Q5_1: rows_Q5_1(c); break;
    case DS_T_IQ4_NL: rows_IQ4_NL(c); break;
    case DS_T_MXFP4: rows_MXFP4(c); break;
    case DS_T_Q2_K: rows_Q2_K(c); break;
    case DS_T_Q3_K: rows_Q3_K(c); break;
    case DS_T_Q4_K: rows_Q4_K(c); break;
    case DS_T_Q5_K: rows_Q5_K(c); break;
    case DS_T_Q6_K: rows_Q6_K(c); break;
    case DS_T_IQ4_XS: rows_IQ4_XS(c); break;
    default: break;
    }
}
