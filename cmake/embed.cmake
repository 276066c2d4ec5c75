# SPDX-License-Identifier: MIT
#
# Writes a C file that holds other files of the tree as texts (src/base/embedded.h): what
# emitted CUDA sources are made of, for a library that needs no file at run time.
#
#     cmake -DOUT=texts.c -DROOT=src -DFILES=math/half.h,cuda/kernels/rows.cuh -P embed.cmake
string(REPLACE "," ";" files "${FILES}")
set(texts "")
set(table "")
set(count 0)
foreach(file IN LISTS files)
    file(READ ${ROOT}/${file} bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND texts "static const char text_${count}[] = {\n${bytes}0};\n")
    string(APPEND table "    {\"${file}\", text_${count}},\n")
    math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUT} "/* Made by embed.cmake: do not edit. */\n#include \"base/embedded.h\"\n\n${texts}\n"
                  "const og_embedded_file og_embedded_files[] = {\n${table}};\n"
                  "const size_t og_embedded_count = ${count};\n")
