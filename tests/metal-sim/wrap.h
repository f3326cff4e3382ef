/* First in every file that wrap.py makes. */
#include "metal_stdlib"
#include "backend/metal/args.h"
#ifdef SIM_CHECK_SPACES
#define SIM_EXECUTED(...)
#define SIM_INSTANCE(...) template decltype(__VA_ARGS__) __VA_ARGS__;
#else
#define SIM_EXECUTED(...) __VA_ARGS__
#define SIM_INSTANCE(...)
struct sim_pointer {
    void *p;
    template <class T> operator T *() const { return static_cast<T *>(p); }
};
static inline metal::uint3 sim_vector(sim_uint3 v)
{
    metal::uint3 u;
    u.x = v.x, u.y = v.y, u.z = v.z;
    return u;
}
#endif
