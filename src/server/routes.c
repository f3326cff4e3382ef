#include "server/api.h"

extern const struct ds_route ds_routes_chat[], ds_routes_completions[], ds_routes_messages[], ds_routes_responses[],
    ds_routes_info[], ds_routes_status[];

const struct ds_route *const ds_route_tables[] = { ds_routes_chat, ds_routes_completions, ds_routes_messages, ds_routes_responses,
                                                   ds_routes_info, ds_routes_status, NULL };
