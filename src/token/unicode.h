/* Classes of code points, as the split patterns need them. */
#ifndef DS_TOKEN_UNICODE_H
#define DS_TOKEN_UNICODE_H

#include <stdint.h>

enum ds_char_class {
    DS_CHAR_OTHER,
    DS_CHAR_LETTER,            /* \p{L} */
    DS_CHAR_MARK,              /* \p{M} */
    DS_CHAR_NUMBER,            /* \p{N} */
    DS_CHAR_SPACE              /* White_Space, 25 code points: \s */
};

/* By Unicode 16.0 also where utf8proc knows less, so that ids do not depend on the library's age. cp <= 0x10FFFF. */
enum ds_char_class ds_char_class(uint32_t cp);

#endif
