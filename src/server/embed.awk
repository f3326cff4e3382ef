# Turns page.html into the C strings that server/page.h declares.
BEGIN { print "#include \"server/page.h\"\nconst char *const ds_page_lines[] = {" }
{ gsub(/\\/, "&&"); gsub(/"/, "\\\""); print "    \"" $0 "\\n\"," }
END { print "    0\n};" }
