/* One small file per rule of the GGUF reader: how to build it, and the words of its refusal (NULL: it loads). The unit test
 * opens them, the corpus of the fuzzer is made of them. */
#ifndef DS_TESTS_GGUF_CASES_H
#define DS_TESTS_GGUF_CASES_H

#include "gguf_bytes.h"

/* --- files that are valid up to the point of interest --- */

static void one_key(struct gb *b) { gb_header(b, 3, 0, 1); }

/* A file of n tensors whose infos follow; `finish` adds the padding and n bytes of data. */
static void tensors(struct gb *b, uint64_t n) { gb_header(b, 3, n, 0); }
static void finish(struct gb *b, size_t n)
{
    gb_align(b, 32);
    gb_fill(b, 0x11, n);
}

static void valid(struct gb *b)
{
    static const uint64_t two[2] = { 4, 2 };
    gb_header(b, 3, 2, 3);
    gb_key_str(b, "general.architecture", "test");
    gb_key_u32(b, "test.block_count", 2);
    gb_key_arr(b, "test.words", GB_STR, 2);
    gb_str(b, "one");
    gb_str(b, "");
    gb_tensor1(b, "a", 8, GB_T_F32, 0);
    gb_tensor(b, "b.weight", 2, two, GB_T_F32, 32);
    finish(b, 64);
}

/* --- magic, version, counts --- */

static void empty_file(struct gb *b) { (void)b; }
static void three_bytes(struct gb *b) { gb_raw(b, "GGU", 3); }
static void wrong_magic(struct gb *b) { valid(b); memcpy(b->p, "GGML", 4); }
static void magic_escaped(struct gb *b) { valid(b); memcpy(b->p, "\x1b[2J", 4); }
static void lfs_pointer(struct gb *b) { gb_raw(b, "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", 57); }
static void no_version(struct gb *b) { gb_raw(b, "GGUF\3\0", 6); }
static void version_0(struct gb *b) { gb_header(b, 0, 0, 0); }
static void version_1(struct gb *b) { gb_header(b, 1, 0, 0); }
static void version_2(struct gb *b) { valid(b); b->p[4] = 2; }
static void version_4(struct gb *b) { gb_header(b, 4, 0, 0); }
static void big_endian_3(struct gb *b) { gb_header(b, 0x03000000u, 0, 0); }
static void big_endian_2(struct gb *b) { gb_header(b, 0x02000000u, 0, 0); }
static void tensors_2_61(struct gb *b) { gb_header(b, 3, (uint64_t)1 << 61, 0); gb_fill(b, 0, 64); }
static void tensors_max(struct gb *b) { gb_header(b, 3, UINT64_MAX, 0); gb_fill(b, 0, 64); }
static void keys_2_61(struct gb *b) { gb_header(b, 3, 0, (uint64_t)1 << 61); gb_fill(b, 0, 64); }
static void keys_max(struct gb *b) { gb_header(b, 3, 0, UINT64_MAX); gb_fill(b, 0, 64); }
static void one_key_too_few(struct gb *b)
{
    gb_header(b, 3, 0, 2);
    gb_key_str(b, "a", "enough bytes for a second key to be possible");
}
static void one_tensor_too_few(struct gb *b)
{
    tensors(b, 2);
    gb_tensor1(b, "a", 8, GB_T_F32, 0);
    gb_align(b, 32);
    gb_fill(b, 0, 32);
}
static void tensors_fill_the_keys(struct gb *b)   /* possible by the whole size, impossible after the keys */
{
    gb_header(b, 3, 4, 1);
    gb_key_arr(b, "a", GB_U8, 150);
    gb_fill(b, 1, 150);
}
static void no_keys_no_tensors(struct gb *b) { gb_header(b, 3, 0, 0); }

/* --- key names and values --- */

static void key_empty(struct gb *b) { one_key(b); gb_key_u32(b, "", 1); }
static void key_length_2_60(struct gb *b) { one_key(b); gb_int(b, (uint64_t)1 << 60, 8); gb_fill(b, 'a', 32); }
static void key_length_max(struct gb *b) { one_key(b); gb_int(b, UINT64_MAX, 8); gb_fill(b, 'a', 32); }
static void key_with_nul(struct gb *b) { one_key(b); gb_strn(b, "a\0b", 3); gb_int(b, GB_U32, 4); gb_int(b, 1, 4); }
static void key_not_utf8(struct gb *b) { one_key(b); gb_key_u32(b, "a\xff", 1); }
static void key_overlong_utf8(struct gb *b) { one_key(b); gb_key_u32(b, "a\xc0\xaf", 1); }
static void key_utf8(struct gb *b) { one_key(b); gb_key_u32(b, "gr\xc3\xb6\xc3\x9f" "e", 1); }
static void key_twice(struct gb *b)
{
    gb_header(b, 3, 0, 3);
    gb_key_u32(b, "a", 1);
    gb_key_u32(b, "b", 1);
    gb_key_str(b, "a", "x");
}
static void value_type_13(struct gb *b) { one_key(b); gb_key(b, "a", 13); gb_int(b, 0, 8); }
static void value_type_max(struct gb *b) { one_key(b); gb_key(b, "a", UINT32_MAX); gb_int(b, 0, 8); }
static void value_cut(struct gb *b) { one_key(b); gb_key(b, "a", GB_U64); gb_int(b, 0, 7); }
static void string_2_60(struct gb *b)
{
    one_key(b);
    gb_key(b, "a", GB_STR);
    gb_int(b, (uint64_t)1 << 60, 8);
    gb_fill(b, 'a', 16);
}
static void string_max(struct gb *b) { one_key(b); gb_key(b, "a", GB_STR); gb_int(b, UINT64_MAX - 7, 8); gb_fill(b, 'a', 16); }
static void bool_2(struct gb *b) { one_key(b); gb_key(b, "a", GB_BOOL); gb_int(b, 2, 1); }
static void every_value_type(struct gb *b)
{
    gb_header(b, 3, 0, 13);
    gb_key(b, "u8", GB_U8), gb_int(b, 200, 1);
    gb_key(b, "i8", GB_I8), gb_int(b, (uint64_t)-5, 1);
    gb_key(b, "u16", GB_U16), gb_int(b, 60000, 2);
    gb_key(b, "i16", GB_I16), gb_int(b, (uint64_t)-300, 2);
    gb_key(b, "u32", GB_U32), gb_int(b, 4000000000u, 4);
    gb_key(b, "i32", GB_I32), gb_int(b, (uint64_t)-70000, 4);
    gb_key(b, "f32", GB_F32), gb_int(b, 0x3fc00000, 4);                  /* 1.5 */
    gb_key(b, "bool", GB_BOOL), gb_int(b, 1, 1);
    gb_key(b, "str", GB_STR), gb_strn(b, "a\0b", 3);
    gb_key_arr(b, "arr", GB_I16, 2), gb_int(b, (uint64_t)-1, 2), gb_int(b, 7, 2);
    gb_key(b, "u64", GB_U64), gb_int(b, UINT64_MAX, 8);
    gb_key(b, "i64", GB_I64), gb_int(b, (uint64_t)INT64_MIN, 8);
    gb_key(b, "f64", GB_F64), gb_int(b, 0xbfe0000000000000u, 8);         /* -0.5 */
}

/* --- arrays --- */

static void array_nested(struct gb *b)
{
    one_key(b);
    gb_key_arr(b, "a", GB_ARR, 1);
    gb_int(b, GB_U8, 4);
    gb_int(b, 1, 8);
    gb_int(b, 1, 1);
}
static void array_type_13(struct gb *b) { one_key(b); gb_key_arr(b, "a", 13, 1); gb_fill(b, 0, 8); }
static void array_cut(struct gb *b) { one_key(b); gb_key(b, "a", GB_ARR); gb_int(b, GB_U8, 4); gb_int(b, 0, 7); }
static void array_too_long(struct gb *b) { one_key(b); gb_key_arr(b, "a", GB_U32, 5); gb_fill(b, 0, 19); }
static void array_2_60(struct gb *b) { one_key(b); gb_key_arr(b, "a", GB_U8, (uint64_t)1 << 60); gb_fill(b, 0, 8); }
static void array_wraps(struct gb *b) { one_key(b); gb_key_arr(b, "a", GB_U64, ((uint64_t)1 << 61) + 1); gb_fill(b, 0, 8); }
static void strings_2_60(struct gb *b) { one_key(b); gb_key_arr(b, "a", GB_STR, (uint64_t)1 << 60); gb_fill(b, 0, 64); }
static void strings_cut(struct gb *b)
{
    one_key(b);
    gb_key_arr(b, "a", GB_STR, 2);
    gb_str(b, "x");
    gb_int(b, 9, 8);
    gb_fill(b, 'y', 8);
}
static void strings_element_max(struct gb *b)
{
    one_key(b);
    gb_key_arr(b, "a", GB_STR, 2);
    gb_str(b, "x");
    gb_int(b, UINT64_MAX - 8, 8);
    gb_fill(b, 0, 32);
}
static void bools_2(struct gb *b) { one_key(b); gb_key_arr(b, "a", GB_BOOL, 3); gb_int(b, 0x020100, 3); }
static void bools(struct gb *b) { one_key(b); gb_key_arr(b, "a", GB_BOOL, 3); gb_int(b, 0x010001, 3); }
static void arrays_empty(struct gb *b) { gb_header(b, 3, 0, 2); gb_key_arr(b, "a", GB_STR, 0); gb_key_arr(b, "b", GB_F32, 0); }

/* --- alignment --- */

static void aligned(struct gb *b, uint32_t type, uint64_t v, int bytes)
{
    gb_header(b, 3, 1, 1);
    gb_key(b, "general.alignment", type);
    gb_int(b, v, bytes);
    gb_tensor1(b, "a", 8, GB_T_F32, 0);
    if (v >= 8 && v <= 512) gb_align(b, (size_t)v);
    gb_fill(b, 0x11, 32);
}
static void alignment_0(struct gb *b) { aligned(b, GB_U32, 0, 4); }
static void alignment_3(struct gb *b) { aligned(b, GB_U32, 3, 4); }
static void alignment_4(struct gb *b) { aligned(b, GB_U32, 4, 4); }
static void alignment_8(struct gb *b) { aligned(b, GB_U32, 8, 4); }
static void alignment_48(struct gb *b) { aligned(b, GB_U32, 48, 4); }
static void alignment_512(struct gb *b) { aligned(b, GB_U64, 512, 8); }
static void alignment_2_31(struct gb *b) { aligned(b, GB_U32, 0x80000000u, 4); }
static void alignment_2_63(struct gb *b) { aligned(b, GB_U64, (uint64_t)1 << 63, 8); }
static void alignment_negative(struct gb *b) { aligned(b, GB_I32, (uint64_t)-32, 4); }
static void alignment_string(struct gb *b) { gb_header(b, 3, 0, 1); gb_key_str(b, "general.alignment", "32"); }

/* --- tensor names and shapes --- */

static void shape(struct gb *b, uint32_t n_dims, uint64_t a, uint64_t c, uint64_t d, uint64_t e, uint32_t type)
{
    const uint64_t ne[5] = { a, c, d, e, 1 };
    tensors(b, 1);
    gb_tensor(b, "t", n_dims, ne, type, 0);
    finish(b, 128);
}
static void name_empty(struct gb *b) { tensors(b, 1); gb_tensor1(b, "", 8, GB_T_F32, 0); finish(b, 32); }
static void name_63(struct gb *b)
{
    char name[64];
    memset(name, 'n', 63);
    name[63] = 0;
    tensors(b, 1);
    gb_tensor1(b, name, 8, GB_T_F32, 0);
    finish(b, 32);
}
static void name_64(struct gb *b)
{
    char name[65];
    memset(name, 'n', 64);
    name[64] = 0;
    tensors(b, 1);
    gb_tensor1(b, name, 8, GB_T_F32, 0);
    finish(b, 32);
}
static void name_length_2_60(struct gb *b) { tensors(b, 1); gb_int(b, (uint64_t)1 << 60, 8); gb_fill(b, 'n', 64); }
static void name_with_nul(struct gb *b)
{
    tensors(b, 1);
    gb_strn(b, "a\0b", 3);
    gb_int(b, 1, 4);
    gb_int(b, 8, 8);
    gb_int(b, 0, 4);
    gb_int(b, 0, 8);
    finish(b, 32);
}
static void name_not_utf8(struct gb *b) { tensors(b, 1); gb_tensor1(b, "a\x80", 8, GB_T_F32, 0); finish(b, 32); }
static void name_twice(struct gb *b)
{
    tensors(b, 2);
    gb_tensor1(b, "a", 8, GB_T_F32, 0);
    gb_tensor1(b, "a", 8, GB_T_F32, 32);
    finish(b, 64);
}
static void dims_0(struct gb *b) { shape(b, 0, 1, 1, 1, 1, GB_T_F32); }
static void dims_4(struct gb *b) { shape(b, 4, 2, 2, 2, 2, GB_T_F32); }
static void dims_5(struct gb *b) { shape(b, 5, 2, 2, 2, 2, GB_T_F32); }
static void dims_max(struct gb *b) { shape(b, UINT32_MAX, 2, 2, 2, 2, GB_T_F32); }
static void dim_of_0(struct gb *b) { shape(b, 2, 4, 0, 1, 1, GB_T_F32); }
static void dim_2_42(struct gb *b) { shape(b, 1, ((uint64_t)1 << 42) + 1, 1, 1, 1, GB_T_F32); }
static void dim_max(struct gb *b) { shape(b, 1, UINT64_MAX, 1, 1, 1, GB_T_F32); }
static void dims_2_64(struct gb *b) { shape(b, 2, (uint64_t)1 << 32, (uint64_t)1 << 32, 1, 1, GB_T_F32); }
static void dims_wrap_to_1(struct gb *b) { shape(b, 4, (uint64_t)1 << 32, (uint64_t)1 << 32, 8, 1, GB_T_I8); }
static void bytes_wrap(struct gb *b) { shape(b, 1, ((uint64_t)1 << 62) + 2, 1, 1, 1, GB_T_F32); }   /* times 4: 8 bytes */
static void bytes_wrap_3d(struct gb *b) { shape(b, 3, (uint64_t)1 << 31, (uint64_t)1 << 16, (uint64_t)1 << 15, 1, GB_T_F32); }
static void block_rows(struct gb *b) { shape(b, 2, 32, 3, 1, 1, GB_T_Q8_0); }
static void block_row_cut(struct gb *b) { shape(b, 1, 33, 1, 1, 1, GB_T_Q8_0); }
static void type_99(struct gb *b) { shape(b, 1, 8, 1, 1, 1, 99); }
static void type_removed(struct gb *b) { shape(b, 1, 8, 1, 1, 1, 4); }
static void type_max(struct gb *b) { shape(b, 1, 8, 1, 1, 1, UINT32_MAX); }
static void type_unsupported(struct gb *b) { shape(b, 1, 256, 1, 1, 1, GB_T_IQ2_XXS); }

/* --- tensor places --- */

static void placed(struct gb *b, uint64_t off_a, uint64_t off_b, size_t data)
{
    tensors(b, 2);
    gb_tensor1(b, "a", 8, GB_T_F32, off_a);
    gb_tensor1(b, "b", 8, GB_T_F32, off_b);
    finish(b, data);
}
static void offset_odd(struct gb *b) { placed(b, 0, 40, 128); }
static void offset_past_end(struct gb *b) { placed(b, 0, 4096, 128); }
static void offset_at_end(struct gb *b) { placed(b, 0, 64, 64); }
static void offset_near_max(struct gb *b) { placed(b, 0, UINT64_MAX - 31, 128); }
static void one_byte_short(struct gb *b) { placed(b, 0, 32, 63); }
static void no_data_section(struct gb *b) { tensors(b, 1); gb_tensor1(b, "a", 8, GB_T_F32, 0); }
static void overlap(struct gb *b)
{
    static const uint64_t ne[1] = { 16 };
    tensors(b, 2);
    gb_tensor(b, "a", 1, ne, GB_T_F32, 0);
    gb_tensor1(b, "b", 8, GB_T_F32, 32);
    finish(b, 64);
}
static void same_place(struct gb *b) { placed(b, 32, 32, 64); }
static void gap(struct gb *b) { placed(b, 0, 96, 128); }
static void out_of_order(struct gb *b) { placed(b, 32, 0, 64); }
static void huge_pair(struct gb *b)   /* each size is a number below 2^63, their sum is not */
{
    const uint64_t n = ((uint64_t)1 << 62) + 32;
    tensors(b, 2);
    gb_tensor1(b, "a", n, GB_T_I8, 0);
    gb_tensor1(b, "b", n, GB_T_I8, n);
    finish(b, 64);
}

/* --- split keys --- */

static void split_of_1(struct gb *b) { gb_header(b, 3, 0, 2); gb_key_u16(b, "split.no", 0); gb_key_u16(b, "split.count", 1); }
static void split_of_2(struct gb *b) { gb_header(b, 3, 0, 2); gb_key_u16(b, "split.no", 0); gb_key_u16(b, "split.count", 2); }
static void split_count_string(struct gb *b) { gb_header(b, 3, 0, 1); gb_key_str(b, "split.count", "2"); }
static void split_count_max(struct gb *b) { gb_header(b, 3, 0, 1); gb_key(b, "split.count", GB_U64); gb_int(b, UINT64_MAX, 8); }

static const struct gguf_case { const char *name; void (*build)(struct gb *); const char *words;
} gguf_cases[] = {
#define LOADS(f) { #f, f, NULL }
#define FAILS(f, words) { #f, f, words }
    LOADS(valid),
    LOADS(version_2),
    LOADS(no_keys_no_tensors),
    LOADS(key_utf8),
    LOADS(every_value_type),
    LOADS(bools),
    LOADS(arrays_empty),
    LOADS(alignment_8),
    LOADS(alignment_512),
    LOADS(name_63),
    LOADS(dims_4),
    LOADS(block_rows),
    LOADS(type_unsupported),
    LOADS(gap),
    LOADS(out_of_order),
    LOADS(split_of_1),
    FAILS(empty_file, "0 bytes, too few"),
    FAILS(three_bytes, "3 bytes, too few"),
    FAILS(wrong_magic, "begins with 'GGML', expected 'GGUF'"),
    FAILS(magic_escaped, "begins with '\\x1b[2J'"),
    FAILS(lfs_pointer, "Git LFS pointer"),
    FAILS(no_version, "ends inside the version"),
    FAILS(version_0, "version 0, expected 2 or 3"),
    FAILS(version_1, "version 1, expected 2 or 3"),
    FAILS(version_4, "version 4, expected 2 or 3"),
    FAILS(big_endian_3, "big-endian"),
    FAILS(big_endian_2, "big-endian"),
    FAILS(tensors_2_61, "claims 2305843009213693952 tensors"),
    FAILS(tensors_max, "claims 18446744073709551615 tensors"),
    FAILS(keys_2_61, "claims 2305843009213693952 keys"),
    FAILS(keys_max, "claims 18446744073709551615 keys"),
    FAILS(one_key_too_few, "ends inside the name of key 1"),
    FAILS(one_tensor_too_few, "tensor 1 has an empty name"),
    FAILS(tensors_fill_the_keys, "claims 4 tensors"),
    FAILS(key_empty, "key 0 has an empty name"),
    FAILS(key_length_2_60, "ends inside the name of key 0"),
    FAILS(key_length_max, "ends inside the name of key 0"),
    FAILS(key_with_nul, "key 'a\\x00b' contains NUL"),
    FAILS(key_not_utf8, "key 'a\\xff' is not valid UTF-8"),
    FAILS(key_overlong_utf8, "not valid UTF-8"),
    FAILS(key_twice, "key 'a' appears twice (entries 0 and 2)"),
    FAILS(value_type_13, "key 'a' has value type 13"),
    FAILS(value_type_max, "key 'a' has value type 4294967295"),
    FAILS(value_cut, "ends inside the value of key 'a'"),
    FAILS(string_2_60, "ends inside the value of key 'a'"),
    FAILS(string_max, "ends inside the value of key 'a'"),
    FAILS(bool_2, "key 'a' holds a bool that is neither 0 nor 1"),
    FAILS(array_nested, "key 'a' is an array of arrays"),
    FAILS(array_type_13, "key 'a' is an array of an unknown type"),
    FAILS(array_cut, "key 'a' is an array cut off"),
    FAILS(array_too_long, "key 'a' claims 5 array elements"),
    FAILS(array_2_60, "key 'a' claims 1152921504606846976 array elements"),
    FAILS(array_wraps, "key 'a' claims 2305843009213693953"),
    FAILS(strings_2_60, "key 'a' claims 1152921504606846976"),
    FAILS(strings_cut, "key 'a' is a string array that runs past"),
    FAILS(strings_element_max, "key 'a' is a string array that runs past"),
    FAILS(bools_2, "key 'a' holds a bool"),
    FAILS(alignment_0, "'general.alignment' is 0"),
    FAILS(alignment_3, "'general.alignment' is 3"),
    FAILS(alignment_4, "'general.alignment' is 4"),
    FAILS(alignment_48, "'general.alignment' is 48"),
    FAILS(alignment_2_31, "'general.alignment' is 2147483648"),
    FAILS(alignment_2_63, "'general.alignment' is 9223372036854775808"),
    FAILS(alignment_negative, "'general.alignment' is -32"),
    FAILS(alignment_string, "'general.alignment' has type string"),
    FAILS(name_empty, "tensor 0 has an empty name"),
    FAILS(name_64, "name of 64 bytes"),
    FAILS(name_length_2_60, "inside the name of tensor 0"),
    FAILS(name_with_nul, "tensor 'a\\x00b' contains NUL"),
    FAILS(name_not_utf8, "tensor 'a\\x80' is not valid UTF-8"),
    FAILS(name_twice, "tensor 'a' appears twice (entries 0 and 1)"),
    FAILS(dims_0, "has 0 dimensions"),
    FAILS(dims_5, "has 5 dimensions"),
    FAILS(dims_max, "has 4294967295 dimensions"),
    FAILS(dim_of_0, "tensor 't' has a dimension of 0"),
    FAILS(dim_2_42, "tensor 't' needs 17592186044420 bytes"),
    FAILS(dim_max, "more than 2^63 elements"),
    FAILS(dims_2_64, "more than 2^63 elements"),
    FAILS(dims_wrap_to_1, "more than 2^63 elements"),
    FAILS(bytes_wrap, "more than 2^63 bytes"),
    FAILS(bytes_wrap_3d, "more than 2^63 bytes"),
    FAILS(block_row_cut, "rows of 33 elements, q8_0 needs a multiple of 32"),
    FAILS(type_99, "type id 99"),
    FAILS(type_removed, "type id 4"),
    FAILS(type_max, "type id 4294967295"),
    FAILS(offset_odd, "tensor 'b' has offset 40, not a multiple of the alignment 32"),
    FAILS(offset_past_end, "past the end of the file"),
    FAILS(offset_at_end, "past the end of the file"),
    FAILS(offset_near_max, "past the end of the file"),
    FAILS(one_byte_short, "tensor 'b' needs 32 bytes at offset 32"),
    FAILS(no_data_section, "past the end of the file"),
    FAILS(overlap, "tensor 'b' overlaps tensor 'a'"),
    FAILS(same_place, "overlaps tensor"),
    FAILS(huge_pair, "past the end of the file"),
    FAILS(split_of_2, "one of 2 shards"),
    FAILS(split_count_string, "'split.count' has type string"),
    FAILS(split_count_max, "one of 18446744073709551615 shards"),
#undef LOADS
#undef FAILS
};
enum { N_GGUF_CASES = sizeof gguf_cases / sizeof *gguf_cases, GGUF_CASE_MAX = 2048 };

#endif
