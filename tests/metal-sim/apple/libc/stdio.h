/* For the syntax check of mtl_apple.m: what it calls. */
#include <stddef.h>
int snprintf(char *dst, size_t n, const char *fmt, ...);
