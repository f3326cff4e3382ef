/* Files on a disk: split sets, and what the writer makes. */
#include "gguf/gguf.h"
#include "../gguf_bytes.h"
#include "../harness.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256];

static const char *path_of(const char *name)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof *path, "%s/%s", folder, name);
    return p;
}

static const char *shard_path(int i, int n)
{
    char name[64];
    snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", i, n);
    return path_of(name);
}

static void save(const char *path, const struct gb *b)
{
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL && !b->full);
    if (!f) return;
    CHECK(fwrite(b->p, 1, b->n, f) == b->n);
    fclose(f);
}

/* What a shard of the set of three says; each test spoils one of them. */
struct shard { uint64_t no, count; long promised; const char *tensor; bool split_keys; uint64_t data; };

static void save_shard(int i, const struct shard *s)
{
    unsigned char room[2048];
    struct gb b = { room, 0, sizeof room, 0 };
    gb_header(&b, 3, s->tensor ? 1 : 0, (s->split_keys ? 3 : 0) + (i == 0 ? 1 : 0));
    if (i == 0) gb_key_str(&b, "general.architecture", "test");
    if (s->split_keys) {
        gb_key_u16(&b, "split.no", (uint32_t)s->no);
        gb_key_u16(&b, "split.count", (uint32_t)s->count);
        gb_key(&b, "split.tensors.count", GB_I32);
        gb_int(&b, (uint64_t)s->promised, 4);
    }
    if (s->tensor) {
        gb_tensor1(&b, s->tensor, 8, GB_T_F32, 0);
        gb_align(&b, 32);
        gb_fill(&b, 0x10 + i, s->data);
    }
    save(shard_path(i + 1, 3), &b);
}

static void good_set(struct shard s[3])
{
    static const char *const names[3] = { NULL, "a", "b" };
    for (int i = 0; i < 3; i++) s[i] = (struct shard){ (uint64_t)i, 3, 2, names[i], true, 32 };
}

static void save_set(const struct shard s[3])
{
    for (int i = 0; i < 3; i++) save_shard(i, &s[i]);
}

static void expect(const char *path, const char *words)
{
    struct ds_gguf *g = NULL;
    struct ds_err e = { 0 };
    ds_status s = ds_gguf_open(&g, path, &e);
    CHECK((s == DS_OK) == (g != NULL));
    CHECK_MSG((s == DS_OK) == !words && (!words || strstr(e.msg, words)), "'%s' lacks '%s'", e.msg, words ? words : "nothing");
    ds_gguf_close(g);
}

/* Any shard's name opens the set, the first may hold no tensor, tensors know their file. */
static void gguf_split_opens_from_any_shard(void)
{
    struct shard s[3];
    good_set(s);
    save_set(s);
    for (int i = 1; i <= 3; i++) {
        struct ds_gguf *g;
        struct ds_err e = { 0 };
        REQUIRE(ds_gguf_open(&g, shard_path(i, 3), &e) == DS_OK);
        CHECK(ds_gguf_n_shards(g) == 3 && ds_gguf_n_tensors(g) == 2 && ds_gguf_has(g, "general.architecture"));
        CHECK(!strcmp(ds_gguf_path(g), shard_path(i, 3)));
        const struct ds_tensor *a = ds_gguf_find(g, "a"), *b = ds_gguf_find(g, "b");
        REQUIRE(a && b);
        CHECK(a->shard == 1 && b->shard == 2 && *(const char *)a->data == 0x11 && *(const char *)b->data == 0x12);
        CHECK((const unsigned char *)b->data == ds_gguf_shard(g, 2)->data + b->file_off);
        uint64_t sum = 0;
        for (int k = 0; k < 3; k++) sum += ds_gguf_shard(g, k)->size;
        CHECK(ds_gguf_file_bytes(g) == sum);
        ds_gguf_close(g);
    }
}

static void gguf_split_refusals(void)
{
    struct shard s[3];
    good_set(s), s[1].no = 2, save_set(s);
    expect(shard_path(1, 3), "00002-of-00003.gguf: key 'split.no' is 2, expected 1");
    good_set(s), s[2].count = 4, save_set(s);
    expect(shard_path(1, 3), "00003-of-00003.gguf: key 'split.count' is 4, the file's name says 3");
    good_set(s), s[0].count = 4, save_set(s);
    expect(shard_path(1, 3), "key 'split.count' is 4, the file's name says 3");
    good_set(s), s[0].promised = 3, save_set(s);
    expect(shard_path(2, 3), "promises 3 tensors, the 3 shards hold 2");
    good_set(s), s[0].promised = -1, save_set(s);
    expect(shard_path(2, 3), "'split.tensors.count' is -1");
    good_set(s), s[2].tensor = "a", save_set(s);
    expect(shard_path(1, 3), "tensor 'a' appears twice");
    good_set(s), s[2].split_keys = false, save_set(s);
    expect(shard_path(1, 3), "00003-of-00003.gguf: key 'split.count' is missing");
    good_set(s), s[2].data = 31, save_set(s);
    expect(shard_path(1, 3), "00003-of-00003.gguf: tensor 'b' needs 32 bytes");
    good_set(s), save_set(s);
    expect(shard_path(1, 3), NULL);
    CHECK(rename(shard_path(3, 3), path_of("third.gguf")) == 0);
    expect(shard_path(1, 3), "00003-of-00003.gguf: cannot open");
    expect(path_of("third.gguf"), "one of 3 shards, but its name does not end in");
    CHECK(rename(path_of("third.gguf"), path_of("m-00000-of-00003.gguf")) == 0);
    expect(path_of("m-00000-of-00003.gguf"), "name says shard 0 of 3");
}

/* Names that look almost like a shard's. */
static void gguf_split_names(void)
{
    struct shard s[3];
    static const char *const names[] = { "m-00001-of-0003.gguf", "m-00001-of-00003.ggu", "m-0000a-of-00003.gguf",
                                         "00001-of-00003.gguf", "g" };
    good_set(s), save_set(s);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(rename(shard_path(1, 3), path_of(names[i])) == 0);
        expect(path_of(names[i]), "name does not end in");
        char was[512];
        CHECK(getcwd(was, sizeof was) && chdir(folder) == 0);
        expect(names[i], "name does not end in");
        CHECK(chdir(was) == 0);
        CHECK(rename(path_of(names[i]), shard_path(1, 3)) == 0);
    }
    good_set(s), s[0].count = 9, s[0].no = 8, save_set(s);
    CHECK(rename(shard_path(1, 3), path_of("m-00009-of-00009.gguf")) == 0);
    expect(path_of("m-00009-of-00009.gguf"), "m-00001-of-00009.gguf: cannot open");
}

static void gguf_files_that_are_none(void)
{
    expect(path_of("absent.gguf"), "absent.gguf: cannot open");
    expect(folder, "is a folder");
    unsigned char nothing[1];
    struct gb none = { nothing, 0, 0, 0 };
    save(path_of("empty.gguf"), &none);
    expect(path_of("empty.gguf"), "0 bytes, too few");
    char deep[1500];
    memset(deep, 'd', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    struct ds_gguf *g;
    struct ds_err e = { 0 };
    unsigned char bad[64] = "GGUF\1";
    CHECK(ds_gguf_open_mem(&g, deep, bad, sizeof bad, &e) == DS_EFORMAT && strstr(e.msg, "version 1, expected 2 or 3"));
}

/* --- writer --- */

static const float numbers[64] = { 1, 2, 3, 4.5f, -6 };

static struct ds_gguf_writer *small_writer(void)
{
    static const int32_t ints[3] = { 1, -2, INT32_MIN };
    static const float floats[2] = { 0.5f, -1e9f };
    static const char *const words[3] = { "a", "", "\xe2\x82\xac" };
    const uint64_t one[1] = { 5 }, four[4] = { 4, 2, 1, 2 };
    struct ds_gguf_writer *w = ds_gguf_writer_new();
    if (!w) return NULL;
    ds_gguf_put_str(w, "general.architecture", "test");
    ds_gguf_put_u32(w, "u", 4000000000u);
    ds_gguf_put_u64(w, "uu", UINT64_MAX);
    ds_gguf_put_u32(w, "zero", 0);
    ds_gguf_put_f32(w, "f", 1e-6f);
    ds_gguf_put_bool(w, "b", true);
    ds_gguf_put_i32s(w, "ints", ints, 3);
    ds_gguf_put_f32s(w, "floats", floats, 2);
    ds_gguf_put_strs(w, "words", words, 3);
    ds_gguf_put_strs(w, "none", NULL, 0);
    ds_gguf_put_tensor(w, "odd", &ds_types[DS_T_F32], 1, one, numbers);
    ds_gguf_put_tensor(w, "cube", &ds_types[DS_T_F32], 4, four, numbers + 5);
    return w;
}

static void check_small(const struct ds_gguf *g)
{
    uint64_t u = 0;
    double f = 0;
    bool b = false;
    struct ds_str s;
    struct ds_arr a;
    CHECK(!ds_gguf_str(g, "general.architecture", &s, NULL) && s.n == 4 && !memcmp(s.p, "test", 4));
    CHECK(!ds_gguf_u64(g, "u", &u, NULL) && u == 4000000000u);
    CHECK(!ds_gguf_u64(g, "uu", &u, NULL) && u == UINT64_MAX);
    CHECK(!ds_gguf_u64(g, "zero", &u, NULL) && u == 0);
    CHECK(!ds_gguf_f64(g, "f", &f, NULL) && f == 1e-6f);
    CHECK(!ds_gguf_bool(g, "b", &b, NULL) && b);
    CHECK(!ds_gguf_arr(g, "ints", &a, NULL) && a.t == DS_KV_I32 && a.n == 3 && ds_arr_int(&a, 2) == INT32_MIN);
    CHECK(!ds_gguf_arr(g, "floats", &a, NULL) && a.n == 2 && ds_arr_num(&a, 1) == -1e9f);
    CHECK(!ds_gguf_arr(g, "words", &a, NULL) && a.n == 3 && ds_arr_str(&a, 2).n == 3 && ds_arr_str(&a, 1).n == 0);
    CHECK(!ds_gguf_arr(g, "none", &a, NULL) && a.t == DS_KV_STR && a.n == 0);
    const struct ds_tensor *odd = ds_gguf_find(g, "odd"), *cube = ds_gguf_find(g, "cube");
    REQUIRE(ds_gguf_n_tensors(g) == 2 && odd && cube);
    CHECK(odd->bytes == 20 && !memcmp(odd->data, numbers, 20) && cube->n_dims == 4 && cube->ne[3] == 2);
    CHECK(cube->bytes == 64 && !memcmp(cube->data, numbers + 5, 64) && cube->file_off == odd->file_off + 32);
}

/* The same through a file and without one. */
static void gguf_writer_round_trip(void)
{
    struct ds_err e = { 0 };
    struct ds_gguf *file, *memory;
    struct ds_gguf_writer *w = small_writer();
    REQUIRE(w && ds_gguf_write(w, path_of("w.gguf"), &e) == DS_OK);
    CHECK(!ds_file_exists(path_of("w.gguf.part")));
    REQUIRE(ds_gguf_open(&file, path_of("w.gguf"), &e) == DS_OK);
    check_small(file);
    int freed = 0, *owned = malloc(sizeof freed);
    memory = ds_gguf_from_writer(w, "made", owned, free, &e);
    REQUIRE(memory != NULL);
    check_small(memory);
    CHECK(ds_gguf_tensor(memory, 0)->data == numbers && ds_gguf_tensor(memory, 0)->shard == -1 && ds_gguf_n_shards(memory) == 0);
    CHECK(ds_gguf_hash(file) == ds_gguf_hash(memory) && ds_gguf_file_bytes(file) == ds_gguf_file_bytes(memory));
    CHECK(!strcmp(ds_gguf_path(memory), "made"));
    ds_gguf_close(file);
    ds_gguf_close(memory);
}

static void gguf_hash_sees_header_and_data(void)
{
    static unsigned char data[3][20000];
    const uint64_t n[1] = { 5000 };
    uint64_t h[4];
    for (int c = 0; c < 4; c++) {
        struct ds_gguf_writer *w = ds_gguf_writer_new();
        REQUIRE(w != NULL);
        if (c == 1) data[1][4095] = 1;                 /* end of the first 4 KiB */
        if (c == 2) data[2][20000 - 4096] = 1;         /* begin of the last */
        ds_gguf_put_u32(w, "k", c == 3);
        ds_gguf_put_tensor(w, "t", &ds_types[DS_T_F32], 1, n, data[c % 3]);
        struct ds_gguf *g = ds_gguf_from_writer(w, "h", NULL, NULL, NULL);
        REQUIRE(g != NULL);
        h[c] = ds_gguf_hash(g);
        ds_gguf_close(g);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) CHECK(h[i] != h[k]);
}

/* What a writer is given wrongly is reported when it writes, and leaves no file. */
static void gguf_writer_refusals(void)
{
    const uint64_t n8[5] = { 8, 1, 1, 1, 1 }, n33[1] = { 33 }, wide[2] = { (uint64_t)1 << 40, (uint64_t)1 << 40 },
                   zero[1] = { 0 };
    static const char *const words[] = { "key 'k' appears twice",
                                         "tensor 't' appears twice",
                                         "shape that its type cannot have",
                                         "shape that its type cannot have",
                                         "dimension of 0",
                                         "1 to 4 dimensions",
                                         "more than 63 bytes",
                                         "empty name",
                                         "not valid UTF-8" };
    for (size_t c = 0; c < sizeof words / sizeof *words; c++) {
        struct ds_err e = { 0 };
        struct ds_gguf_writer *w = ds_gguf_writer_new();
        const struct ds_type *f32 = &ds_types[DS_T_F32];
        REQUIRE(w != NULL);
        ds_gguf_put_u32(w, "k", 1);
        switch (c) {
        case 0: ds_gguf_put_u32(w, "k", 1); break;
        case 1: ds_gguf_put_tensor(w, "t", f32, 1, n8, numbers), ds_gguf_put_tensor(w, "t", f32, 1, n8, numbers); break;
        case 2: ds_gguf_put_tensor(w, "t", &ds_types[DS_T_Q8_0], 1, n33, numbers); break;
        case 3: ds_gguf_put_tensor(w, "t", f32, 2, wide, numbers); break;
        case 4: ds_gguf_put_tensor(w, "t", f32, 1, zero, numbers); break;
        case 5: ds_gguf_put_tensor(w, "t", f32, 5, n8, numbers); break;
        case 6:
            ds_gguf_put_tensor(w, "a name that goes on and on until it has more than sixty-three bytes", f32, 1, n8, numbers);
            break;
        case 7: ds_gguf_put_tensor(w, "", f32, 1, n8, numbers); break;
        case 8: ds_gguf_put_str(w, "\xff", "x"); break;
        }
        const char *path = path_of("refused.gguf");
        ds_status s = ds_gguf_write(w, path, &e);
        CHECK_MSG(s && s == e.code && strstr(e.msg, words[c]) && strstr(e.msg, "refused.gguf"), "case %zu: %s", c, e.msg);
        CHECK(!ds_file_exists(path));
        CHECK(!ds_gguf_from_writer(w, "refused", malloc(1), free, &e) && strstr(e.msg, words[c]));
    }
}

static void gguf_writer_cannot_write(void)
{
    struct ds_err e = { 0 };
    struct ds_gguf_writer *w = small_writer();
    REQUIRE(w != NULL);
    CHECK(ds_gguf_write(w, path_of("no/such/folder.gguf"), &e) == DS_EIO && strstr(e.msg, "cannot be created"));
    struct rlimit before, low;                     /* a disk that is full after a hundred bytes */
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    low = before;
    low.rlim_cur = 100;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &low) == 0);
    CHECK(ds_gguf_write(w, path_of("full.gguf"), &e) == DS_EIO && strstr(e.msg, "cannot be written"));
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(!ds_file_exists(path_of("full.gguf")) && !ds_file_exists(path_of("full.gguf.part")));
    CHECK(ds_gguf_write(w, path_of("after.gguf"), &e) == DS_OK);
    ds_gguf_writer_free(w);
    ds_gguf_writer_free(NULL);
}

/* Only files are written to, and links stay links. */
static void gguf_writer_keeps_what_is_there(void)
{
    struct ds_err e = { 0 };
    struct stat st;
    struct ds_gguf *g;
    struct ds_gguf_writer *w = small_writer();
    REQUIRE(w != NULL);
    CHECK(mkfifo(path_of("pipe"), 0600) == 0 && ds_gguf_write(w, path_of("pipe"), &e) == DS_EIO && strstr(e.msg, "pipe: is a device, a pipe"));
    CHECK(stat(path_of("pipe"), &st) == 0 && S_ISFIFO(st.st_mode) && !ds_file_exists(path_of("pipe.part")));
    CHECK(ds_gguf_write(w, folder, &e) == DS_EIO && strstr(e.msg, "is a folder"));
    CHECK(symlink("real.gguf", path_of("link.gguf")) == 0 && ds_gguf_write(w, path_of("link.gguf"), &e) == DS_OK);
    CHECK(lstat(path_of("link.gguf"), &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(lstat(path_of("real.gguf"), &st) == 0 && S_ISREG(st.st_mode));
    REQUIRE(ds_gguf_open(&g, path_of("link.gguf"), &e) == DS_OK);
    check_small(g);
    ds_gguf_close(g);
    /* Something else under the part's name stays, and nothing waits for its other end. */
    CHECK(mkfifo(path_of("x.gguf.part"), 0600) == 0 && ds_gguf_write(w, path_of("x.gguf"), &e) == DS_EIO);
    CHECK(lstat(path_of("x.gguf.part"), &st) == 0 && S_ISFIFO(st.st_mode) && !ds_file_exists(path_of("x.gguf")));
    ds_gguf_writer_free(w);
}

static int third(void *ctx, uint64_t done, uint64_t total)
{
    int *calls = ctx;
    CHECK(done <= total && ds_file_exists(path_of("stop.gguf.part")));
    return ++*calls == 3;
}

static void gguf_writer_can_be_stopped(void)
{
    struct ds_err e = { 0 };
    struct ds_gguf *g;
    struct ds_gguf_writer *w = small_writer();
    int calls = 0;
    REQUIRE(w && ds_gguf_write(w, path_of("stop.gguf"), &e) == DS_OK);
    ds_gguf_put_u32(w, "one more", 1);
    ds_gguf_writer_progress(w, third, &calls);
    CHECK(ds_gguf_write(w, path_of("stop.gguf"), &e) == DS_ECANCEL && strstr(e.msg, "stop.gguf: stopped after") && calls == 3);
    CHECK(!ds_file_exists(path_of("stop.gguf.part")));
    REQUIRE(ds_gguf_open(&g, path_of("stop.gguf"), &e) == DS_OK);
    CHECK(!ds_gguf_has(g, "one more"));
    check_small(g);
    ds_gguf_close(g);
    ds_gguf_writer_free(w);
}

static const struct ds_test tests[] = {
    { "gguf_split_opens_from_any_shard", gguf_split_opens_from_any_shard },
    { "gguf_split_refusals", gguf_split_refusals },
    { "gguf_split_names", gguf_split_names },
    { "gguf_files_that_are_none", gguf_files_that_are_none },
    { "gguf_writer_round_trip", gguf_writer_round_trip },
    { "gguf_hash_sees_header_and_data", gguf_hash_sees_header_and_data },
    { "gguf_writer_refusals", gguf_writer_refusals },
    { "gguf_writer_cannot_write", gguf_writer_cannot_write },
    { "gguf_writer_keeps_what_is_there", gguf_writer_keeps_what_is_there },
    { "gguf_writer_can_be_stopped", gguf_writer_can_be_stopped },
};

static void remove_files(void)
{
    static const char *const names[] = { "m-00001-of-00003.gguf",
                                         "m-00002-of-00003.gguf",
                                         "m-00003-of-00003.gguf",
                                         "m-00000-of-00003.gguf",
                                         "third.gguf",
                                         "empty.gguf",
                                         "w.gguf",
                                         "after.gguf",
                                         "full.gguf.part" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) remove(path_of(names[i]));
    rmdir(folder);
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ds-gguf-%ld", tmp ? tmp : "/tmp", (long)getpid());
    if (mkdir(folder, 0700) != 0) {
        perror(folder);
        return 1;
    }
    int r = ds_test_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv);
    remove_files();
    return r;
}
