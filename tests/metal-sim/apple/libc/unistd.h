/* For the syntax check of mtl_apple.m: what it calls. */
int getpagesize(void);
