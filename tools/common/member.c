#include "common/member.h"

void ds_jm_num(struct ds_json_out *j, const char *key, double v)
{
    ds_jo_key(j, key);
    ds_jo_num(j, v);
}

void ds_jm_positive(struct ds_json_out *j, const char *key, double v)
{
    ds_jo_key(j, key);
    if (v > 0) ds_jo_num(j, v);
    else ds_jo_null(j);
}

void ds_jm_int(struct ds_json_out *j, const char *key, int64_t v)
{
    ds_jo_key(j, key);
    ds_jo_int(j, v);
}

void ds_jm_bool(struct ds_json_out *j, const char *key, bool v)
{
    ds_jo_key(j, key);
    ds_jo_bool(j, v);
}

void ds_jm_text(struct ds_json_out *j, const char *key, const char *v)
{
    ds_jo_key(j, key);
    ds_jo_str(j, v && *v ? v : NULL);
}

void ds_jm_nums(struct ds_json_out *j, const char *key, const double *v, int n)
{
    ds_jm_arr(j, key);
    for (int i = 0; i < n; i++) ds_jo_num(j, v[i]);
    ds_jo_arr_end(j);
}

void ds_jm_obj(struct ds_json_out *j, const char *key)
{
    ds_jo_key(j, key);
    ds_jo_obj(j);
}

void ds_jm_arr(struct ds_json_out *j, const char *key)
{
    ds_jo_key(j, key);
    ds_jo_arr(j);
}
