/* For the syntax check of mtl_apple.m: what it calls. */
#include <stddef.h>
void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void free(void *p);
