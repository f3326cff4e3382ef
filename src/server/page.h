/* page.html, line by line, as the build made it; NULL ends it. */
#ifndef DS_SERVER_PAGE_H
#define DS_SERVER_PAGE_H

extern const char *const ds_page_lines[];

#endif
