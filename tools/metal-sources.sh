#!/bin/sh
# The shaders as one C file: each with the headers that it includes by "name" spliced in, because what is compiled at run time
# has no folders to look in.
#   metal-sources.sh SHADER... >metal_sources.c       in the repository's root

# Text of file $1, each header once.
splice() {
    awk '
        # Beside the file that names it, or below src/.
        function found(dir, name,    line, path) {
            path = dir name
            if ((getline line < path) < 0) path = "src/" name
            close(path)
            if ((getline line < path) < 0) { print "no such file: " name > "/dev/stderr"; bad = 1; exit 1 }
            close(path)
            return path
        }
        function text(path,    line, name, dir) {
            if (path in done) return
            done[path] = 1
            dir = path
            sub(/[^\/]*$/, "", dir)
            while ((getline line < path) > 0) {
                if (line ~ /^[ \t]*#[ \t]*include[ \t]*"/) {
                    name = line
                    sub(/^[^"]*"/, "", name)
                    sub(/".*$/, "", name)
                    text(found(dir, name))
                } else print line
            }
            close(path)
        }
        BEGIN { text(ARGV[1]); exit bad }' "$1"
}

[ $# -gt 0 ] || { echo "usage: metal-sources.sh SHADER..." >&2; exit 2; }
tmp=$(mktemp) || exit 1
trap 'rm -f "$tmp"' EXIT
echo '#include "backend/metal/sources.h"'
i=0
for f in "$@"; do
    splice "$f" >"$tmp" || exit 1
    printf 'static const unsigned char text%d[] = {\n' $i
    od -An -v -tu1 "$tmp" | sed 's/^ *//; s/ *$//; /^$/d; s/  */,/g; s/$/,/'
    echo '0 };'
    i=$((i + 1))
done
echo 'const struct ds_metal_source ds_metal_sources[] = {'
i=0
for f in "$@"; do
    printf '    { "%s", (const char *)text%d, sizeof text%d - 1 },\n' "$(basename "$f")" $i $i
    i=$((i + 1))
done
echo '    { 0 },'
echo '};'
