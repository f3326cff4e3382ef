#include "base/hash.h"
#include "../harness.h"

#define PRIME32 2654435761u

/* The buffer and the results of the reference implementation's own self-test. */
static void hash_published_vectors(void)
{
    unsigned char buf[256];
    uint64_t gen = PRIME32;
    for (int i = 0; i < 256; i++) {
        buf[i] = (unsigned char)(gen >> 56);
        gen *= 11400714785074694797u;
    }
    static const struct { size_t n; uint64_t seed, want; } v[] = {
        { 0, 0, 0xef46db3751d8e999u },   { 0, PRIME32, 0xac75fda2929b17efu },
        { 1, 0, 0xe934a84adb052768u },   { 1, PRIME32, 0x5014607643a9b4c3u },
        { 4, 0, 0x9136a0dca57457eeu },   { 14, 0, 0x8282dcc4994e35c8u },
        { 14, PRIME32, 0xc3bd6bf63deb6df0u }, { 222, 0, 0xb641ae8cb691c174u },
        { 222, PRIME32, 0x20cb8ab7ae10c14au },
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        CHECK_MSG(ds_hash64(buf, v[i].n, v[i].seed) == v[i].want, "n=%zu", v[i].n);
    CHECK(ds_hash64("abc", 3, 0) == 0x44bc2cf5ad770999u);
}

static void hash_ignores_alignment(void)
{
    unsigned char buf[80] = { 0 };
    uint64_t want = 0;
    for (int at = 0; at < 8; at++) {
        for (int i = 0; i < 70; i++) buf[at + i] = (unsigned char)(i * 37);
        uint64_t h = ds_hash64(buf + at, 70, 5);
        if (at == 0) want = h;
        CHECK(h == want);
    }
}

static const struct ds_test tests[] = {
    { "hash_published_vectors", hash_published_vectors },
    { "hash_ignores_alignment", hash_ignores_alignment },
};
DS_TEST_MAIN(tests)
