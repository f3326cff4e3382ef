/* Members of a JSON object: key and value in one call. */
#ifndef DS_TOOLS_COMMON_MEMBER_H
#define DS_TOOLS_COMMON_MEMBER_H

#include "base/json.h"

void ds_jm_num(struct ds_json_out *j, const char *key, double v);
void ds_jm_positive(struct ds_json_out *j, const char *key, double v);      /* null unless v > 0 */
void ds_jm_int(struct ds_json_out *j, const char *key, int64_t v);
void ds_jm_bool(struct ds_json_out *j, const char *key, bool v);
void ds_jm_text(struct ds_json_out *j, const char *key, const char *v);     /* null for NULL and "" */
void ds_jm_nums(struct ds_json_out *j, const char *key, const double *v, int n);
void ds_jm_obj(struct ds_json_out *j, const char *key);                     /* left open */
void ds_jm_arr(struct ds_json_out *j, const char *key);                     /* left open */

#endif
