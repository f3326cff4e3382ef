#include "token/unicode.h"

#include <stddef.h>
#include <utf8proc.h>

/* Letters, marks and numbers that Unicode 15.1 and 16.0 added to 15.0, which is the oldest table that utf8proc
 * releases in use carry. */
static const struct { uint32_t first, last; enum ds_char_class cls; } added[] = {
    { 0x897, 0x897, DS_CHAR_MARK },       { 0x1C89, 0x1C8A, DS_CHAR_LETTER },   { 0xA7CB, 0xA7CD, DS_CHAR_LETTER },
    { 0xA7DA, 0xA7DC, DS_CHAR_LETTER },   { 0x105C0, 0x105F3, DS_CHAR_LETTER }, { 0x10D40, 0x10D49, DS_CHAR_NUMBER },
    { 0x10D4A, 0x10D65, DS_CHAR_LETTER }, { 0x10D69, 0x10D6D, DS_CHAR_MARK },   { 0x10D6F, 0x10D85, DS_CHAR_LETTER },
    { 0x10EC2, 0x10EC4, DS_CHAR_LETTER }, { 0x10EFC, 0x10EFC, DS_CHAR_MARK },   { 0x11380, 0x11389, DS_CHAR_LETTER },
    { 0x1138B, 0x1138B, DS_CHAR_LETTER }, { 0x1138E, 0x1138E, DS_CHAR_LETTER }, { 0x11390, 0x113B5, DS_CHAR_LETTER },
    { 0x113B7, 0x113B7, DS_CHAR_LETTER }, { 0x113B8, 0x113C0, DS_CHAR_MARK },   { 0x113C2, 0x113C2, DS_CHAR_MARK },
    { 0x113C5, 0x113C5, DS_CHAR_MARK },   { 0x113C7, 0x113CA, DS_CHAR_MARK },   { 0x113CC, 0x113D0, DS_CHAR_MARK },
    { 0x113D1, 0x113D1, DS_CHAR_LETTER }, { 0x113D2, 0x113D2, DS_CHAR_MARK },   { 0x113D3, 0x113D3, DS_CHAR_LETTER },
    { 0x113E1, 0x113E2, DS_CHAR_MARK },   { 0x116D0, 0x116E3, DS_CHAR_NUMBER }, { 0x11BC0, 0x11BE0, DS_CHAR_LETTER },
    { 0x11BF0, 0x11BF9, DS_CHAR_NUMBER }, { 0x11F5A, 0x11F5A, DS_CHAR_MARK },   { 0x13460, 0x143FA, DS_CHAR_LETTER },
    { 0x16100, 0x1611D, DS_CHAR_LETTER }, { 0x1611E, 0x1612F, DS_CHAR_MARK },   { 0x16130, 0x16139, DS_CHAR_NUMBER },
    { 0x16D40, 0x16D6C, DS_CHAR_LETTER }, { 0x16D70, 0x16D79, DS_CHAR_NUMBER }, { 0x18CFF, 0x18CFF, DS_CHAR_LETTER },
    { 0x1CCF0, 0x1CCF9, DS_CHAR_NUMBER }, { 0x1E5D0, 0x1E5ED, DS_CHAR_LETTER }, { 0x1E5EE, 0x1E5EF, DS_CHAR_MARK },
    { 0x1E5F0, 0x1E5F0, DS_CHAR_LETTER }, { 0x1E5F1, 0x1E5FA, DS_CHAR_NUMBER }, { 0x2EBF0, 0x2EE5D, DS_CHAR_LETTER },
};

static enum ds_char_class added_class(uint32_t cp)
{
    size_t lo = 0, hi = sizeof added / sizeof *added;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > added[mid].last) lo = mid + 1;
        else if (cp < added[mid].first) hi = mid;
        else return added[mid].cls;
    }
    return DS_CHAR_OTHER;
}

static int is_white_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

enum ds_char_class ds_char_class(uint32_t cp)
{
    if (is_white_space(cp)) return DS_CHAR_SPACE;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO:
        return DS_CHAR_LETTER;
    case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ME:
        return DS_CHAR_MARK;
    case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_NO:
        return DS_CHAR_NUMBER;
    case UTF8PROC_CATEGORY_CN:
        return added_class(cp);
    default:
        return DS_CHAR_OTHER;
    }
}
